"""The calls that check one OpInfo (or ForeachFuncInfo) at one dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import SkipTest

import torch
from torch.autograd import forward_ad
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from torch_fl_tools.comparing.transfer import OnHost, Transfer

from . import reference
from .observation import tensors_in
from .twin_run import Call

LAYOUTS = (
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)
VARIANTS = (
    "forward",
    "backward",
    "double_backward",
    "forward_ad",
    "inplace",
    "inplace_backward",
    "out",
    "out_resized",
    "out_strided",
    "out_dtype",
    "conj",
    "neg",
    *(f"{str(layout).removeprefix('torch.')}" for layout in LAYOUTS),
    "error",
)

# The dtypes higher derivatives are checked at: they are made of operators that are checked at all.
_DERIVATIVE_DTYPES = frozenset({torch.float32, torch.complex64})

# Their negated samples are no probabilities, which CUDA's kernels answer by ending the process.
_ABORT_ON_CUDA = frozenset({"bernoulli", "multinomial", "nn.functional.binary_cross_entropy"})

# torch refuses indices that are not on the CPU here, as the host has to know them.
_HOST_ARGUMENTS = frozenset({"tensor_split"})


def variants_of(op: OpInfo, dtype: torch.dtype, *, errors: bool) -> list[str]:
    """The variants that apply to an operator at a dtype, in the order they are run.

    ``errors`` asks for the error inputs, which do not depend on the dtype.
    """
    backward = (
        dtype in op.supported_backward_dtypes(reference.device_type()) and op.supports_autograd
    )
    inplace = op.get_inplace() is not None
    strided_only = not op.name.startswith("_foreach_")
    higher = backward and dtype in _DERIVATIVE_DTYPES
    complex_or_float = dtype.is_complex or dtype.is_floating_point
    applies = {
        "forward": op.op is not None,
        "backward": backward,
        "double_backward": higher and op.supports_gradgrad,
        "forward_ad": higher and op.supports_forward_ad,
        "inplace": inplace,
        "inplace_backward": inplace and backward and op.supports_inplace_autograd,
        "conj": dtype.is_complex and op.test_conjugated_samples and strided_only,
        "neg": complex_or_float and op.test_neg_view and strided_only and not _aborts(op),
        "error": errors and op.error_inputs_func is not None,
    }
    for variant in ("out", "out_resized", "out_strided", "out_dtype"):
        applies[variant] = op.supports_out and strided_only
    for layout in LAYOUTS:
        name = str(layout).removeprefix("torch.")
        applies[name] = bool(op.supports_sparse_layout(layout))
    return [variant for variant in VARIANTS if applies[variant]]


def _aborts(op: OpInfo) -> bool:
    return reference.device_type() == "cuda" and op.name in _ABORT_ON_CUDA


def calls_of(op: OpInfo, dtype: torch.dtype, variant: str) -> Iterator[tuple[str, Call]]:
    """Yields the calls of one variant with a description of each."""
    if variant == "error":
        for error_input in op.error_inputs(reference.device_type()):
            yield from _described([error_input.sample_input], lambda s: _forward(op.op, s))
        return
    if variant.startswith("sparse_"):
        samples = _sparse_samples(op, dtype, getattr(torch, variant))
        yield from _described(samples, lambda sample: _forward(op.op, sample))
        return
    requires_grad = variant.endswith("backward") or variant == "forward_ad"
    device = reference.device_type()
    samples = placed(op, op.sample_inputs(device, dtype, requires_grad=requires_grad))
    if variant.startswith("out"):
        for sample in samples:
            call = _out(op.op, sample, variant)
            if call is not None:
                yield describe(sample), call
        return
    makers: dict[str, Callable[[SampleInput], Call]] = {
        "forward": lambda sample: _forward(op.op, sample),
        "backward": lambda sample: _backward(op.op, sample, fresh_input=False),
        "double_backward": lambda sample: _double_backward(op.op, sample),
        "forward_ad": lambda sample: _forward_ad(op.op, sample),
        "inplace": lambda sample: _forward(op.get_inplace(), sample),
        "inplace_backward": lambda s: _backward(op.get_inplace(), s, fresh_input=True),
        "conj": lambda sample: _forward(op.op, _with_input(sample, torch.Tensor.conj)),
        "neg": lambda sample: _forward(op.op, _with_input(sample, torch._neg_view)),
    }
    yield from _described(samples, makers[variant])


def _sparse_samples(op: OpInfo, dtype: torch.dtype, layout: torch.layout) -> Iterable[SampleInput]:
    """The sparse samples of an operator, or its dense ones made sparse where it has none."""
    device = reference.device_type()
    try:
        return list(op.sample_inputs_sparse(layout, device, dtype, requires_grad=False))
    except (NotImplementedError, SkipTest):
        return _made_sparse(op.sample_inputs(device, dtype), layout)


def _made_sparse(samples: Iterable[SampleInput], layout: torch.layout) -> Iterator[SampleInput]:
    blocks = (1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    for sample in samples:
        given = sample.input
        plain = isinstance(given, torch.Tensor) and given.layout == torch.strided
        if plain and (given.dim() == 2 or (layout == torch.sparse_coo and given.dim() > 0)):
            sample.input = given.to_sparse(layout=layout, blocksize=blocks)
            yield sample


def _described(
    samples: Iterable[SampleInput], make: Callable[[SampleInput], Call]
) -> Iterator[tuple[str, Call]]:
    for sample in samples:
        yield describe(sample), make(sample)


def describe(sample: SampleInput) -> str:
    def brief(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            strides = "" if value.layout != torch.strided or value.is_contiguous() else "!"
            return f"{dtype}{list(value.shape)}{strides}"
        return value

    arguments = [brief(value) for value in pytree.tree_leaves((sample.input, sample.args))]
    named = [f"{key}={pytree.tree_map(brief, value)}" for key, value in dict(sample.kwargs).items()]
    text = ", ".join([*(str(argument) for argument in arguments), *named])
    return text if len(text) <= 200 else f"{text[:200]}..."


def inputs_of(sample: SampleInput) -> tuple[Any, ...]:
    return (sample.input, sample.args, dict(sample.kwargs))


def placed(op: OpInfo, samples: Iterable[SampleInput]) -> Iterator[SampleInput]:
    """Marks the arguments that belong on the host for every device."""
    for sample in samples:
        if op.name in _HOST_ARGUMENTS:
            sample.args = pytree.tree_map_only(
                torch.Tensor, lambda tensor: OnHost(tensor.cpu()), sample.args
            )
        yield sample


def _forward(function: Callable[..., Any], sample: SampleInput) -> Call:
    def body(transfer: Transfer, inputs: Any) -> Any:
        first, args, kwargs = inputs
        with torch.no_grad():
            return function(first, *args, **kwargs)

    inputs = inputs_of(sample)
    # A factory that is told no device makes a host tensor.
    return Call(body, inputs, outputs_may_stay_on_host=not names_a_device(inputs))


def names_a_device(inputs: Any) -> bool:
    return any(
        isinstance(leaf, (torch.Tensor, torch.device)) or reference.is_named_by(leaf)
        for leaf in pytree.tree_leaves(inputs)
    )


def _backward(function: Callable[..., Any], sample: SampleInput, *, fresh_input: bool) -> Call:
    """A call that also differentiates, with random cotangents for every differentiable output.

    ``fresh_input`` feeds a copy of the input, as an in-place function must not be given a leaf.
    """

    def body(transfer: Transfer, inputs: Any) -> Any:
        first, args, kwargs = inputs
        targets = [tensor for tensor in tensors_in(inputs) if tensor.requires_grad]
        if fresh_input:
            first = pytree.tree_map_only(torch.Tensor, torch.clone, first)
        output = function(first, *args, **kwargs)
        output = sample.output_process_fn_grad(output)
        return {"output": output, "grads": gradients(transfer, output, targets)}

    return Call(body, inputs_of(sample))


def _double_backward(function: Callable[..., Any], sample: SampleInput) -> Call:
    def body(transfer: Transfer, inputs: Any) -> Any:
        first, args, kwargs = inputs
        targets = [tensor for tensor in tensors_in(inputs) if tensor.requires_grad]
        output = sample.output_process_fn_grad(function(first, *args, **kwargs))
        first_order = gradients(transfer, output, targets, create_graph=True)
        return {"grads": first_order, "seconds": gradients(transfer, first_order, targets)}

    return Call(body, inputs_of(sample))


def _forward_ad(function: Callable[..., Any], sample: SampleInput) -> Call:
    def body(transfer: Transfer, inputs: Any) -> Any:
        tangents = iter(range(len(pytree.tree_leaves(inputs))))

        def dual(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.requires_grad:
                return tensor
            tangent = _cotangent(transfer, tensor, next(tangents))
            pair: torch.Tensor = forward_ad.make_dual(tensor.detach(), tangent)
            return pair

        with forward_ad.dual_level():
            first, args, kwargs = pytree.tree_map_only(torch.Tensor, dual, inputs)
            output = function(first, *args, **kwargs)
            return pytree.tree_map_only(torch.Tensor, forward_ad.unpack_dual, output)

    return Call(body, inputs_of(sample))


def gradients(
    transfer: Transfer, output: Any, targets: list[torch.Tensor], *, create_graph: bool = False
) -> list[Any]:
    """Gradients of ``output`` (a tree) for ``targets``, from cotangents equal on every device."""
    outputs = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if not outputs or not targets:
        return []
    cotangents = [_cotangent(transfer, tensor, seed) for seed, tensor in enumerate(outputs)]
    grads = torch.autograd.grad(
        outputs, targets, cotangents, allow_unused=True, create_graph=create_graph
    )
    return list(grads)


def _cotangent(transfer: Transfer, output: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(output.shape, dtype=output.dtype, generator=generator)
    dense = dense.to(reference.device_type())
    if output.layout == torch.strided:
        return transfer.tensor(dense)
    return transfer.tensor(dense.to_sparse(layout=output.layout))


def _with_input(sample: SampleInput, change: Callable[[torch.Tensor], torch.Tensor]) -> SampleInput:
    def changed_if_dense(tensor: torch.Tensor) -> torch.Tensor:
        return change(tensor) if tensor.layout == torch.strided else tensor

    changed = pytree.tree_map_only(torch.Tensor, changed_if_dense, sample.input)
    return SampleInput(changed, args=sample.args, kwargs=dict(sample.kwargs))


def _out(function: Callable[..., Any], sample: SampleInput, variant: str) -> Call | None:
    """A call with ``out=``; None where the sample cannot have one (a result that is no tensor)."""
    transfer = reference.transfer_to(torch.device(reference.device_type()))
    first, args, kwargs = transfer.tree(inputs_of(sample))
    try:
        with torch.no_grad():
            expected = function(first, *args, **kwargs)
    except Exception:  # the forward variant reports it
        return None
    leaves = pytree.tree_leaves(expected)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return None
    destination = pytree.tree_map(_DESTINATIONS[variant], expected)
    if not isinstance(destination, (torch.Tensor, list)):
        destination = tuple(pytree.tree_leaves(destination))

    def body(transfer: Transfer, inputs: Any) -> Any:
        first, args, kwargs, out = inputs
        with torch.no_grad():
            return function(first, *args, **kwargs, out=out)

    # torch resizes CPU and CUDA tensors without the dispatcher; elsewhere that counts as a write.
    return Call(body, (*inputs_of(sample), destination), may_bump=variant == "out_resized")


def _matching(result: torch.Tensor) -> torch.Tensor:
    if result.layout != torch.strided:
        return torch.zeros_like(result)
    like = torch.empty_strided(
        result.shape, result.stride(), dtype=result.dtype, device=result.device
    )
    return like.fill_(1)


def _empty(result: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=result.dtype, device=result.device)


def _every_second(result: torch.Tensor) -> torch.Tensor:
    wide = torch.ones((*result.shape, 2), dtype=result.dtype, device=result.device)
    return wide[..., 0]


def _other_dtype(result: torch.Tensor) -> torch.Tensor:
    """Casting a float result to integers must be refused, an integer one to floats be done."""
    integral = not (result.is_complex() or result.is_floating_point())
    dtype = torch.float64 if integral else torch.int64
    return torch.ones(result.shape, dtype=dtype, device=result.device)


_DESTINATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "out": _matching,
    "out_resized": _empty,
    "out_strided": _every_second,
    "out_dtype": _other_dtype,
}
