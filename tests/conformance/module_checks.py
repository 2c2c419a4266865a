"""The calls that check one ModuleInfo at one dtype."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput
from torch.utils import _pytree as pytree

from torch_fl_tools.comparing.transfer import Transfer

from . import reference
from .observation import tensors_in
from .op_checks import gradients
from .twin_run import Call, seed_everything

VARIANTS = ("forward", "backward", "factory", "state_dict")
_CONSTRUCTION_SEED = 7


def variants_of(info: ModuleInfo) -> list[str]:
    """The variants of a module; a lazy one has no parameters before it has seen an input."""
    return list(VARIANTS[:2] if info.is_lazy else VARIANTS)


def calls_of(info: ModuleInfo, dtype: torch.dtype, variant: str) -> Iterator[tuple[str, Call]]:
    """Yields the calls of one variant with a description of each."""
    modes = (True, False) if info.train_and_eval_differ else (True,)
    for training in modes:
        inputs = info.module_inputs_func(
            info,
            device=reference.device_type(),
            dtype=dtype,
            requires_grad=variant == "backward",
            training=training,
        )
        for sample in inputs:
            mode = "train" if training else "eval"
            text = f"{mode} {sample.desc or sample.constructor_input.kwargs}"
            if variant == "factory":
                yield text, _factory(info, sample, dtype)
            elif variant == "state_dict":
                yield text, _state_dict(info, sample, dtype)
            elif sample.forward_input is not None:
                yield text, _forward(info, sample, dtype, training, variant == "backward")


def _construct(
    info: ModuleInfo, args: Any, kwargs: Any, device: torch.device | None = None
) -> torch.nn.Module:
    seed_everything(_CONSTRUCTION_SEED, device)
    # Some modules take modules; the reference must not train those of the device.
    module: torch.nn.Module = info.module_cls(*deepcopy(args), **deepcopy(kwargs))
    return module


def _arguments(sample: ModuleInput) -> tuple[Any, Any]:
    given = sample.constructor_input
    return (given.args, given.kwargs)


def _forward(
    info: ModuleInfo, sample: ModuleInput, dtype: torch.dtype, training: bool, backward: bool
) -> Call:
    args, kwargs = _arguments(sample)

    def body(transfer: Transfer, inputs: Any) -> Any:
        module = _construct(info, args, kwargs).to(dtype).to(transfer.device).train(training)
        seed_everything(_CONSTRUCTION_SEED, transfer.device)
        forward_args, forward_kwargs = inputs
        with torch.set_grad_enabled(backward):
            output = module(*forward_args, **forward_kwargs)
        result = {"output": output, "state": list(module.state_dict().items())}
        if backward:
            targets = [tensor for tensor in tensors_in(inputs) if tensor.requires_grad]
            targets += [p for p in module.parameters() if p.requires_grad]
            result["grads"] = gradients(transfer, output, targets)
        return result

    return Call(body, (sample.forward_input.args, dict(sample.forward_input.kwargs)))


def _factory(info: ModuleInfo, sample: ModuleInput, dtype: torch.dtype) -> Call:
    """Construction directly on the device must give the parameters construction gives on the host."""

    def body(transfer: Transfer, inputs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(
            torch.nn.Module, lambda module: deepcopy(module).to(transfer.device), inputs
        )
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(transfer.device):
                module = _construct(info, args, kwargs, transfer.device)
        finally:
            torch.set_default_dtype(default)
        return list(module.state_dict().items())

    return Call(body, _arguments(sample))


def _state_dict(info: ModuleInfo, sample: ModuleInput, dtype: torch.dtype) -> Call:
    """Loading a host checkpoint into a module on the device."""
    args, kwargs = _arguments(sample)

    def body(transfer: Transfer, inputs: Any) -> Any:
        source = _construct(info, args, kwargs).to(dtype)
        target = _construct(info, args, kwargs).to(dtype).to(transfer.device)
        with torch.no_grad():
            for parameter in target.parameters():
                parameter.zero_()
        missing = target.load_state_dict(source.state_dict())
        return {"missing": list(missing), "state": list(target.state_dict().items())}

    return Call(body, ())
