"""Imports torch and then the adapter in a process of its own, reporting after each step.

Runs with ``TORCH_DEVICE_BACKEND_AUTOLOAD=0``, so that no other plugin is to blame for what happens.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from flagos.processes.reports import report


def main() -> None:
    """Reports ``torch`` always, ``adapter`` when ``torch_fl`` is given as an argument."""
    import torch

    report("torch", version=torch.__version__, file=torch.__file__)
    if "torch_fl" not in sys.argv[1:]:
        return
    try:
        import torch_fl
    except ImportError as error:
        # The installation is sound, and this torch is not the one for the devices.
        if (fix := getattr(error, "fix", None)) is None:
            raise
        report("refused", message=str(error), fix=fix)
        return
    from torch_fl import _C, _shims
    from torch_fl.native import native

    report(
        "adapter",
        version=torch_fl.__version__,
        built_for=_C.torch_version(),
        operators=len(_C.registered_ops()),
        file=_C.__file__,
        shim=str(_shims.shim_for(torch.__version__)),
    )
    supported, vendor = bool(torch.ops.flagos.graphs_supported()), native().vendor
    report("graphs", supported=supported, vendor=vendor)
    # Now that operators are known, the names in the configuration can be checked.
    from flagos import _core

    with suppress(_core.ConfigError):  # the check of the plan tells it
        on, source = _core.queue()
        if on:
            report(
                "queue",
                source=source,
                supported=bool(torch.ops.flagos.queue_supported()),
                vendor=vendor,
            )
    try:
        plan = _core.plan()
    except _core.FlagosError as error:
        report("plan", error=str(error), hint=error.hint)
    else:
        blocked = [
            (op, "|".join(entry["selectors"]), entry["decided_by"])
            for op, entry in plan["ops"].items()
            if entry["explicit"] and entry["winner"] is None and not entry["composite"]
        ]
        report("plan", unmatched=plan["unmatched"], blocked=blocked)


if __name__ == "__main__":
    main()
