"""A `torch` for the few modules of vLLM that say ``torch.cuda``, in which ``torch.cuda`` means flagos.

Their ``torch.Generator`` has an offset on every device (`vllm_flagos.generators`).

vLLM's own platforms for other devices overwrite names of ``torch.cuda`` for the whole process. Here each such
module gets a view of torch as its global `torch`, and ``torch.cuda`` itself stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import torch

from vllm_flagos import generators

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


class _Cuda(ModuleType):
    """``torch.cuda`` as flagos has it: the names of ``torch.flagos``, then those of ``torch.cuda``."""

    def __init__(self) -> None:
        super().__init__("torch.cuda")
        self.CUDAGraph = torch.flagos.Graph  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        ours = getattr(torch.flagos, name, None)  # type: ignore[attr-defined]
        return getattr(torch.cuda, name) if ours is None else ours

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


class _Torch(ModuleType):
    """torch, but for its ``cuda`` and ``Generator``."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.cuda = _Cuda()

    @property
    def Generator(self) -> type[torch.Generator]:
        """The class for this process's device, which its first use opens."""
        return generators.class_of_device()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@cache
def view() -> ModuleType:
    """The view, one for the process."""
    return _Torch()


def install(module: ModuleType) -> None:
    """Gives a module of vLLM the view. Raises RuntimeError if the module has no global `torch`."""
    if not isinstance(getattr(module, "torch", None), ModuleType):
        raise RuntimeError(
            f"{module.__name__} has no `torch`: this release of vLLM is not the one that vllm-flagos knows"
        )
    vars(module)["torch"] = view()


def restore() -> None:
    """Takes vLLM's own function out of ``torch.cuda.set_stream``, which its import puts there. Idempotent."""
    from vllm.utils import torch_utils

    if torch.cuda.set_stream is torch_utils._patched_set_stream:
        torch.cuda.set_stream = torch_utils.prev_set_stream
