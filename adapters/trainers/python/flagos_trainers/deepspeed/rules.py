"""The options of a DeepSpeed configuration that need DeepSpeed's CUDA kernels, or a library for NVIDIA alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flagos import UnsupportedError


@dataclass(frozen=True)
class Problem:
    """An option that flagos does not serve."""

    option: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.option}: {self.reason}; {self.remedy}"


_QUANTIZED = ("ZeRO++'s quantizer is a CUDA kernel", "leave it out, or set false")
_COMPRESSED = (
    "its compressed collectives are DeepSpeed's for NCCL, MPI and HCCL",
    "take Adam, AdamW or Lamb",
)
_COMPRESSED_OPTIMIZERS = ("onebitadam", "zerooneadam", "onebitlamb")

# Option, by its path → whether a value asks for it, the reason, the remedy.
_RULES: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "optimizer.type": (
        lambda value: str(value).lower() in _COMPRESSED_OPTIMIZERS,
        *_COMPRESSED,
    ),
    "zero_optimization.zero_quantized_weights": (bool, *_QUANTIZED),
    "zero_optimization.zero_quantized_nontrainable_weights": (bool, *_QUANTIZED),
    "zero_optimization.zero_quantized_gradients": (bool, *_QUANTIZED),
    "compile.deepcompile": (
        bool,
        "DeepCompile's runtime is a CUDA extension",
        'take {"compile": {"deepcompile": false}} and engine.compile()',
    ),
    "aio.use_gds": (
        bool,
        "GPUDirect Storage is NVIDIA's",
        "set false: files go through host memory",
    ),
    "data_efficiency.data_routing.random_ltd.enabled": (
        bool,
        "random-LTD's gathers and sorts are CUDA kernels",
        "set false",
    ),
    "amp.enabled": (bool, "Apex is NVIDIA's", "take bf16, fp16 or torch_autocast"),
}


def problems(configuration: Mapping[str, Any]) -> list[Problem]:
    """What flagos does not serve of a configuration, in the order of the rules."""
    found = []
    for option, (asks, reason, remedy) in _RULES.items():
        value: Any = configuration
        for part in option.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None and asks(value):
            found.append(Problem(option, reason, remedy))
    return found


def require(configuration: Mapping[str, Any]) -> None:
    """Raises flagos.UnsupportedError, which names every option that flagos does not serve."""
    found = problems(configuration)
    if found:
        raise UnsupportedError(
            "flagos does not serve this DeepSpeed configuration: " + "; ".join(map(str, found))
        )
