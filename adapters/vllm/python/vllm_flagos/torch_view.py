"""The view of torch (`flagos_serving.torch_view`) for vLLM's modules, in which vLLM finds its current stream.

Their ``torch.Generator`` has an offset on every device (`vllm_flagos.generators`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import torch

from flagos_serving import torch_view
from vllm_flagos import generators
from vllm_flagos.vllm import VLLM

# Modules of vLLM whose ``torch.cuda`` means the device of their tensors.
MODULES = (
    "compilation.breakable_cudagraph",
    "compilation.cuda_graph",
    "distributed.device_communicators.custom_all_reduce",
    "distributed.parallel_state",
    "lora.layers.base_linear",
    "lora.layers.fused_moe",
    "lora.layers.utils",
    "utils.multi_stream_utils",
    "utils.torch_utils",
    "v1.attention.ops.triton_reshape_and_cache_flash",
    "v1.spec_decode.ngram_proposer_gpu",
    "v1.worker.encoder_cudagraph",
    "v1.worker.gpu.async_utils",
    "v1.worker.gpu.cudagraph_utils",
    "v1.worker.gpu.model_runner",
    "v1.worker.gpu.pp_utils",
    "v1.worker.gpu.spec_decode.utils",
    "v1.worker.gpu.structured_outputs",
    "v1.worker.gpu_model_runner",
)


class _Cuda(torch_view.Cuda):
    """With vLLM's own record of the current stream."""

    def set_stream(self, stream: torch.Stream | None) -> None:
        """As torch's; and vLLM's `current_stream` finds it."""
        if stream is not None:
            torch.flagos.set_stream(stream)  # type: ignore[attr-defined]
            from vllm.utils import torch_utils

            torch_utils._current_stream_tls.value = stream

    @contextmanager
    def stream(self, stream: torch.Stream | None) -> Iterator[None]:
        """As torch's, by `set_stream`."""
        before = self.current_stream()
        self.set_stream(stream)
        try:
            yield
        finally:
            self.set_stream(before)


class _Torch(torch_view.Torch):
    """With generators that have an offset."""

    @property
    def Generator(self) -> type[torch.Generator]:
        """The class for this process's device, which its first use opens."""
        return generators.class_of_device()


@cache
def view() -> torch_view.Torch:
    """The view, one for the process."""
    return _Torch(_Cuda())


def install(module: ModuleType) -> None:
    """Gives a module of vLLM the view. Raises RuntimeError if the module has no global `torch`."""
    torch_view.install(VLLM, module, view())


def restore() -> None:
    """Takes vLLM's own function out of ``torch.cuda.set_stream``, which its import puts there. Idempotent."""
    from vllm.utils import torch_utils

    if torch.cuda.set_stream is torch_utils._patched_set_stream:
        torch.cuda.set_stream = torch_utils.prev_set_stream
