"""Programs that take turns never make steps at the same time, and each begins as many rounds as the others."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.bench.gpu.turns import VARIABLE, Recorder, Turns, reported

SIDES = ("cuda", "flagos", "beside")
ROUNDS, BLOCK, RANKS = 4, 2, 2


def test_blocks_follow_each_other(tmp_path: Path) -> None:
    begun: list[tuple[int, str]] = []
    running: set[str] = set()

    def program(side: str, rank: int) -> None:
        turns = Turns(str(tmp_path), SIDES, side, BLOCK)
        for round_ in range(ROUNDS):
            turns.wait(round_, RANKS)
            begun.append((round_, side))
            running.add(side)
            assert running == {side}
            if begun.count((round_, side)) == RANKS:
                running.discard(side)
            barriers[side].wait()  # the ranks of a program wait for each other in a step
            turns.done(round_, rank)

    barriers = {side: threading.Barrier(RANKS) for side in SIDES}
    threads = [
        threading.Thread(target=program, args=(side, rank)) for side in SIDES for rank in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    blocks = [begun[n : n + RANKS] for n in range(0, len(begun), RANKS)]
    assert all(len(set(block)) == 1 for block in blocks), begun
    assert [block[0] for block in blocks] == [
        (round_, SIDES[(round_ + place) % 3]) for round_ in range(ROUNDS) for place in range(3)
    ]


def test_a_rank_reports_the_steps_of_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = Turns(str(tmp_path), ("flagos",), "flagos", BLOCK)
    monkeypatch.setenv(VARIABLE, turns.variables()[VARIABLE])
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    recorder = Recorder(lambda: None)
    for step in range(2 * BLOCK):
        assert recorder.step(lambda step=step: step, float) == step  # type: ignore[misc]
    recorder.report(7)
    found = reported(f"first\n{capsys.readouterr().out}last\n")
    assert found is not None and found["losses"] == [0.0, 1.0, 2.0, 3.0] and found["peak"] == 7
    assert len(json.loads(json.dumps(found["seconds"]))) == 2
    assert reported("RESULT no JSON\n") is None
