"""Recording: the distinct operator calls that a program makes below autograd and autocast.

A dispatch mode of torch sees them, on any device, also those of backward passes; calls of other threads and kernels
that torch.compile makes are not seen. The elements of tensors are not kept; of integers the least and the greatest are,
once for each distinct call, because an index is right or wrong by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import _foreach_supported_types as of_optimizers
from torch.utils._foreach_utils import _foreach_supported_types as of_tensors
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from torch_fl.calls import Args, Kwargs
from torch_fl_tools.records import facts, files
from torch_fl_tools.records.facts import Call, Unrecordable

_NAMESPACE = "aten::"
_READS_A_VALUE = "aten::_local_scalar_dense"


class Recorder(TorchDispatchMode):
    """Context manager that collects the distinct calls made inside it by this thread, and by its backward passes.

    `on_call` gets each distinct call when it first occurs.
    """

    def __init__(self, on_call: Callable[[Call], None] = lambda call: None) -> None:
        super().__init__()
        self._on_call = on_call
        self._calls: dict[Any, list[Any]] = {}
        self.left_out: dict[str, str] = {}
        """Operators with calls that facts do not describe, and the reason of the first."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """That torch.compile compiles as without the recorder: by default torch compiles nothing under a mode."""
        return True

    def calls(self) -> list[Call]:
        """The distinct calls, in the order in which they came first."""
        return [replace(call, count=count) for call, count in self._calls.values()]

    def is_entered(self) -> bool:
        """Whether the calls of this thread are recorded."""
        return any(mode is self for mode in _get_current_dispatch_mode_stack())

    def forget(self) -> None:
        """Forget the calls until now."""
        self._calls.clear()
        self.left_out.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        # Views launch nothing.
        if schema.name.startswith(_NAMESPACE) and not func.is_view:
            name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
            self._note(name, args, kwargs)
        if schema.name == _READS_A_VALUE and isinstance(args[0], FakeTensor):
            return 1.0 if args[0].is_floating_point() else args[0].dtype == torch.bool or 1
        return func(*args, **kwargs)

    def _note(self, name: str, args: Args, kwargs: Kwargs) -> None:
        try:
            call = replace(facts.describe(name, args, kwargs), autocast=_autocast(args))
        except Unrecordable as error:
            self.left_out.setdefault(name, str(error))
            return
        known = self._calls.get(key := facts.key(call))
        if known is not None:
            known[1] += 1
            return
        if _can_be_read((args, kwargs)):
            call = facts.with_ranges(call, args, kwargs)
        self._calls[key] = [call, 1]
        self._on_call(call)


def _autocast(args: Any) -> str | None:
    """The type of the autocast around the call. Below it torch says that there is none, but for its nesting."""
    torch.autocast_increment_nesting()
    if torch.autocast_decrement_nesting() == 0:
        return None
    device = next((a.device.type for a in args if isinstance(a, torch.Tensor)), "cpu")
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def _can_be_read(value: Any) -> bool:
    """Whether values exist, and may be waited for."""
    for tensor in _tensors(value):
        if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
            return False
        if tensor.device.type != "cpu":
            capturing = getattr(
                torch.get_device_module(tensor.device), "is_current_stream_capturing", None
            )
            if capturing is not None and capturing():
                return False
    return True


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


@contextmanager
def record(path: str | Path, *, meta: bool = False) -> Iterator[Recorder]:
    """Write the distinct operator calls made inside the `with` block to a record, also if an error ends it.

    With `meta` tensors that are made inside have shapes and types and no memory (torch's FakeTensorMode): a model of
    any size is recorded in seconds. A value that the program reads (`loss.item()`) is 1; where a shape depends on
    values (`nonzero`) torch raises DynamicOutputShapeException.
    """
    recorder = Recorder()
    with entered(recorder, meta):
        try:
            yield recorder
        finally:
            files.write(Path(path), recorder.calls())


def entered(recorder: Recorder, meta: bool) -> ExitStack:
    """Begin to record in this thread, until the stack is closed."""
    stack = ExitStack()
    if meta:
        stack.enter_context(_without_memory())
    stack.enter_context(recorder)
    return stack


@contextmanager
def _without_memory() -> Iterator[None]:
    """torch's FakeTensorMode, in which modules can be moved, and optimizers choose as without it.

    `Module.to` exchanges such parameters for others, which torch refuses while anything refers to them weakly. The mode
    itself does, to answer alike for the same tensor, and is right to go on doing so.
    """
    # If the program says nothing of it, an optimizer calls operators of lists for the types of tensors that are here.
    lists: tuple[Any, ...] = (of_optimizers, of_tensors)
    nobody = SimpleNamespace(getweakrefs=lambda tensor: [])
    with (
        mock.patch.object(torch.utils, "weakref", nobody),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        for types in lists:
            types.append(FakeTensor)
        try:
            yield
        finally:
            for types in lists:
                types.remove(FakeTensor)
