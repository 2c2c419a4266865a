"""Memory that is released and resumed while the server stays, as trainers that share the device need it.

SGLang does that by torch_memory_saver, which takes pages from under CUDA's addresses. Here the storages give their
memory up and get memory again: tensors, views and layers stay the objects that they are.

A request that cannot be served is refused in the process of the tokenizer, where it gets an answer: an error in the
scheduler would end the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)
_flagos: Any = torch.flagos  # type: ignore[attr-defined]
CACHE, WEIGHTS, GRAPHS = "kv_cache", "weights", "cuda_graph"
_ALL = (CACHE, WEIGHTS, GRAPHS)


# -------------------------------------------------------------------------------- the tokenizer's process


async def ask_to_release(
    original: Callable[..., Any], self: Any, obj: Any, request: Any = None
) -> None:
    """Raises ValueError where nothing can be released, before the scheduler is asked."""
    tags, released = _tags(self, obj), _released(self)
    if self.rid_to_state:
        raise ValueError(
            f"{len(self.rid_to_state)} requests are running: memory is released between requests alone; wait for "
            "them, or abort them"
        )
    if tags & released:
        raise ValueError(f"{', '.join(sorted(tags & released))} is released already: resume it")
    released |= tags
    await original(self, obj, request)


async def ask_to_resume(
    original: Callable[..., Any], self: Any, obj: Any, request: Any = None
) -> None:
    """Raises ValueError for what is not released, before the scheduler is asked."""
    tags, released = _tags(self, obj), _released(self)
    if tags - released:
        raise ValueError(f"{', '.join(sorted(tags - released))} is not released")
    await original(self, obj, request)
    released -= tags


def require(manager: Any) -> None:
    """Raises ValueError while memory is released."""
    if _released(manager):
        raise ValueError(
            f"memory is released ({', '.join(sorted(_released(manager)))}): resume it before requests"
        )


def _released(manager: Any) -> set[str]:
    found: set[str] = vars(manager).setdefault("flagos_released", set())
    return found


def _tags(manager: Any, obj: Any) -> set[str]:
    if not manager.server_args.enable_memory_saver:
        raise ValueError(
            "this server was started without --enable-memory-saver: its memory stays where it is"
        )
    tags = set(obj.tags or _ALL)
    if tags - {*_ALL}:
        raise ValueError(
            f"{', '.join(sorted(map(str, tags - {*_ALL})))}: tags are {', '.join(_ALL)}"
        )
    return tags


# -------------------------------------------------------------------------------- the scheduler's process


def without_saver(original: Callable[..., Any], enable: bool) -> Any:
    """SGLang's adapter that does nothing: torch_memory_saver is for CUDA."""
    return original(False)


def release(original: Callable[..., Any], self: Any, recv_req: Any) -> Any:
    """After SGLang has emptied the cache and put the static state aside, the storages give their memory up."""
    if not self.is_fully_idle():
        from sglang.srt.managers.io_struct import ReleaseMemoryOccupationReqOutput

        logger.error("memory is not released: requests are running")
        return ReleaseMemoryOccupationReqOutput()
    done = original(self, recv_req)
    kept = self.tp_worker.model_runner.server_args.enable_weights_cpu_backup
    for tag in recv_req.tags or _ALL:
        for tensor in _tensors(self, tag):
            backup = tensor.cpu() if tag == WEIGHTS and kept else None
            _emptied.setdefault(tag, []).append((tensor, backup))
    for tensor, _ in (pair for tag in recv_req.tags or _ALL for pair in _emptied.get(tag, ())):
        storage = tensor.untyped_storage()
        # Tensors of one storage find it empty after the first of them.
        _sizes.setdefault(storage._cdata, storage.nbytes())
        storage.resize_(0)
    _flagos.empty_cache()
    return done


def resume(original: Callable[..., Any], self: Any, recv_req: Any) -> Any:
    """The storages get memory again, of zeros, or of the weights that were kept on the host."""
    for tag in recv_req.tags or _ALL:
        for tensor, backup in _emptied.pop(tag, []):
            storage = tensor.untyped_storage()
            nbytes = _sizes.pop(storage._cdata, None)
            if nbytes is not None:
                storage.resize_(nbytes)
            with torch.inference_mode():
                tensor.zero_() if backup is None else tensor.copy_(backup)
    return original(self, recv_req)


_emptied: dict[
    str, list[tuple[Tensor, Tensor | None]]
] = {}  # by tag, with what is kept on the host
_sizes: dict[int, int] = {}  # of the storages that are empty now


def _tensors(manager: Any, tag: str) -> Iterator[Tensor]:
    runner = manager.tp_worker.model_runner
    if tag == WEIGHTS:
        yield from (parameter.data for parameter in runner.model.parameters())
        yield from runner.model.buffers()
    elif tag == CACHE:
        pool = runner.token_to_kv_pool
        yield from (*pool.k_buffer, *pool.v_buffer)
