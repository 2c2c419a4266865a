"""Graph capture: torch's CUDA graphs, on flagos' streams and generators."""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import torch

from torch_fl.flagos._lifecycle import _lazy_init

__all__ = [
    "Graph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]


class Graph(torch.cuda.CUDAGraph):
    """A recorded sequence of launches, with the methods of `torch.cuda.CUDAGraph`.

    The memory of tensors made during capture belongs to the graph's pool.
    """

    def __new__(cls, keep_graph: bool = False) -> Graph:
        _lazy_init()
        return super().__new__(cls, keep_graph)

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Record random numbers drawn from `generator`, so that each replay draws new ones."""
        if generator.device.type == "flagos":
            generator = torch.ops.flagos.native_generator(generator)
        super().register_generator_state(generator)

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """Begin to record the current stream, as torch.cuda.CUDAGraph does."""
        torch.ops.flagos.prepare_capture()
        super().capture_begin(*args, **kwargs)


def _as_cuda_stream(stream: torch.Stream | None) -> Any:
    if stream is None or isinstance(stream, torch.cuda.Stream):
        return stream
    return torch.cuda.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=1
    )


class graph:
    """Context manager that records the work submitted inside it into `cuda_graph`.

    The arguments are those of torch.cuda.graph; `stream` may be a flagos stream.
    """

    def __init__(
        self,
        cuda_graph: torch.cuda.CUDAGraph,
        pool: Any = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        _lazy_init()
        # The pool needs an id here, to be closed if the capture fails.
        self._pool = torch.cuda.graph_pool_handle() if pool is None else pool
        self._context = torch.cuda.graph(
            cuda_graph,
            pool=self._pool,
            stream=_as_cuda_stream(stream),
            capture_error_mode=capture_error_mode,
        )

    def __enter__(self) -> None:
        torch.ops.flagos.prepare_capture()  # also of a graph that is torch's own
        self._context.__enter__()
        torch.ops.flagos.set_capturing(True)

    def __exit__(self, *exc: Any) -> Literal[False]:
        torch.ops.flagos.set_capturing(False)
        try:
            self._context.__exit__(*exc)
        except RuntimeError as error:
            self._recover()
            if exc[1] is None:
                raise
            # The error inside is the reason why the capture could not end.
            if hasattr(exc[1], "add_note"):  # from Python 3.11 on
                exc[1].add_note(f"the capture was given up: {str(error).splitlines()[0]}")
        return False

    def _recover(self) -> None:
        """End a failed capture, which torch leaves open, so that the process can compute again."""
        # torch may have closed the pool already, depending on what failed.
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self._pool)
        self._context.stream_ctx.__exit__(None, None, None)
        for generator in torch.cuda.default_generators:
            generator.graphsafe_set_state(generator.clone_state())


def graph_pool_handle() -> Any:
    """A memory pool that several graphs may share."""
    _lazy_init()
    return torch.cuda.graph_pool_handle()


def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
    """Callables that replay recorded graphs: torch.cuda.make_graphed_callables."""
    _lazy_init()
    return torch.cuda.make_graphed_callables(*args, **kwargs)


def is_current_stream_capturing() -> bool:
    """True while the current stream is being recorded."""
    return torch.cuda.is_current_stream_capturing()
