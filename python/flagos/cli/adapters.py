"""Loads the adapters that are installed, for the commands that list their operators."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

#: What is imported for the operators of a namespace.
ADAPTERS = {"aten": "torch_fl", "te": "te_fl", "lightx2v": "lightx2v_fl.operators"}
#: The extra of the distribution ``flagos`` that installs each.
EXTRAS = {"torch_fl": "torch", "te_fl": "te", "lightx2v_fl": "lightx2v"}
#: Adapters whose absence is only told to who asks for their operators.
OPTIONAL = {"te_fl", "lightx2v_fl"}


def load_adapters(operator: str = "") -> dict[str, str | None]:
    """Imports every installed adapter: its name, and why it could not be loaded (``None``: loaded).

    One that is not installed is listed too, since its operators are missing from what follows; an
    optional one only when ``operator`` would be its.
    """
    found = {}
    for namespace, module in ADAPTERS.items():
        package = module.split(".")[0]
        if find_spec(package) is not None:
            found[package] = _load(module)
        elif package not in OPTIONAL or operator.startswith(f"{namespace}::"):
            found[package] = f"not installed; pip install 'flagos[{EXTRAS[package]}]'"
    return found


def _load(module: str) -> str | None:
    try:
        loaded = import_module(module)
        # One that registers its operators when they are first used does it for whoever lists them.
        register = getattr(loaded, "register_operators", None)
        if register is not None:
            register()
    # A broken framework raises anything; the command goes on without it and says so.
    except Exception as error:
        return f"{type(error).__name__}: {error}; run `flagos doctor`"
    return None
