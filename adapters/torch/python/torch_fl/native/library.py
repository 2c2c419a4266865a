"""Kernels of the vendor's library compute, on memory and streams that the core owns."""

from __future__ import annotations

import torch
from torch.utils.dlpack import DLDeviceType

from flagos import _core
from torch_fl.native.base import Native
from torch_fl.native.description import Description
from torch_fl.native.triton import back_end

_OF_THE_HOST = {DLDeviceType.kDLCPU, DLDeviceType.kDLCUDAHost, DLDeviceType.kDLROCMHost}


class LibraryNative(Native):
    """A vendor whose devices torch does not know, and whose memory the host cannot touch.

    Operators without a kernel of the library's run on copies of their arguments on the CPU, and random numbers are
    those of the CPU's generator.
    """

    captured_by_core = True
    why_no_graphs = "run the region eagerly"

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        triton = back_end(self.triton_backend)
        self.completions = {} if triton is None else triton.completions

    def install(self) -> None:
        """Complete libraries that know the vendor's devices by another name in torch.

        Layers of encoders stay made of their parts, which the library serves: torch would give them whole, in
        evaluation, to fused operators that it has for its own devices, and those ran on the CPU.
        """
        torch.backends.mha.set_fastpath_enabled(False)
        triton = back_end(self.triton_backend)
        if triton is not None:
            triton.install()

    def stream_handle(self, device: int | None = None) -> int:
        """The handle in the library beneath the vendor, such as an `aclrtStream`."""
        stream = torch._C._accelerator_getStream(-1 if device is None else device)
        handle = _core.stream_handle(stream.device_index, stream.stream_id)
        return super().stream_handle(device) if handle is None else handle

    def product_name(self) -> str:
        """The vendor's name: what its chips are called is not known before the device is initialised."""
        return self.vendor

    @property
    def dlpack_device_type(self) -> int:
        """The vendor's, unless that means memory that host code may read: it would, and end the process."""
        described = super().dlpack_device_type
        return DLDeviceType.kDLExtDev if described in _OF_THE_HOST else described
