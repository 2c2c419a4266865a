"""Imports TransformerEngine in a process of its own, and reports whether the plan serves its operators."""

from __future__ import annotations

import warnings

from flagos.processes.reports import report


def main() -> None:
    """Reports ``transformer_engine``, with ``error`` when it does not load."""
    # TransformerEngine reports a failing plugin by a warning only; here the warning must be an error.
    warnings.simplefilter("error", RuntimeWarning)
    try:
        import transformer_engine.pytorch
        import transformer_engine_torch as tex
    # The import opens native libraries and may raise any exception.
    except Exception as error:
        report("transformer_engine", error=f"{type(error).__name__}: {error}")
        return
    served = (
        "served by the plan of flagos" if hasattr(tex, "__te_fl_native__") else "its own operators"
    )
    report("transformer_engine", module=served, file=transformer_engine.__file__)


if __name__ == "__main__":
    main()
