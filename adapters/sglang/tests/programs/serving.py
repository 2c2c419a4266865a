"""SGLang in a program of the tests, and what the plan served.

``SERVING_OPTIONS`` has further options of `Engine`, in JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

GREEDY = {"temperature": 0.0, "max_new_tokens": 40, "ignore_eos": True}


def engine(folder: str, **options: Any) -> Any:
    """A model of the tests under SGLang; if nothing else is said in float32, in steps of at most 32 tokens."""
    from sglang import Engine

    given = {
        "model_path": folder,
        "dtype": "float32",
        "context_length": 256,
        "chunked_prefill_size": 32,
        "max_total_tokens": 2048,
        "max_running_requests": 4,
        "log_level": "warning",
        **json.loads(os.environ.get("SERVING_OPTIONS", "{}")),
        **options,
    }
    return Engine(**given)


def tokens(made: Any, prompts: list[list[int]], **options: Any) -> list[list[int]]:
    """Greedy tokens of each prompt."""
    outputs = made.generate(input_ids=prompts, sampling_params=GREEDY, **options)
    return [output["output_ids"] for output in outputs]


@contextmanager
def new_weights(made: Any) -> Iterator[None]:
    """Encloses new weights from tensors and from other processes, as SGLang 0.5.23 asks for."""
    if not hasattr(made, "begin_weight_update"):
        yield
        return
    done, message = made.begin_weight_update()
    assert done, message
    yield
    done, message = made.end_weight_update()
    assert done, message


def report(made: Any = None, **found: Any) -> None:
    """Prints a line for the test, with the counters of the scheduler's process, and ends the engine."""
    if made is not None:
        states = made.get_server_info()["internal_states"]
        counted = [state.get("flagos", {}) for state in states]
        found["calls"] = {
            op: sum(one.get(op, {}).get("calls", 0) for one in counted)
            for op in sorted(set().union(*counted))
            if not op.startswith("aten::")
        }
        found["fallbacks"] = {
            op: c["fallbacks"] for one in counted for op, c in one.items() if c["fallbacks"]
        }
        made.shutdown()
    print("REPORT " + json.dumps(found), flush=True)
