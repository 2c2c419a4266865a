"""Operator registry, routing policy and device runtime shared by every FlagOS adapter.

    >>> import flagos
    >>> flagos.devices()[0]["name"]                     # what this machine offers
    >>> print(flagos.explain("aten::mm"))               # which implementation runs, and why
    >>> with flagos.route({"aten::mm": "cpu"}): ...     # for a region of the program

Importing this package imports no framework. The native module ``flagos._core`` is loaded by the
first name that needs it, so that ``flagos doctor`` can report an installation whose module does
not load.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flagos._core import (
        ConfigError,
        DeviceError,
        FlagosError,
        ForkedError,
        InvalidArgumentError,
        Operator,
        OutOfMemoryError,
        UnsupportedError,
        abi_version,
        reload,
    )
    from flagos._core import version as __version__
    from flagos.explanation import (
        Explanation,
        check_lock,
        counters,
        explain,
        lock,
        operators,
        plan,
        reset_counters,
    )
    from flagos.registration import foreign, implementation, register, unregister
    from flagos.routing import clear_route, route, set_route, set_strict, strict
    from flagos.runtime import device_count, devices, initialize, vendors

_HOME = {
    "ConfigError": "flagos._core",
    "DeviceError": "flagos._core",
    "FlagosError": "flagos._core",
    "ForkedError": "flagos._core",
    "InvalidArgumentError": "flagos._core",
    "OutOfMemoryError": "flagos._core",
    "UnsupportedError": "flagos._core",
    "abi_version": "flagos._core",
    "reload": "flagos._core",
    "Operator": "flagos._core",
    "Explanation": "flagos.explanation",
    "check_lock": "flagos.explanation",
    "counters": "flagos.explanation",
    "explain": "flagos.explanation",
    "lock": "flagos.explanation",
    "operators": "flagos.explanation",
    "plan": "flagos.explanation",
    "reset_counters": "flagos.explanation",
    "foreign": "flagos.registration",
    "implementation": "flagos.registration",
    "register": "flagos.registration",
    "unregister": "flagos.registration",
    "clear_route": "flagos.routing",
    "route": "flagos.routing",
    "set_route": "flagos.routing",
    "set_strict": "flagos.routing",
    "strict": "flagos.routing",
    "device_count": "flagos.runtime",
    "devices": "flagos.runtime",
    "initialize": "flagos.runtime",
    "vendors": "flagos.runtime",
}

__all__ = [
    "ConfigError",
    "DeviceError",
    "Explanation",
    "FlagosError",
    "ForkedError",
    "InvalidArgumentError",
    "Operator",
    "OutOfMemoryError",
    "UnsupportedError",
    "__version__",
    "abi_version",
    "check_lock",
    "clear_route",
    "counters",
    "device_count",
    "devices",
    "explain",
    "foreign",
    "implementation",
    "initialize",
    "lock",
    "operators",
    "plan",
    "register",
    "reload",
    "reset_counters",
    "route",
    "set_route",
    "set_strict",
    "strict",
    "unregister",
    "vendors",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = import_module("flagos._core").version
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'flagos' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
