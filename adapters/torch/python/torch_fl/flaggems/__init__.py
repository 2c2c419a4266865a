"""FlagGems' Triton kernels as implementations of operators on the flagos device.

Every overload of the installed FlagGems is an implementation: named by a route, or switched on here, it serves
its operator. By default native kernels do. `FLAGOS_FLAGGEMS=auto` has those serve that were verified on this
chip (`flagos verify`), in the classes of calls in which they were measured to be faster than the native ones
(`flagos tune`); `flagos explain` says why any other does not.
FlagGems is imported when one of its kernels is first called.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import flagos
from flagos import _core, plan_listeners
from torch_fl.flaggems import presence

# The modules of this package are imported where they are needed: without FlagGems `import torch` does without them.

__all__ = ["disable_flaggems", "enable_flaggems", "is_flaggems_enabled", "overloads"]


def is_flaggems_enabled() -> bool:
    """True when the plan serves at least one operator with a FlagGems implementation."""
    from torch_fl.flaggems import implementations

    return any(
        (entry["winner"] or "").startswith(f"{implementations.BACKEND}.")
        for entry in flagos.plan()["ops"].values()
    )


def overloads() -> list[str]:
    """The overloads of the installed FlagGems, such as `add.Tensor`, sorted; none without FlagGems."""
    from torch_fl.flaggems import implementations

    return sorted(implementations.registered())


def enable_flaggems(
    include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
) -> list[str]:
    """Route operators to FlagGems until `disable_flaggems`; returns which.

    Without `include`, everything FlagGems has that is not known to be wrong on this chip. Names are those
    of overloads (`add.Tensor`), of operators (`add`: every overload and the in-place form), or of
    FlagGems' functions; what is named is routed even when it is known to be wrong. `exclude` takes the
    same names. Raises ValueError for a name FlagGems does not have, RuntimeError without FlagGems.
    """
    from torch_fl.flaggems import implementations

    found = implementations.registered()
    if not found:
        raise RuntimeError(f"FlagGems cannot be used: {implementations.missing()}")
    if (absent := presence.unmet()) is not None:
        raise RuntimeError(absent)
    wanted = set(found) if include is None else _matching(include, found)
    if include is None:
        wanted = {
            name
            for name in wanted
            if implementations.usable(name) and not implementations.failed(name)
        }
    unwanted = set() if exclude is None else _matching(exclude, found)
    chosen = sorted(wanted - unwanted)
    for name in chosen:
        _core.set_route(f"aten::{name}", implementations.BACKEND)
    plan_listeners.published()
    return chosen


def disable_flaggems() -> None:
    """Take back every `enable_flaggems`."""
    from torch_fl.flaggems import implementations

    for name in implementations.registered():
        _core.clear_route(f"aten::{name}")
    plan_listeners.published()


def _matching(names: Iterable[str], found: dict[str, str]) -> set[str]:
    if isinstance(names, str):
        raise TypeError(f"expected a list of names, got the text {names!r}; write [{names!r}]")
    from torch_fl.flaggems.implementations import family

    matched: set[str] = set()
    for name in names:
        plain = name.removeprefix("aten::")
        hits = {o for o, function in found.items() if plain in (o, function)}
        if "." not in plain:
            hits |= {o for o in found if family(o) == family(plain)}
        if not hits:
            known = sorted(set(found) | {o.partition(".")[0] for o in found})
            nearest = difflib.get_close_matches(plain, known, 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ValueError(f"FlagGems has no operator {name!r}{hint}")
        matched |= hits
    return matched
