"""The report says what the JSON files say."""

from __future__ import annotations

from tests.bench.gpu.report import Facts, markdown
from tests.bench.timing import Measured

FACTS = Facts("2026-11-21", "NVIDIA H200 NVL", "570.1", {"python": "3.12.1", "torch": "2.11.0"})
SPREAD = {"least": 0.9, "median": 1.25, "greatest": 1.5}


def test_it_is_a_section_named_after_date_and_gpu() -> None:
    heading = "## 2026-11-21: operators and models, H200 NVL\n"
    assert markdown(FACTS, None, None).startswith(heading)


def test_operators_and_models_are_told() -> None:
    row = Measured({"cuda": [1000.0, 1000.0, 1000.0], "flagos": [1000.0, 1100.0, 1200.0]}).to_json()
    submit = {"operators": {"add": row}, "geometric_mean": 1.1, "highest": 1.1}
    rate = {"least": 1.0, "median": 12345.0, "greatest": 2.0}
    size = dict.fromkeys(("layers", "hidden", "vocabulary", "prompt", "new_tokens"), 7)
    models = {
        "size": {**size, "batch": 4, "length": 512},
        "rounds": 5,
        "workloads": {
            "generation": {
                "tokens_per_second": {"cuda": rate, "flagos": rate},
                "ratio": SPREAD,
                "checks": {"same tokens": False},
                "notes": {"difference": 0.000123},
            },
            "training": {"failed": "Traceback\nRuntimeError: no"},
        },
    }
    text = markdown(FACTS, submit, models)
    assert "NVIDIA H200 NVL, driver 570.1" in text and "torch 2.11.0" in text
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["add", "1000", "1100", "1.10", "1.00 – 1.20"] in cells
    assert ["generation", "12,345", "12,345", "1.250", "0.900 – 1.500"] in cells
    assert "- generation: same tokens: **no**" in text
    assert "- training: failed: RuntimeError: no" in text


def test_a_part_that_was_not_measured_is_left_out() -> None:
    text = markdown(FACTS, None, None)
    assert "###" not in text
