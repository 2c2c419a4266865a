"""What is not compared, or not called at all, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from tests.conformance.observation import Mismatch

# Overloads that are never drawn from torch's schemas: patterns of their names, and why.
NOT_CALLED: Mapping[str, str] = {
    "empty*": "the contents are uninitialised by contract",
    "new_empty*": "the contents are uninitialised by contract",
    "_empty*": "the contents are uninitialised by contract",
    "resize*": "growth is uninitialised; steps/storages.py resizes and fills",
    "_resize*": "growth is uninitialised; steps/storages.py resizes and fills",
    "*from_file*": "reads files",
    "set_data": "ends in an assertion of torch for tensors of two devices",
    "*cudnn*": "needs CUDA",
    "*miopen*": "needs ROCm",
    "*mkldnn*": "opaque tensors, which no other device has",
    "to_mkldnn*": "opaque tensors, which no other device has",
    "*_mps*": "needs MPS",
    "*cuda*": "needs CUDA",
    "*cslt*": "needs CUDA",
    "*fbgemm*": "the CPU's own quantized weights, whose arguments are not checked",
    "*quantize*": "quantized tensors are the CPU's alone",
    "q_*": "quantized tensors are the CPU's alone",
    "quantized_*": "quantized tensors are the CPU's alone",
    "*_qint*": "quantized tensors are the CPU's alone",
    "_assert_*": "ends the process by design",
    "_version": "names no tensor; the version is compared after every step",
    "_backward": "its tensors' graphs are steps/autograd.py's",
    "_wrapped_*": "the CPU's own quantized weights, whose arguments are not checked",
    "rename*": "named tensors are deprecated, and later steps refuse them",
    "align_*": "named tensors are deprecated, and later steps refuse them",
    "refine_names": "named tensors are deprecated, and later steps refuse them",
    "is_pinned": "CPU memory is pinned for the device, and device memory is not CPU memory",
    "pin_memory": "CPU memory is pinned for the device, and device memory is not CPU memory",
    "_pin_memory": "CPU memory is pinned for the device, and device memory is not CPU memory",
    "map_": "torch refuses it on other devices than the CPU",
    "map2_": "torch refuses it on other devices than the CPU",
    "record_stream": "the CPU has no streams",
}

# Differences that are not held against the device: the step's name, the kind of the difference, and why.
EXPECTED: tuple[tuple[str, str, str], ...] = (
    (
        "*max_pool1d*",
        "view",
        "the CPU has a kernel of its own: see tests/conformance/expected.toml",
    ),
    (
        "*",
        "bump",
        "how often a failing call counts lists as written; a write that is not counted is seen",
    ),
    ("*_window.*", "view", "the CPU's is part of a longer window that nobody else sees"),
    ("setitem", "graph", "torch fills with numbers on the CPU, and copies them elsewhere"),
    ("*histc*", "error", "the CPU has no kernel for integers, accelerators have"),
)


def not_called(name: str) -> str | None:
    """Why an operator is not drawn from the schemas."""
    for pattern, reason in NOT_CALLED.items():
        if fnmatchcase(name, pattern):
            return reason
    return None


def is_expected(step: str, mismatch: Mismatch) -> bool:
    """Whether a step may differ in this."""
    return any(
        fnmatchcase(step, pattern) and fnmatchcase(mismatch.kind, kind)
        for pattern, kind, _ in EXPECTED
    )
