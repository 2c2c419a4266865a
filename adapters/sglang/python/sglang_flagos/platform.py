"""SGLang's platform for flagos devices. SGLang makes it in the middle of the import of ``sglang.srt.utils.common``."""

from __future__ import annotations

import os
from typing import Any

import torch
from sglang.srt.platforms import interface
from sglang.srt.platforms.device_mixin import DeviceCapability, PlatformEnum

from flagos_serving.declaration import capability, device_type
from sglang_flagos import completeness, plugin_fl, releases, view
from sglang_flagos.engine import triton_missing

_flagos: Any = torch.flagos  # type: ignore[attr-defined]
# What SGLang decides by `is_cuda()`, which is false here. A value that is set stays.
_VARIABLES = {
    # The fence of the overlapped scheduler: a batch's writes wait for the reads of the one before.
    "SGLANG_ENABLE_WAR_BARRIER": "1",
    # Cosines and sines in float32, as on CUDA and in transformers; else in the model's type.
    "SGLANG_ROPE_CACHE_FP32": "1",
    # Else a scheduler that fails waits a minute for a core dump of CUDA's.
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
}


class FlagosPlatform(interface.SRTPlatform):
    """SGLang on flagos devices. What is not here, SGLang's base class refuses.

    Some methods are asked for by one of the releases alone.
    """

    _enum = PlatformEnum.OOT
    device_name = "flagos"
    device_type = "flagos"

    def __init__(self) -> None:
        view.hide_cuda()
        for name, value in _VARIABLES.items():
            os.environ.setdefault(name, value)
        if releases.installed().capabilities:
            self.capabilities = interface.PlatformCapabilities(
                supports_triton=triton_missing() is None, graph_capture=self.support_cuda_graph()
            )
        plugin_fl.apply()

    # ------------------------------------------------------------------------------------- configuration

    def apply_server_args_defaults(self, server_args: Any) -> None:
        """Refuses what flagos does not serve, and chooses what SGLang would choose Triton's or CUDA's for.

        Raises ValueError that lists everything that will not work, and RuntimeError if a part of the adapter is
        missing.
        """
        completeness.require()
        from sglang_flagos import rules

        rules.prepare(server_args)

    # -------------------------------------------------------------------------------------------- device

    def get_device(self, device_id: int | None = 0) -> str:
        """The device's name for torch."""
        return "flagos" if device_id is None else f"flagos:{device_id}"

    def set_device(self, device: Any) -> None:
        """Makes a device current."""
        _flagos.set_device(device)

    def get_device_name(self, device_id: int = 0) -> str:
        """The product's name."""
        return str(_flagos.get_device_name(device_id))

    def get_device_uuid(self, device_id: int = 0) -> str:
        """The device's UUID; vendor and number where it has none."""
        properties = _flagos.get_device_properties(device_id)
        return str(getattr(properties, "uuid", f"{properties.vendor}:{device_id}"))

    def get_device_capability(self, device_id: int = 0) -> DeviceCapability | None:
        """CUDA's compute capability; None on a device of another kind."""
        found = capability()
        return None if found is None else DeviceCapability(*found)

    def empty_cache(self) -> None:
        """Gives memory back that no tensor uses."""
        _flagos.empty_cache()

    def synchronize(self) -> None:
        """Waits for the current device."""
        _flagos.synchronize()

    # -------------------------------------------------------------------------------------------- memory

    def get_device_total_memory(self, device_id: int | None = 0) -> int:
        """In bytes."""
        return int(_flagos.get_device_properties(device_id or 0).total_memory)

    def get_current_memory_usage(self, device: Any = None) -> float:
        """In bytes, of all programs."""
        free, total = _flagos.mem_get_info(device)
        return float(total - free)

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        """The bytes that are free, and all of them."""
        free, total = _flagos.mem_get_info(device_id)
        return int(free), int(total)

    def is_pin_memory_available(self, device: Any = None) -> bool:
        """True, but for the CPU's own tensors."""
        return str(device) != "cpu"

    # --------------------------------------------------------------------------------------- collectives

    def get_torch_distributed_backend_str(self) -> str:
        """The process group of flagos."""
        return "flagos"

    def get_group_coordinator_device(self, local_rank: int) -> torch.device:
        """The device of a rank's groups."""
        return torch.device("flagos", local_rank)

    # ------------------------------------------------------------------------------------------- classes

    def get_default_attention_backend(self) -> str:
        """The backend over ``sglang::paged_attention``."""
        return "flagos"

    def get_dispatch_key_name(self) -> str:
        """The key of `sglang_flagos.layers`."""
        return "flagos"

    def support_cuda_graph(self) -> bool:
        """Whether decoding is captured in graphs: on CUDA, where the vendor has `torch.flagos.Graph`."""
        return device_type() == "cuda"

    def get_graph_runner_cls(self) -> Any:
        """SGLang's own runner of decoding by graphs."""
        from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner

        return DecodeCudaGraphRunner

    def get_mha_kv_pool_cls(self) -> Any:
        """SGLang's own pool."""
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

        return MHATokenToKVPool

    def get_kv_pool_cls(self, *, kind: str) -> None:
        """None: SGLang's own pools. Raises RuntimeError if a part of the adapter is missing.

        The process of a scheduler parses no arguments, so it is here, and below, that its completeness is asked for.
        """
        completeness.require()

    def get_paged_allocator_cls(self) -> Any:
        """A function that makes the allocator, or None for SGLang's. Raises RuntimeError if a part is missing."""
        completeness.require()
        if not releases.installed().pages_by_triton:
            return None
        from sglang_flagos.allocator import allocator

        return allocator

    def get_compile_backend(self, mode: str | None = None) -> str:
        """Inductor on CUDA alone: on the host it would compile for minutes in the first request with penalties."""
        return "inductor" if device_type() == "cuda" else "eager"

    def supports_fp8(self) -> bool:
        """Whether ``torch._scaled_mm`` has a kernel: on CUDA from capability 8.9, and on the host."""
        found = capability()
        return device_type() == "cpu" or (found is not None and found >= (8, 9))

    def init_backend(self) -> None:
        """Makes the backend of attention and the layers known, in each process that runs a model."""
        from sglang_flagos import attention, layers

        attention.register()
        layers.register()

    # ------------------------------------------------------------------------------------------ profiler

    def get_torch_profiler_activity_str(self) -> str:
        """The name of the activity below in requests, which is torch's: SGLang ignores others."""
        return "PrivateUse1"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        """Work on flagos devices."""
        return torch.profiler.ProfilerActivity.PrivateUse1
