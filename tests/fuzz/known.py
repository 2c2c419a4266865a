"""Operators that are not compared, or not called at all, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    "max_pool1d": "the CPU has a kernel of its own, see tests/conformance/expected.toml",
    "batch_norm_*": "those of SyncBatchNorm: the CPU has none",
    "_add_relu*": "the CPU's returns another tensor than out where the dtypes differ",
    "_to_cpu": "copies to the host",
    "_add_batch_dim": "vmap's own: its tensors end with its level",
    "_remove_batch_dim": "vmap's own: its tensors end with its level",
    "_shape_as_tensor": "gives a tensor of the host",
    "slow_conv3d*": "the CPU's own parts of a convolution crash where sizes are wrong",
    "fractional_max_pool*": "crash on the CPU where sizes are wrong",
    "reflection_pad*_backward": "crash on the CPU where sizes are wrong",
    "_pdist_backward": "crashes on the CPU where sizes are wrong",
    "tensor_split": "wants its indices on the host; steps/views.py has the others",
    "_copy_from*": "the CPU has none",
    "_test_*": "torch's own tests",
    "choose_qparams*": "quantized tensors are the CPU's alone",
    "_autocast_to_*": "are told of the CPU and of CUDA by name",
    "map_": "torch refuses it on other devices than the CPU",
    "map2_": "torch refuses it on other devices than the CPU",
    "record_stream": "the CPU has no streams",
}


@dataclass(frozen=True)
class Expected:
    """A difference that is not held against the device; the first three are patterns."""

    step: str
    kind: str
    says: str
    reason: str


EXPECTED = (
    Expected(
        "*quantile*",
        "error",
        "*quantile() q values must be in the range*",
        "torch looks at the values of q on the CPU alone; on a device it would wait for them",
    ),
    Expected(
        "*foreach*",
        "bump",
        "*",
        "a list that fails counts as written to its end, since it may have been",
    ),
    Expected("*", "bump", "*", "an out that is resized before a failure counts as written"),
    Expected("*kron.out", "version", "*", "the CPU writes without counting it"),
    Expected("*foreach*", "graph", "*AsStridedBackward0*", "follows from the above"),
    Expected(
        "*",
        "view",
        "*expected (True, 'hidden')",
        "a view of what an operator made inside and nobody else sees, as of a longer window",
    ),
    Expected(
        "setitem", "gra*", "*", "torch fills with numbers on the CPU, and copies them elsewhere"
    ),
    Expected("*", "error", "*allocate memory*", "out of memory is another error on accelerators"),
    Expected("*histc*", "error", "raised nothing*", "the CPU has no kernel for integers"),
    Expected(
        "*",
        "error",
        "*bernoulli_scalar_cpu_*Complex*",
        "torch's dropout is another operator elsewhere",
    ),
    Expected("*", "graph", "*NativeDropout*", "torch's dropout is another operator elsewhere"),
    Expected("*vecdot*", "s*", "*", "an out that requires grad is refused before it is resized"),
    Expected("*", "error", "raised*cannot resize variables that require grad*", "as above"),
    Expected(
        "*", "value", "*cannot be read*", "follows from a list that fails and counts as written"
    ),
    Expected("aten.*.data", "error", "*batch sizes of a packed*", "wrong sizes, another error"),
    Expected("func.vmap_dropout", "*", "*", "torch asks for a fused kernel under vmap"),
    Expected(
        "storage.*", "error", "*not resizable*", "what is loaded cannot be resized on the CPU"
    ),
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
        fnmatchcase(step, each.step)
        and fnmatchcase(mismatch.kind, each.kind)
        and fnmatchcase(mismatch.message, each.says)
        for each in EXPECTED
    )
