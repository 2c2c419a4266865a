"""Callables that replay recorded graphs, as torch.cuda.make_graphed_callables makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_fl.flagos._stream import Stream, StreamContext, synchronize

Tensors = tuple[torch.Tensor, ...]


Record = Callable[[Any], AbstractContextManager[Any]]
"""Records the work of a block into a graph. All graphs share memory."""


def make(
    new_graph: Callable[[], Any],
    record: Record,
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int,
    allow_unused_input: bool,
) -> Any:
    """The callables in whose place graphs run, made by `new_graph`."""
    if torch.is_autocast_enabled("flagos") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not go with autocast's cache: use torch.autocast(..., cache_enabled=False)"
        )
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    passes = [
        _Pass(new_graph, *both, allow_unused_input) for both in zip(functions, samples, strict=True)
    ]
    synchronize()
    with StreamContext(Stream("flagos")):
        for each in passes:
            each.warm_up(num_warmup_iters)
    synchronize()
    # All share memory, so they are captured in the order in which they will run.
    for each in passes:
        each.capture_forward(record)
    for each in reversed(passes):
        each.capture_backward(record)
    graphed = tuple(each.graphed() for each in passes)
    return graphed[0] if single else graphed


class _Pass:
    """A callable with its graphs, and the tensors that they read and write."""

    def __init__(
        self,
        new_graph: Callable[[], Any],
        function: Callable[..., Any],
        sample: Sequence[Any],
        unused: bool,
    ) -> None:
        self.function = function
        self.sample = sample
        self.allow_unused = unused
        arguments = tuple(pytree.arg_tree_leaves(*sample))
        if not all(isinstance(argument, torch.Tensor) for argument in arguments):
            raise TypeError("sample_args of make_graphed_callables are tensors")
        self.parameters: Tensors = ()
        if isinstance(function, torch.nn.Module):
            _check(function)
            self.parameters = tuple(function.parameters())
        self.num_arguments = len(arguments)
        self.inputs: Tensors = arguments + self.parameters
        self.forward_graph, self.backward_graph = new_graph(), new_graph()

    def _gradients(self, outputs: Sequence[Any], of_outputs: Sequence[Any]) -> Tensors:
        return torch.autograd.grad(
            outputs=tuple(out for out in outputs if out.requires_grad),
            inputs=tuple(tensor for tensor in self.inputs if tensor.requires_grad),
            grad_outputs=tuple(grad for grad in of_outputs if grad is not None),
            only_inputs=True,
            allow_unused=self.allow_unused,
        )

    def warm_up(self, times: int) -> None:
        """Run everything, so that what happens at a first call happens outside of a graph."""
        for _ in range(times):
            outputs = pytree.tree_leaves(self.function(*self.sample))
            grads = _like(outputs)
            if any(grad is not None for grad in grads):
                self._gradients(outputs, grads)

    def capture_forward(self, record: Record) -> None:
        with record(self.forward_graph):
            outputs = self.function(*self.sample)
        leaves, self.structure = pytree.tree_flatten(outputs)
        self.outputs: Tensors = tuple(leaves)

    def capture_backward(self, record: Record) -> None:
        self.output_grads = _like(self.outputs)
        gradients: Tensors = ()
        if any(grad is not None for grad in self.output_grads):
            with record(self.backward_graph):
                gradients = self._gradients(self.outputs, self.output_grads)
        found = iter(gradients)
        self.input_grads = tuple(
            next(found) if tensor.requires_grad and gradients else None for tensor in self.inputs
        )

    def graphed(self) -> Any:
        """The callable in whose place the graphs run; a module is changed itself."""
        node = _node(self)
        structure, parameters = self.structure, self.parameters

        def run(*arguments: Any) -> Any:
            leaves = node.apply(*pytree.arg_tree_leaves(*arguments), *parameters)
            return pytree.tree_unflatten(leaves, structure)

        module = self.function
        if not isinstance(module, torch.nn.Module):
            return run
        training, original = module.training, module.forward

        def forward(*arguments: Any, **named: Any) -> Any:
            # Training and evaluation are different graphs.
            return (run if module.training == training else original)(*arguments, **named)

        module.forward = forward
        return module


def _like(outputs: Sequence[Any]) -> tuple[torch.Tensor | None, ...]:
    """A tensor for the gradient of each output that has one."""
    return tuple(torch.empty_like(out) if out.requires_grad else None for out in outputs)


def _check(module: torch.nn.Module) -> None:
    """Raise for a module that cannot be replaced by graphs."""
    if module._backward_hooks or module._forward_hooks or module._forward_pre_hooks:
        raise RuntimeError(
            "a module of make_graphed_callables has no hooks: register them on the result"
        )
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise RuntimeError(
            "of a module of make_graphed_callables parameters alone are trained, no buffers"
        )


def _node(run: _Pass) -> Any:
    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            # Parameters are the same tensors at each call.
            for ours, given in zip(run.inputs[: run.num_arguments], inputs, strict=False):
                if ours.data_ptr() != given.data_ptr():
                    ours.copy_(given)
            run.forward_graph.replay()
            return tuple(out.detach() for out in run.outputs)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor | None, ...]:
            for ours, given in zip(run.output_grads, grads, strict=True):
                if ours is not None and ours.data_ptr() != given.data_ptr():
                    ours.copy_(given)
            run.backward_graph.replay()
            return tuple(None if grad is None else grad.detach() for grad in run.input_grads)

    return Graphed
