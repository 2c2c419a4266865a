"""Kernels of the vendor's library compute, on memory and streams that the core owns."""

from __future__ import annotations

from torch.utils.dlpack import DLDeviceType

from torch_fl.native.base import Native

_OF_THE_HOST = {DLDeviceType.kDLCPU, DLDeviceType.kDLCUDAHost, DLDeviceType.kDLROCMHost}


class LibraryNative(Native):
    """A vendor whose devices torch does not know, and whose memory the host cannot touch.

    Operators without a kernel of the library's run on copies of their arguments on the CPU, and random numbers are
    those of the CPU's generator.
    """

    captured_by_core = True
    why_no_graphs = "run the region eagerly"

    @property
    def dlpack_device_type(self) -> int:
        """The vendor's, unless that means memory that host code may read: it would, and end the process."""
        described = super().dlpack_device_type
        return DLDeviceType.kDLExtDev if described in _OF_THE_HOST else described
