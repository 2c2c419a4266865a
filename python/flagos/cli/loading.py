"""Has the adapters that are installed register their operators, for the commands that list them."""

from __future__ import annotations

from flagos.adapters import OPERATORS, Contribution, contributions, published
from flagos.messages import described


def load_adapters(operator: str = "") -> dict[str, str | None]:
    """Loads every installed adapter: its package, and why it could not be loaded (``None``: loaded).

    A published one that is not installed is listed too, since its operators are missing from what
    follows; an optional one only when ``operator`` would be its.
    """
    installed = {each.name: each for each in contributions(OPERATORS)}
    found = {}
    for adapter in published():
        contribution = installed.pop(adapter.namespace, None)
        if contribution is not None:
            found[contribution.package] = _register(contribution)
        elif not adapter.optional or operator.startswith(f"{adapter.namespace}::"):
            found[adapter.package] = f"not installed; {adapter.fix}"
    for contribution in installed.values():
        found[contribution.package] = _register(contribution)
    return found


def _register(contribution: Contribution) -> str | None:
    try:
        contribution.load()()
    # A broken framework raises anything; the command goes on without it and says so.
    except Exception as error:
        return f"{described(error)}; run `flagos doctor`"
    return None
