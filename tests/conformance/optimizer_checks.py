"""The calls that check one OptimizerInfo at one dtype."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerInfo

from torch_fl_tools.comparing.transfer import Transfer

from . import reference
from .twin_run import Call

_SHAPES = ((8, 5), (7,), (), (2, 3, 4, 3))
_STEPS = 4
IMPLEMENTATIONS = ("foreach", "fused", "differentiable")


def dtypes_of(info: OptimizerInfo) -> list[torch.dtype]:
    """The parameter dtypes an optimizer is checked with."""
    dtypes = [torch.float32, torch.float64, torch.bfloat16]
    return [*dtypes, torch.complex64] if info.supports_complex else dtypes


def variants_of(info: OptimizerInfo) -> list[str]:
    """One variant for each implementation, and one that resumes from a host checkpoint."""
    variants = [] if info.only_supports_sparse_grads else ["forloop", "resume"]
    variants += [name for name in IMPLEMENTATIONS if name in info.supported_impls]
    if info.supports_sparse or info.only_supports_sparse_grads:
        variants.append("sparse")
    return variants


def calls_of(info: OptimizerInfo, dtype: torch.dtype, variant: str) -> Iterator[tuple[str, Call]]:
    """Yields the calls of one variant with a description of each."""
    for given in info.optim_inputs_func(device=reference.device_type(), dtype=dtype):
        kwargs = dict(given.kwargs)
        if variant == "sparse":
            kwargs = {**kwargs, **info.metadata_for_sparse[0]}
            if kwargs.get("weight_decay"):
                continue  # no optimizer takes weight decay with sparse gradients
        # Named even where false: the default depends on the device and is not under test here.
        for name in IMPLEMENTATIONS:
            if name in info.supported_impls:
                kwargs[name] = name == variant
        yield given.desc or str(given.kwargs), _train(info, kwargs, dtype, variant)


def _train(info: OptimizerInfo, kwargs: dict[str, Any], dtype: torch.dtype, variant: str) -> Call:
    generator = torch.Generator().manual_seed(0)

    def random(shape: tuple[int, ...]) -> torch.Tensor:
        drawn = torch.randn(shape, dtype=dtype, generator=generator)
        return drawn.to(reference.device_type())

    shapes = _SHAPES[:2] if variant == "sparse" else _SHAPES
    parameters = [random(shape).requires_grad_() for shape in shapes]
    gradients = [[random(shape) for shape in shapes] for _ in range(_STEPS)]
    if variant == "sparse":
        gradients = [[_with_empty_rows(g).to_sparse(1) for g in step] for step in gradients]

    def body(transfer: Transfer, inputs: Any) -> Any:
        parameters, gradients, kwargs = inputs
        # A differentiable step writes in place into the parameters, which leaves must not be.
        if variant == "differentiable":
            parameters = [parameter.clone() for parameter in parameters]
            for parameter in parameters:
                parameter.retain_grad()
        optimizer = _create(info, parameters, kwargs)
        losses = []
        for step, values in enumerate(gradients):
            if variant == "resume" and step == _STEPS // 2:
                optimizer = _reload(info, optimizer, parameters, kwargs)
            losses.append(_step(info, optimizer, parameters, values))
        state = optimizer.state_dict()["state"]
        return {"parameters": parameters, "losses": losses, "state": _flat_state(state)}

    return Call(body, (parameters, gradients, kwargs), outputs_may_stay_on_host=True)


def _create(
    info: OptimizerInfo, parameters: list[torch.Tensor], kwargs: dict[str, Any]
) -> torch.optim.Optimizer:
    create: Any = info.optim_cls  # annotated as an instance, but is the class
    optimizer: torch.optim.Optimizer = create(parameters, **kwargs)
    return optimizer


def _with_empty_rows(gradient: torch.Tensor) -> torch.Tensor:
    gradient[::2] = 0
    return gradient


def _step(
    info: OptimizerInfo,
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
) -> Any:
    def closure() -> Any:
        loss = torch.zeros((), device=parameters[0].device)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if info.step_requires_closure:  # a quadratic bowl, so that a line search makes sense
                parameter.grad = (parameter - gradient).detach()
                loss = loss + (parameter - gradient).detach().abs().square().sum() / 2
            else:
                parameter.grad = gradient.clone()
        return loss

    if info.step_requires_closure:
        return optimizer.step(closure)
    closure()
    return optimizer.step()


def _reload(
    info: OptimizerInfo,
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.Tensor],
    kwargs: dict[str, Any],
) -> torch.optim.Optimizer:
    """A fresh optimizer given the state as a host checkpoint would hold it."""

    def to_host(value: Any) -> Any:
        return value.cpu() if isinstance(value, torch.Tensor) else value

    checkpoint = torch.utils._pytree.tree_map(to_host, deepcopy(optimizer.state_dict()))
    fresh = _create(info, parameters, kwargs)
    fresh.load_state_dict(checkpoint)
    return fresh


def _flat_state(state: dict[Any, Any]) -> list[Any]:
    return [
        (index, key, value)
        for index, entries in state.items()
        for key, value in entries.items()
        if not callable(value)
    ]
