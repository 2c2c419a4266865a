"""Answers of ranks after one that failed."""

from __future__ import annotations

from collections import deque

import pytest

from vllm_flagos.answers import Answers

pytestmark = pytest.mark.host


class Queue(deque[str]):
    """Of one rank."""

    def dequeue(self, timeout: float | None = None) -> str:
        return self.popleft()


def call(queues: Answers) -> list[str]:
    """As vLLM reads them."""
    found = []
    for queue in queues:
        answer = queue.dequeue()
        if answer.startswith("error"):
            raise RuntimeError(answer)
        found.append(answer)
    return found


def test_the_answers_of_a_call_are_its_own() -> None:
    queues = Answers([Queue(["error", "1"]), Queue(["error", "2"]), Queue(["error", "3"])])
    with pytest.raises(RuntimeError, match="error"):
        call(queues)
    assert call(queues) == ["1", "2", "3"]


def test_a_rank_after_the_first_fails() -> None:
    queues = Answers([Queue(["0", "1"]), Queue(["error", "2"]), Queue(["error", "3"])])
    with pytest.raises(RuntimeError, match="error"):
        call(queues)
    assert call(queues) == ["1", "2", "3"] and queues[1] == Queue()
