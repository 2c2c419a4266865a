"""Loads the adapters that are installed, for the commands that list their operators."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

#: Adapter packages by the namespace of the operators they register.
ADAPTERS = {"aten": "torch_fl", "te": "te_fl"}


def load_adapters() -> dict[str, str | None]:
    """Imports every installed adapter: its name, and why it could not be loaded (``None``: loaded).

    One that is not installed is listed too, since its operators are missing from what follows.
    """
    return {package: _load(package) for package in ADAPTERS.values()}


def _load(package: str) -> str | None:
    if find_spec(package) is None:
        extra = package.removesuffix("_fl")
        return f"not installed; pip install 'flagos[{extra}]'"
    try:
        module = import_module(package)
        # One that registers its operators when they are first used does it for whoever lists them.
        register = getattr(module, "register_operators", None)
        if register is not None:
            register()
    # A broken framework raises anything; the command goes on without it and says so.
    except Exception as error:
        return f"{type(error).__name__}: {error}; run `flagos doctor`"
    return None
