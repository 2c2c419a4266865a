"""Graphs of work that the core's streams capture, with the names and arguments of `torch.cuda`'s."""

from __future__ import annotations

import gc
import weakref
from typing import Any, ClassVar, Literal

import torch

from flagos import _core
from torch_fl.flagos import _graphed_callables
from torch_fl.flagos._lifecycle import _lazy_init, is_initialized
from torch_fl.flagos._stream import Stream, StreamContext, synchronize
from torch_fl.flagos.memory import empty_cache
from torch_fl.native import native

__all__ = [
    "Graph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

Pool = tuple[int, int]
"""Memory that graphs may share: (0, number), as torch's own pools look."""

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}


def _require() -> None:
    """Raise UnsupportedError unless the vendor captures."""
    _lazy_init()
    try:
        torch.ops.flagos.graph_supported()
    except NotImplementedError as error:
        raise _core.UnsupportedError(
            f"torch.flagos.Graph needs stream capture, which the {native().vendor!r} vendor does not have "
            f"({str(error).splitlines()[0]}): {native().why_no_graphs}"
        ) from error


def _number(pool: Any) -> int:
    """The number of the memory; 0 for memory of the graph's own."""
    if pool is None:
        return 0
    if isinstance(pool, tuple) and len(pool) == 2 and pool[0] == 0 and int(pool[1]) > 0:
        return int(pool[1])
    raise ValueError(
        f"{pool!r} is no pool: expected torch.flagos.graph_pool_handle() or the pool() of a graph"
    )


class Graph:
    """A recorded sequence of launches, with the methods of `torch.cuda.CUDAGraph`.

    The memory of tensors made during capture belongs to the graph's pool, and stays as long as the graph. What a
    capture forbids raises UnsupportedError: waiting for the device, copies from and to memory that is not pinned,
    random numbers, and operators that the CPU serves. Raises UnsupportedError on a vendor that captures nothing.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        _require()
        if keep_graph:
            raise _core.UnsupportedError(
                "a graph of the vendor's own library is not to be had: make torch.flagos.Graph() without keep_graph"
            )
        self._address: int = torch.ops.flagos.graph_create()
        self._end = weakref.finalize(self, torch.ops.flagos.graph_destroy, self._address)
        # Graphs give nothing back at the exit of the process, when the device may be gone.
        self._end.atexit = False

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the work of the current stream, which is not the default one."""
        mode = _MODES.get(capture_error_mode)
        if mode is None:
            raise ValueError(
                f"capture_error_mode is {capture_error_mode!r}: expected one of {', '.join(map(repr, _MODES))}"
            )
        torch.ops.flagos.graph_capture_begin(self._address, _number(pool), mode)
        torch.ops.flagos.set_capturing(True)

    def capture_end(self) -> None:
        """End the capture. After a failure the graph is empty."""
        torch.ops.flagos.set_capturing(False)
        torch.ops.flagos.graph_capture_end(self._address)

    def instantiate(self) -> None:
        """Do nothing: a graph can be run once its capture has ended."""

    def replay(self) -> None:
        """Queue the captured work on the current stream."""
        torch.ops.flagos.graph_replay(self._address)

    def reset(self) -> None:
        """Make the graph empty. Its memory is free for other graphs of its pool, and after the last of them for all."""
        torch.ops.flagos.graph_reset(self._address)

    def pool(self) -> Pool:
        """The memory of the graph, for graphs that share it."""
        return (0, torch.ops.flagos.graph_memory(self._address))

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Raise UnsupportedError: a graph would repeat the same random numbers."""
        raise _core.UnsupportedError(
            f"graphs of vendor {native().vendor!r} draw no random numbers, because each replay would repeat them: draw "
            "them before the capture, into a tensor that the graph reads"
        )


class graph:
    """Context manager that records the work submitted inside it into `cuda_graph`.

    The arguments are those of torch.cuda.graph. After an exception inside, the graph is empty and the device as usable
    as before.
    """

    _streams: ClassVar[dict[int, torch.Stream]] = {}

    def __init__(
        self,
        cuda_graph: Graph,
        pool: Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        _require()
        if stream is None:
            device = torch._C._accelerator_getDeviceIndex()
            stream = self._streams.get(device)
            if stream is None:
                stream = self._streams[device] = Stream(torch.device("flagos", device))
        self._graph = cuda_graph
        self._pool = pool
        self._mode = capture_error_mode
        self._context = StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        self._context.__enter__()
        try:
            self._graph.capture_begin(self._pool, self._mode)
        except BaseException:
            self._context.__exit__()
            raise

    def __exit__(self, *exc: Any) -> Literal[False]:
        try:
            self._graph.capture_end()
            if exc[1] is not None:
                self._graph.reset()
        except Exception as error:
            # The error inside is the reason why the capture could not end.
            if exc[1] is None:
                raise
            if hasattr(exc[1], "add_note"):  # from Python 3.11 on
                exc[1].add_note(f"the capture was given up: {str(error).splitlines()[0]}")
        finally:
            self._context.__exit__()
        return False


def graph_pool_handle() -> Pool:
    """A memory pool that several graphs may share."""
    _require()
    return (0, torch.ops.flagos.graph_memory_create())


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Pool | None = None,
) -> Any:
    """Callables that replay graphs of their forward and backward passes.

    Arguments and restrictions are those of torch.cuda.make_graphed_callables: the arguments are tensors of the samples'
    shapes, modules have no hooks yet, and nothing is differentiated twice.
    """
    pool = graph_pool_handle() if pool is None else pool
    return _graphed_callables.make(
        Graph,
        lambda recorded: graph(recorded, pool=pool),
        callables,
        sample_args,
        num_warmup_iters,
        allow_unused_input,
    )


def is_current_stream_capturing() -> bool:
    """True while the current stream is being recorded."""
    # A device that is not initialised has no stream, and asking must not initialise it.
    return is_initialized() and torch.ops.flagos.is_capturing(
        torch._C._accelerator_getDeviceIndex()
    )
