"""Programs one after the other: what differs is confirmed, made short and counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .pool import Died, Worker
from .program import TRIED, Step, script
from .reduce import reduce

_SCRIPTS_PER_SIGNATURE = 1


@dataclass
class Finding:
    """One difference: where it was seen first, how often, and the shortest program that shows it."""

    seed: int
    signature: str
    messages: list[str]
    steps: list[Step]
    script: str
    times: int = 1


@dataclass
class Session:
    """Runs programs on the CPU and on a device."""

    device: str = "flagos"
    plugin: str = "torch_fl"
    control: str = ""
    turns: int = 0  # of each program, with automatic graphs beside none; 0: once, beside the CPU
    programs: int = 0
    steps: int = 0
    raised: int = 0
    followed: int = 0  # calls of programs in turns
    unsteady: Counter[str] = field(default_factory=Counter)  # the CPU differs from itself
    crashes: Counter[str] = field(default_factory=Counter)  # the CPU alone dies, too
    findings: dict[str, Finding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.worker = Worker(self.plugin)

    @property
    def devices(self) -> list[str]:
        return [self.device if self.turns else "cpu", self.device]

    def run(self, seed: int) -> None:
        """Runs the program of one seed and keeps what it shows."""
        self.programs += 1
        try:
            result = self._ask(seed=seed)
        except Died as death:
            self._dead(seed, death)
            return
        self.steps += len(result["steps"])
        self.raised += len(result["raised"])
        if not result["differences"]:
            return
        steps = [Step(**step) for step in result["steps"]]
        first = result["differences"][0]
        if not self.control and self._cpu_differs_from_itself(steps):
            self.unsteady[first["step"]] += 1
            return
        self._found(seed, steps, result)

    def _ask(self, **request: Any) -> dict[str, Any]:
        turns = {"turns": self.turns} if self.turns else {}
        answer = self.worker.ask(
            {"devices": self.devices, "control": self.control, **turns, **request}
        )
        self.followed += answer["followed"]
        return answer

    def _cpu_differs_from_itself(self, steps: list[Step]) -> bool:
        listed = [step.to_json() for step in steps]
        for _ in range(2):
            try:
                again = self._ask(steps=listed, devices=["cpu", "cpu"], perturb=True, control="")
            except Died:
                return True
            if again["differences"]:
                return True
        return False

    def _found(self, seed: int, steps: list[Step], result: dict[str, Any]) -> None:
        first = result["differences"][0]
        signature = f"{first['step']}: {first['kind']}"
        if signature in self.findings:
            self.findings[signature].times += 1
            return

        def shows(fewer: list[Step]) -> bool:
            try:
                found = self._ask(steps=[step.to_json() for step in fewer])["differences"]
            except Died:
                return False
            return any(f"{each['step']}: {each['kind']}" == signature for each in found)

        short = reduce(steps, shows) if shows(steps) else steps
        again = self._ask(steps=[step.to_json() for step in short])
        shown = again["differences"] or result["differences"]
        messages = [f"{each['kind']}: {each['message']}" for each in shown[:5]]
        if not again["differences"]:
            messages.append("not seen when the steps are run again: the whole program is below")
        title = f"Seed {seed}, {signature}."
        text = script(short, again["raised"], title, self.device, self.turns)
        self.findings[signature] = Finding(seed, signature, messages, short, text)

    def _dead(self, seed: int, death: Died) -> None:
        """A worker died: is it the device's side alone?"""
        begun = [Step(**step) for step in death.begun]
        if begun and begun[-1].name == TRIED:
            self.crashes[begun[-1].text.partition(",")[0]] += 1
            return
        steps = [step for step in begun if step.name != TRIED]
        last = steps[-1].name if steps else "the start"
        self.steps += len(steps)
        if self._dies(steps, ["cpu"]) or self._dies(steps, ["cpu", "cpu"]):
            self.crashes[last] += 1
            return
        signature = f"{last}: {death.how}"
        if signature in self.findings:
            self.findings[signature].times += 1
            return
        messages = [f"the process {death.how}, that of the CPU alone goes on", death.said]
        short = steps
        if self._dies(steps, self.devices):
            short = reduce(steps, lambda fewer: self._dies(fewer, self.devices), tries=15)
        text = script(
            short, range(len(short)), f"Seed {seed}, {signature}.", self.device, self.turns
        )
        self.findings[signature] = Finding(seed, signature, messages, short, text)

    def _dies(self, steps: list[Step], devices: list[str]) -> bool:
        try:
            self._ask(steps=[step.to_json() for step in steps], devices=devices)
        except Died:
            return True
        return False
