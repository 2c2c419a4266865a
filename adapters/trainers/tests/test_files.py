"""DeepSpeed's asynchronous files fill tensors of the device: over a double of its handle, which leaves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "deepspeed_files.py"
#: What the program's calls return: a call that waits returns how many have ended, and -1 is a missing file.
RETURNED = [0, 0, 2, 0, -1, 2, 0, 2, 0, 2, 0, 2, 1]
#: How many of its tensors are filled after each: those that were waited for.
FILLED = [0, 0, 2, 2, 2, 4, 4, 5, 5, 6, 6, 7]


def check(found: dict[str, Any], filled: bool) -> None:
    """Compares what the program found with what a handle has to do, and whether it fills tensors of a device."""
    assert found["device"].startswith("flagos")
    assert (found["returned"], found["host"], found["written"]) == (RETURNED, True, True)
    assert found["filled"] == [list(range(count if filled else 0)) for count in FILLED]
    assert (found["half"], found["left"]) == (filled, [True, True])


@pytest.mark.parametrize("own", [False, True])
def test_reads_fill_tensors_of_the_device(
    process: Callable[..., Any], tmp_path: Path, own: bool
) -> None:
    program = (
        "import json, runpy, deepspeed\nfrom pathlib import Path\n"
        f"found = runpy.run_path({str(PROGRAM)!r})['found']\n"
        f"print(json.dumps(found(Path({str(tmp_path)!r}), {own})))"
    )
    check(process(program, {"deepspeed": "0.19.8"}, DS_ACCELERATOR="flagos"), filled=not own)
