"""`python -m torch_fl_tools.bisect.plan`: the plan of a process that does nothing, and the versions behind it."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version

from flagos.processes.reports import report


def _versions() -> dict[str, str]:
    found = {}
    for name in ("flagos", "torch-fl", "torch", "triton", "flag_gems"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def main() -> None:
    """Print the report."""
    import torch_fl  # noqa: F401  registers the operators
    from flagos import _core

    plan = hashlib.sha256(_core.plan_lock().encode()).hexdigest()
    report("plan", plan=plan, versions=_versions())


if __name__ == "__main__":
    main()
