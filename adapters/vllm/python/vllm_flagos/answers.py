"""The answers of the ranks of a call, of which vLLM leaves the rest unread after the first failure.

The next call would get them as its own: after an update with a wrong shape, each call the answer of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PATIENCE = 60  # seconds for a rank whose answer nobody waits for


class Answers(list[Any]):
    """Queues of answers, each of which is read in a loop over them, also where the loop ends before."""

    def __iter__(self) -> Iterator[Any]:
        rest = list(super().__iter__())
        try:
            while rest:
                yield rest.pop(0)
        finally:
            for queue in rest:
                queue.dequeue(timeout=_PATIENCE)


def install() -> None:
    """Gives vLLM's executor of several processes such queues. Idempotent."""
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    own = MultiprocExecutor._init_executor
    if getattr(own, "_of_flagos", False):
        return

    def init_executor(self: Any) -> None:
        own(self)
        self.response_mqs = Answers(self.response_mqs)

    init_executor._of_flagos = True  # type: ignore[attr-defined]
    MultiprocExecutor._init_executor = init_executor
