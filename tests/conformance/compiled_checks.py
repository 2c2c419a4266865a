"""The calls that check one OpInfo at one dtype under torch.compile.

``fake`` variants run the operator as it is, and beside each of the kernels that it reaches the fake kernel that a
compiler would ask: sizes, strides, dtypes and aliases must be what the fake kernel promises. ``compiled`` variants run
the graph that torch.compile makes (``aot_eager``, whose graphs call the same kernels).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from torch_fl_tools.comparing.transfer import Transfer

from . import op_checks, reference
from .observation import tensors_in
from .twin_run import Call

DTYPES = (torch.float32, torch.bfloat16)
VARIANTS = (
    "fake",
    "fake_backward",
    "fake_channels_last",
    "fake_channels_last_backward",
    "compiled",
    "compiled_backward",
)

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def dtypes_of(op: OpInfo) -> list[torch.dtype]:
    """Those of ``DTYPES`` that the operator has, or its first one where it has neither."""
    supported = op.supported_dtypes(reference.device_type())
    return [dtype for dtype in DTYPES if dtype in supported] or sorted(supported, key=str)[:1]


def variants_of(op: OpInfo, dtype: torch.dtype) -> list[str]:
    """The variants that apply to an operator at a dtype, in the order they are run."""
    if op.op is None:
        return []
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes(
        reference.device_type()
    )
    return [variant for variant in VARIANTS if backward or not variant.endswith("backward")]


def calls_of(op: OpInfo, dtype: torch.dtype, variant: str) -> Iterator[tuple[str, Call]]:
    """Yields the calls of one variant with a description of each."""
    backward = variant.endswith("backward")
    samples = op.sample_inputs(reference.device_type(), dtype, requires_grad=backward)
    for sample in op_checks.placed(op, samples):
        if "channels_last" in variant and not _to_channels_last(sample):
            continue
        run = _under_compiler if variant.startswith("compiled") else _beside_fakes
        yield op_checks.describe(sample), _call(op.op, sample, run, backward=backward)


def _to_channels_last(sample: SampleInput) -> bool:
    """Changes the sample's tensors of images to channels last; False where there is none."""
    changed = False

    def change(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        memory_format = _CHANNELS_LAST.get(tensor.dim())
        if memory_format is None or tensor.layout != torch.strided:
            return tensor
        result = tensor.detach().contiguous(memory_format=memory_format)
        changed |= result.stride() != tensor.stride()
        return result.requires_grad_(tensor.requires_grad)

    sample.input, sample.args, sample.kwargs = pytree.tree_map_only(
        torch.Tensor, change, (sample.input, sample.args, sample.kwargs)
    )
    return changed


Runner = Callable[[Callable[[], Any]], Any]


def _beside_fakes(function: Callable[[], Any]) -> Any:
    with CrossRefFakeMode():
        return function()


def _under_compiler(function: Callable[[], Any]) -> Any:
    torch._dynamo.reset()
    return function()


def _call(
    function: Callable[..., Any], sample: SampleInput, run: Runner, *, backward: bool
) -> Call:
    if run is _under_compiler:
        function = torch.compile(function, backend="aot_eager")

    def body(transfer: Transfer, inputs: Any) -> Any:
        first, args, kwargs = inputs
        targets = [tensor for tensor in tensors_in(inputs) if tensor.requires_grad]

        def forward() -> Any:
            return function(first, *args, **kwargs)

        def differentiated() -> Any:
            output = sample.output_process_fn_grad(forward())
            grads = op_checks.gradients(transfer, output, targets)
            return {"output": output, "grads": grads}

        with torch.set_grad_enabled(backward):
            return run(differentiated if backward else forward)

    inputs = op_checks.inputs_of(sample)
    return Call(body, inputs, outputs_may_stay_on_host=not op_checks.names_a_device(inputs))
