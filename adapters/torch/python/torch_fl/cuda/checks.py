"""Python code of torch that asks whether a tensor is on CUDA, adapted."""

from __future__ import annotations

from typing import Any

import torch
import torch.backends.cudnn as cudnn
import torch.backends.cudnn.rnn as cudnn_rnn
from torch.cuda import jiterator

_DEVICE = "flagos"

_is_acceptable = cudnn.is_acceptable
_flatten = torch.nn.RNNBase.flatten_parameters
_run_jitted = jiterator._JittedFunction.__call__


def _as_cuda(value: Any) -> Any:
    is_flagos = isinstance(value, torch.Tensor) and value.device.type == _DEVICE
    return value.to(torch.device("cuda", value.device.index)) if is_flagos else value


def _as_flagos(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.device(_DEVICE, tensor.device.index))


def _cudnn_is_acceptable(tensor: torch.Tensor) -> bool:
    return bool(_is_acceptable(_as_cuda(tensor)))


def _flatten_parameters(self: torch.nn.RNNBase) -> None:
    """Recurrent layers lay out their parameters the way cuDNN wants them."""
    from torch_fl import flagos

    weights = [
        weight
        for weight in self._flat_weights
        if isinstance(weight, torch.Tensor) and weight.device.type == _DEVICE
    ]
    if len(weights) != len(self._flat_weights_names) or not all(
        weight.dtype == weights[0].dtype and _cudnn_is_acceptable(weight) for weight in weights
    ):
        _flatten(self)
        return
    if len({weight.data_ptr() for weight in weights}) != len(weights):
        return  # tied weights have one place in memory, so they cannot lie in cuDNN's order
    with flagos.device_of(weights[0]), torch.no_grad():
        torch._cudnn_rnn_flatten_weight(
            weights,
            (4 if self.bias else 2) + (self.proj_size > 0),
            self.input_size,
            cudnn_rnn.get_cudnn_mode(self.mode),
            self.hidden_size,
            self.proj_size,
            self.num_layers,
            self.batch_first,
            bool(self.bidirectional),
        )


def _run_jitted_on(self: Any, *tensors: torch.Tensor, **kwargs: Any) -> Any:
    """Kernels of torch.cuda.jiterator run on CUDA views."""
    views = [_as_cuda(tensor) for tensor in tensors]
    result = _run_jitted(self, *views, **kwargs)
    if all(view is tensor for view, tensor in zip(views, tensors, strict=True)):
        return result
    if isinstance(result, torch.Tensor):
        return _as_flagos(result)
    return type(result)(_as_flagos(part) for part in result)


def install() -> None:
    """Make them treat flagos tensors as CUDA tensors."""
    setattr(cudnn, "is_acceptable", _cudnn_is_acceptable)  # noqa: B010
    setattr(torch.nn.RNNBase, "flatten_parameters", _flatten_parameters)  # noqa: B010
    setattr(jiterator._JittedFunction, "__call__", _run_jitted_on)  # noqa: B010
