"""Loads the adapters that are installed, for the commands that list their operators."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

#: What is imported for the operators of a namespace.
ADAPTERS = {"aten": "torch_fl", "lightx2v": "lightx2v_fl.operators"}
#: The extra of the distribution ``flagos`` that installs each.
EXTRAS = {"torch_fl": "torch", "lightx2v_fl": "lightx2v"}


def load_adapters() -> dict[str, str | None]:
    """Imports every installed adapter: its name, and why it could not be loaded (``None``: loaded).

    One that is not installed is listed too, since its operators are missing from what follows.
    """
    return {module.split(".")[0]: _load(module) for module in ADAPTERS.values()}


def _load(module: str) -> str | None:
    package = module.split(".")[0]
    if find_spec(package) is None:
        return f"not installed; pip install 'flagos[{EXTRAS[package]}]'"
    try:
        import_module(module)
    # A broken framework raises anything; the command goes on without it and says so.
    except Exception as error:
        return f"{type(error).__name__}: {error}; run `flagos doctor`"
    return None
