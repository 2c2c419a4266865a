"""Profiles that an administrator asks for. In SGLang one that cannot begin, or be written, ends the server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

logger = logging.getLogger(__name__)
_flagos: Any = torch.flagos  # type: ignore[attr-defined]


def asked(original: Callable[..., Any], self: Any, recv_req: Any) -> Any:
    """The answer to a request about profiles: where one fails, the reason."""
    from sglang.srt.managers.io_struct import ProfileReqOutput

    try:
        return original(self, recv_req)
    except Exception as error:
        _end(self)
        return ProfileReqOutput(
            success=False, message=f"the profile has ended ({type(error).__name__}: {error})"
        )


def stepped(original: Callable[..., None], self: Any, batch: Any) -> None:
    """Begins and ends a profile by the count of batches, where nobody waits for an answer."""
    try:
        original(self, batch)
    except Exception:
        _end(self)
        logger.exception("the profile has ended")


def _end(manager: Any) -> None:
    """Leaves the manager as if no profile had been asked for."""
    running = vars(manager).get("torch_profiler")
    if running is not None and torch.autograd._profiler_enabled():
        running.stop()
    _flagos.memory._record_memory_history(None)
    manager.__post_init__()
