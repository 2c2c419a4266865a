"""Registration of the operators of installed adapters, for the commands that list operators."""

from __future__ import annotations

from flagos.adapters import OPERATORS, Contribution, contributions, published
from flagos.messages import described


def load_adapters(operator: str = "") -> dict[str, str | None]:
    """Loads every installed adapter. Returns package → reason why it is not loaded (``None``: loaded).

    The result includes published adapters that are not installed, because their operators are missing; an
    optional adapter only when ``operator`` is in its namespace.
    """
    installed = {each.name: each for each in contributions(OPERATORS)}
    found = {}
    for adapter in published():
        if adapter.namespace is None:
            continue
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
    # A broken framework may raise any exception. The command continues and reports it.
    except Exception as error:
        return f"{described(error)}; run `flagos doctor`"
    return None
