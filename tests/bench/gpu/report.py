"""Keeps what was measured on a machine with an NVIDIA GPU: `make gpu-bench`.

    python -m tests.bench.gpu.report [--submit FILE] [--models FILE] [--folder FOLDER]

Takes the JSON files of tests.bench.gpu.submit and tests.bench.gpu.models, made on this machine, and enters them into
FOLDER/nvidia.md, by default in docs/benchmarks.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import history, machine
from tests.bench.overhead import table


@dataclass(frozen=True)
class Facts:
    """The machine and the versions that were measured."""

    date: str
    gpu: str
    driver: str
    versions: dict[str, str]

    @classmethod
    def of_this_machine(cls) -> Facts:
        """Raises where there is no NVIDIA device."""
        import torch

        found = machine.versions("flagos", "torch-fl", "torch", "triton", "transformers")
        found["torch"] = torch.__version__  # with the CUDA version it was built for
        return cls(str(datetime.date.today()), machine.gpu(), machine.driver(), found)


def submit_section(measured: dict[str, Any]) -> Iterator[str]:
    """The host's cost of submitting an operator."""
    yield "### Submitting operators"
    yield ""
    yield (
        "64×64 tensors, submitted from Python without waiting for the device; medians, and the ratios "
        "of flagos to CUDA, round by round: median, least and greatest."
    )
    yield ""
    yield from table(
        (
            (
                name,
                *(f"{row['sides'][device]['median']:.0f}" for device in ("cuda", "flagos")),
                f"{row['ratios']['flagos']['median']:.2f}",
                f"{row['ratios']['flagos']['least']:.2f} – {row['ratios']['flagos']['greatest']:.2f}",
            )
            for name, row in measured["operators"].items()
        ),
        ("operator", "cuda, ns", "flagos, ns", "ratio", "rounds"),
    )
    yield ""
    yield (
        f"Geometric mean of the ratios: **{measured['geometric_mean']:.3f}**; "
        f"the highest: {measured['highest']:.3f}."
    )
    yield ""


def models_section(measured: dict[str, Any]) -> Iterator[str]:
    """How fast a whole model is, and whether both devices computed the same."""
    size = measured["size"]
    yield "### Whole models"
    yield ""
    yield (
        f"Qwen3 with random weights in bfloat16: {size['layers']} layers of {size['hidden']}, "
        f"vocabulary {size['vocabulary']:,}. Generation: batch 1, a prompt of {size['prompt']}, "
        f"{size['new_tokens']} new tokens, greedy. Training: batch {size['batch']} × "
        f"{size['length']}, fused AdamW. {measured['rounds']} interleaved rounds; tokens per second, "
        "medians; the ratio of times, flagos over CUDA: median, least and greatest of the rounds."
    )
    yield ""
    ran = {name: item for name, item in measured["workloads"].items() if "ratio" in item}
    yield from table(
        (
            (
                name,
                *(f"{rate['median']:,.0f}" for rate in item["tokens_per_second"].values()),
                f"{item['ratio']['median']:.3f}",
                f"{item['ratio']['least']:.3f} – {item['ratio']['greatest']:.3f}",
            )
            for name, item in ran.items()
        ),
        ("workload", "cuda", "flagos", "ratio", "rounds"),
    )
    yield ""
    for name, item in measured["workloads"].items():
        for status in ("failed", "skipped"):
            if status in item:
                yield f"- {name}: {status}: {item[status].strip().splitlines()[-1]}"
        for check, passed in item.get("checks", {}).items():
            yield f"- {name}: {check}: {'yes' if passed else '**no**'}"
        for note, value in item.get("notes", {}).items():
            yield f"- {name}: {note}: {value:.2g}"
    yield ""


def markdown(facts: Facts, submit: dict[str, Any] | None, models: dict[str, Any] | None) -> str:
    """The whole report."""
    lines = [
        f"## {facts.date}: operators and models, {facts.gpu.removeprefix('NVIDIA ')}",
        "",
        f"{facts.gpu}, driver {facts.driver}. "
        + ", ".join(f"{name} {number}" for name, number in facts.versions.items())
        + ".",
        "",
        "Made by `make gpu-bench`. Both devices take turns in one process.",
        "",
    ]
    if submit is not None:
        lines += submit_section(submit)
    if models is not None:
        lines += models_section(models)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Writes the report and says where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--submit", type=Path, help="what tests.bench.gpu.submit wrote")
    parser.add_argument("--models", type=Path, help="what tests.bench.gpu.models wrote")
    parser.add_argument("--folder", type=Path, default=history.FOLDER)
    options = parser.parse_args()
    submit, models = (
        json.loads(path.read_text()) if path else None for path in (options.submit, options.models)
    )
    if submit is None and models is None:
        parser.error("nothing to report: name --submit or --models")
    facts = Facts.of_this_machine()
    path = history.keep("nvidia", markdown(facts, submit, models), options.folder)
    print(f"written to {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
