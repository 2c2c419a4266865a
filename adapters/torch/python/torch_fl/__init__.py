"""The `flagos` device for PyTorch.

Importing this package registers the device; `import torch` alone does too, through the
`torch.backends` entry point. Nothing is initialised until a flagos device is first used.
"""

from __future__ import annotations

import sys
import warnings


def _autoload() -> None:
    """Entry point of the `torch.backends` group, called by torch at the end of its own import.

    A failure here would make `import torch` fail for people who only use the CPU, so it becomes a
    warning, and the reason is raised again by `import torch_fl` and by any use of `torch.flagos`.
    """
    if _is_importing(__name__):
        return  # `import torch_fl` brought torch in and registers, loudly, as soon as it returns
    from torch_fl import _register, _unavailable

    try:
        _register.register()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        _unavailable.install(reason)
        sys.modules.pop(__name__, None)  # the next `import torch_fl` runs again, and raises
        warnings.warn(
            f"the flagos device was not registered. {reason}", RuntimeWarning, stacklevel=2
        )


def _is_importing(name: str) -> bool:
    """True while the module `name` is being executed for the first time."""
    module = sys.modules.get(name)
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


# torch imports this package while it is itself being imported; it then calls `_autoload`, which is
# therefore defined before anything here can import torch.
_imported_by_torch = _is_importing("torch")

if not _imported_by_torch:
    from torch_fl import _register

    _register.register()

from flagos.routing import route  # noqa: E402
from torch_fl._version import __version__  # noqa: E402
from torch_fl.flaggems import (  # noqa: E402
    disable_flaggems,
    enable_flaggems,
    is_flaggems_enabled,
)
from torch_fl.routing import (  # noqa: E402
    counters,
    explain,
    get_registered_ops,
    plan_summary,
    register_impl,
    reset_counters,
    unregister_impl,
)

__all__ = [
    "__version__",
    "counters",
    "disable_flaggems",
    "enable_flaggems",
    "explain",
    "flagos",
    "get_registered_ops",
    "is_flaggems_enabled",
    "plan_summary",
    "register_impl",
    "reset_counters",
    "route",
    "unregister_impl",
]


def __getattr__(name: str) -> object:
    # `torch_fl.flagos` is `torch.flagos`; it is imported late because its modules need a torch that
    # has finished importing, which is not so while torch autoloads this package.
    if name == "flagos":
        import importlib

        return importlib.import_module("torch_fl.flagos")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
