"""The variables of sglang-plugin-FL, ``SGLANG_FL_*``: understood where flagos has the same choice.

Each other one is reported once, with what to write in its place.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

logger = logging.getLogger(__name__)
PREFIX = "SGLANG_FL_"
_SELECTORS = ("flagos", "vendor", "reference")

RETIRED = {
    "SGLANG_FL_ALLOW_VENDORS": "a route names vendors: `vendor:<name>` in flagos.toml",
    "SGLANG_FL_CONFIG": "write flagos.toml",
    "SGLANG_FL_DENY_VENDORS": "a route names vendors: `vendor:<name>` in flagos.toml",
    "SGLANG_FL_DISPATCH_DEBUG": "set FLAGOS_LOG=dispatch",
    "SGLANG_FL_DISPATCH_LOG": "set FLAGOS_LOG=dispatch",
    "SGLANG_FL_DIST_BACKEND": "collectives run over the process group `flagos`",
    "SGLANG_FL_FLAGOS_BLACKLIST": "set FLAGOS_OP_<name>, or write flagos.toml",
    "SGLANG_FL_FLAGOS_WHITELIST": "set FLAGOS_OP_<name>, or write flagos.toml",
    "SGLANG_FL_OOT_BLACKLIST": "set FLAGOS_OP_<name>, or write flagos.toml",
    "SGLANG_FL_OOT_ENABLED": "unset SGLANG_PLATFORM to serve without flagos",
    "SGLANG_FL_OOT_WHITELIST": "set FLAGOS_OP_<name>, or write flagos.toml",
}


def apply() -> None:
    """Routes operators as the variables say. Raises ValueError for a value that means nothing."""
    import flagos
    from sglang_flagos import operators

    known = [getattr(operators, name).name for name in operators.__all__]
    for op, selectors in routes(known):
        flagos.set_route(op, selectors)
    if _flag("SGLANG_FL_STRICT"):
        flagos.set_strict(True)
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in (
            "SGLANG_FL_PREFER",
            "SGLANG_FL_PER_OP",
            "SGLANG_FL_STRICT",
        ):
            logger.warning(
                "%s has no effect on flagos: %s",
                name,
                RETIRED.get(name, "sglang-plugin-FL reads it, and sglang-flagos does not"),
            )


def routes(known: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The selectors of operators by ``SGLANG_FL_PREFER`` and ``SGLANG_FL_PER_OP``, which goes first."""
    per_op = dict(_per_op(known))
    first = os.environ.get("SGLANG_FL_PREFER", "").strip().lower()
    if first:
        _require("SGLANG_FL_PREFER", first)
        rest = [one for one in _SELECTORS if one != first]
        yield from ((op, [first, *rest]) for op in known if op not in per_op)
    yield from per_op.items()


def _per_op(known: list[str]) -> Iterator[tuple[str, list[str]]]:
    variable = "SGLANG_FL_PER_OP"
    for part in filter(None, (p.strip() for p in os.environ.get(variable, "").split(";"))):
        name, equals, order = part.partition("=")
        selectors = [one.strip() for one in order.split("|")]
        if not equals:
            raise ValueError(f"{variable}: {part!r} is not `operator=backend|backend`")
        for selector in selectors:
            _require(variable, selector)
        op = f"sglang::{name.strip()}"
        if op in known:
            yield op, selectors
        else:
            logger.warning(
                "%s: flagos has no operator %s for SGLang, only %s",
                variable,
                name.strip(),
                ", ".join(one.partition("::")[2] for one in known),
            )


def _require(variable: str, selector: str) -> None:
    if selector not in _SELECTORS:
        raise ValueError(f"{variable}: {selector!r} is none of {', '.join(_SELECTORS)}")


def _flag(name: str) -> bool:
    value = os.environ.get(name, "0")
    if value not in ("", "0", "1"):
        raise ValueError(f"{name}={value}: write 0 or 1")
    return value == "1"
