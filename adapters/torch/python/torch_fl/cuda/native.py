"""torch's CUDA serves flagos: NVIDIA's devices, and those of vendors whose torch shows them as cuda."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from torch_fl.native import cuda_runtime
from torch_fl.native.torch_device import TorchNative


class CudaNative(TorchNative):
    """Every vendor whose devices this build of torch knows by the name cuda."""

    repeats_launches = True
    completions: Mapping[str, str] = MappingProxyType(
        {"torch._inductor.compile_fx": "torch_fl.cuda.compile"}
    )

    @classmethod
    def missing(cls, vendor: str) -> str | None:
        """Whether torch's cuda is that vendor's."""
        return cuda_runtime.missing(vendor)

    @property
    def backend(self) -> str:
        """Kernels of MetaX's torch have the vendor's name, as in PyTorch-Plugin-FL."""
        return self.vendor if self.vendor == cuda_runtime.METAX else super().backend

    @property
    def graphs(self) -> ModuleType:
        """Those of CUDA."""
        return importlib.import_module("torch_fl.cuda.graphs")

    def install(self) -> None:
        """Complete cuDNN's checks, the autograd engine and the CUDA array interface."""
        from torch_fl.cuda import array_interface, autograd, checks

        for module in (checks, autograd, array_interface):
            module.install()

    def product_name(self) -> str:
        """As NVIDIA's management library tells it, of the first GPU; of another vendor as that tells it."""
        if self.vendor != cuda_runtime.NVIDIA:
            return super().product_name()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return ""
        if library.nvmlInit_v2() != 0:
            return ""
        try:
            device, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
                return ""
            named = library.nvmlDeviceGetName(device, text, len(text)) == 0
            return text.value.decode(errors="replace") if named else ""
        finally:
            library.nvmlShutdown()

    def external_stream(self, handle: int, device: int) -> int:
        """The id of the stream over a `cudaStream_t`."""
        return int(self.module.ExternalStream(handle, device).stream_id)

    def stream_handle(self, device: int | None = None) -> int:
        """The `cudaStream_t`; 0 is the default stream."""
        return int(self.module.current_stream(device).cuda_stream)


NATIVE = CudaNative
