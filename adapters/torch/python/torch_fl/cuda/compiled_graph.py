"""A graph that Inductor compiled for CUDA, between flagos tensors: views of the same memory, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import torch
from torch._inductor.codecache import FxGraphCache
from torch._inductor.output_code import CompiledFxGraph, OutputCode
from torch.utils._python_dispatch import _disable_current_modes

from torch_fl._C import Views
from torch_fl.cuda import lent_kernels


def _replace(values: list[Any], where: list[int], view: Callable[[list[Any]], list[Any]]) -> None:
    if where:
        for index, tensor in zip(where, view([values[index] for index in where]), strict=True):
            values[index] = tensor


class OverCuda(OutputCode):
    """A compiled graph that takes and gives flagos tensors.

    `where` are the indices of the arguments on flagos, `static` those that are the program's own for longer than a
    call, `results` those of the results on flagos. `lent` are the operators in it that know flagos alone.
    """

    _as_native = torch.ops.flagos.as_native.default
    _as_flagos = torch.ops.flagos.as_flagos.default

    def __init__(
        self,
        compiled: OutputCode,
        where: list[int],
        static: set[int],
        results: list[int],
        lent: Sequence[str] = (),
    ) -> None:
        super().__init__()
        lent_kernels.lend(lent)
        self._lent = lent
        self._boxed_call = True  # an attribute of the object, which wrappers around it copy
        self.compiled = compiled
        # Views of what the graph may free while it runs are new ones, which go with it.
        self._passing = [index for index in where if index not in static]
        self._staying = [index for index in where if index in static]
        self._results = results
        # One for each call at a time: of threads, or of one inside another.
        self._resting: list[Views] = []
        # Traced FSDP2 frees and refills the storages of parameters inside the graph.
        self._resizes = "resize_storage_bytes_" in getattr(compiled, "source_code", "")

    def __call__(self, inputs: Sequence[Any]) -> Any:
        arguments = list(inputs)
        if isinstance(inputs, list):
            inputs.clear()  # the graph frees its arguments while it runs
        _replace(arguments, self._passing, self._as_native)
        resized = [arguments[index].untyped_storage() for index in self._staying if self._resizes]
        view_set = self._put_views(arguments) if self._staying else None
        try:
            results = list(self.compiled(arguments))
        finally:
            for storage in resized:
                torch.ops.flagos.follow_twin(storage)
        _replace(results, self._results, self._as_flagos)
        if view_set is not None:
            arguments.clear()
            if view_set.rest():
                self._resting.append(view_set)
        return results

    def _put_views(self, arguments: list[Any]) -> Views | None:
        """Put views in the place of the arguments that stay; None if they are new ones, which are not kept."""
        try:
            view_set = self._resting.pop()
        except IndexError:
            pass
        else:
            if view_set.enter(arguments):
                return view_set
        # Nothing but the list has the new views, so that a holder beside it is noticed.
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            tensors = [arguments[index] for index in self._staying]
            address = torch.ops.flagos.views_create(tensors)
            if address == 0:
                _replace(arguments, self._staying, self._as_native)
                return None
            views = torch.ops.flagos.views_tensors(address)
            view_set = Views(address, arguments, self._staying, views, torch._C.TensorBase)
        view_set.replace(arguments)
        return view_set

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_resting": []}  # a copy has views of its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        lent_kernels.lend(self._lent)

    def __getattr__(self, name: str) -> Any:
        if name == "compiled":
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Makes a graph that was read from a file ready to run, as Inductor does with its own."""
        if isinstance(self.compiled, CompiledFxGraph):
            ready, _ = FxGraphCache.cache_hit_post_compile(self.compiled, {}, constants)
            if ready is None:
                raise RuntimeError("Inductor cannot load a compiled graph that it has kept")
            self.compiled = ready
        self.compiled.post_compile(example_inputs, constants, graph_kwargs)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Inductor's own, on the graph."""
        self.compiled.set_triton_bundle(triton_bundle)

    def prepare_for_serialization(self) -> None:
        """Inductor's own, on a copy of the graph: this one may run on."""
        self.compiled = copy(self.compiled)
        self.compiled.prepare_for_serialization()
