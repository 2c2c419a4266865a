"""Which operators of the vendor's tables a conformance run has reached.

    python -m tests.conformance ... --json results.json
    python -m core.vendors.ascend.tests.reached results.json

An operator counts as reached when a call of it, or of its in-place or out= form, did not fall back. Prints those that
none reached, and fails if there are any that NOT_REACHED does not name with a reason.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

from core.vendors.ascend.tests import simulator, test_rows

CUSTOM = Path(__file__).resolve().parents[1] / "src/kernels/custom"

# Operators that the databases do not call, or whose numbers a comparison lets the CPU draw.
NOT_REACHED = dict.fromkeys(
    (
        *test_rows.CALLS,
        *test_rows.DISTRIBUTIONS,
        *("batch_norm_stats", "batch_norm_elemt", "batch_norm_gather_stats_with_counts"),
        *("fill_.Tensor", "cauchy_", "random_"),
        *("randperm.generator", "randperm.generator_out"),
        *("_fused_adam_.tensor_lr", "_fused_adamw_.tensor_lr", "_fused_sgd_.tensor_lr"),
    ),
    "core/vendors/ascend/tests/test_rows.py",
) | {
    "batch_norm_backward_elemt": "by SyncBatchNorm over several devices: core/vendors/ascend/tests/ranks/trained.py",
    "embedding_renorm_": "core/vendors/ascend/tests/test_layers.py",
    "_amp_foreach_non_finite_check_and_unscale_": "core/vendors/ascend/tests/test_models.py",
    "_amp_update_scale_": "core/vendors/ascend/tests/test_models.py",
}


def operators() -> list[str]:
    """Every operator that has a kernel, as `add.Tensor`."""
    rows = re.findall(r"^([\w.]+)\(", simulator.table("rows.txt"), flags=re.MULTILINE)
    for file in sorted(CUSTOM.glob("*.rs")):
        rows += re.findall(r'c"aten::([\w.]+)"', file.read_text(encoding="utf-8"))
    return rows


def forms(operator: str) -> set[str]:
    """The names under which torch calls an operator: itself, in place, and with out=."""
    base, _, overload = operator.partition(".")
    dotted = f".{overload}" if overload else ""
    out = {f"{base}.out", f"{base}.{overload}_out"} if overload else {f"{base}.out"}
    return {operator, f"{base}_{dotted}", *out}


def reached(results: Path) -> dict[str, int]:
    """How many calls of each operator the device served, by the name torch calls it."""
    served: Counter[str] = Counter()
    for result in json.loads(results.read_text(encoding="utf-8"))["results"]:
        for name, numbers in result.get("counters", {}).items():
            calls, fallbacks = numbers
            served[name.removeprefix("aten::")] += calls - fallbacks
    return {name: count for name, count in served.items() if count > 0}


def main() -> int:
    served = reached(Path(sys.argv[1]))
    known = operators()
    missing = [name for name in known if not any(form in served for form in forms(name))]
    print(f"{len(known) - len(missing)} of {len(known)} operators of the tables were reached")
    for name in missing:
        print(f"  {name}: {NOT_REACHED.get(name, 'NO REASON')}")
    return int(any(name not in NOT_REACHED for name in missing))


if __name__ == "__main__":
    sys.exit(main())
