"""The `flagos` device for PyTorch.

Importing this package registers the device. `import torch` alone does too, through the `torch.backends`
entry point, unless the device is one that torch knows already under another name: then it is registered
when the program first asks for it (see `torch_fl.waiting`). Nothing is initialised until a flagos
device is first used.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_fl.python_kernels import replay as replay


def _autoload() -> None:
    """Entry point of the `torch.backends` group, called by torch at the end of its own import.

    Whatever is broken here, from a missing wheel to a native module that panics, must not make
    `import torch` fail for people who only use the CPU. It becomes a warning, and the reason is raised
    again by `import torch_fl` and by any use of `torch.flagos`.
    """
    if _is_importing(__name__):
        return  # `import torch_fl` imports torch, and registers itself, with errors, right afterwards
    try:
        _register_or_wait()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        _give_up(error)
    else:
        _alias_cuda_if_requested()
        _complete_megatron_if_requested()
        from torch_fl import tools

        for tool in tools.requested():
            tool.program_begins()
    finally:
        if not _complete:
            # The program's own `import torch_fl` must run this module again, to do what is skipped here.
            sys.modules.pop(__name__, None)


def _register_or_wait() -> None:
    from torch_fl import _register

    _register.require_what_is_installed()

    from torch_fl import tools, waiting

    for tool in tools.requested():
        tool.torch_imported()
    if waiting.is_requested():
        _register.register()
    else:
        waiting.install(_ask, _device_module)


def _alias_cuda_if_requested() -> None:
    """Installs the alias if the environment requests it. If that fails, so does `import torch`."""
    from torch_fl import cuda_names

    if cuda_names.is_requested():
        cuda_names.alias_cuda()


def _complete_megatron_if_requested() -> None:
    """As `_alias_cuda_if_requested`. Most programs do not import the module."""
    if os.environ.get("FLAGOS_MEGATRON"):
        from torch_fl.integrations import trainers

        trainers.complete_megatron_if_requested()


def _ask() -> None:
    """Register the device, by the program's own import of this package if it has begun."""
    importlib.import_module(__name__)


def _device_module() -> ModuleType:
    return importlib.import_module("torch_fl.flagos")


def _give_up(error: BaseException) -> None:
    from torch_fl import _unavailable

    try:
        reason = f"{type(error).__name__}: {error}"
    except Exception:
        reason = type(error).__name__  # its text itself raises
    _unavailable.install(reason)
    message = f"the flagos device was not registered. {reason}"
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except Warning:  # warnings are errors in this process, but torch's import must succeed
        print(f"RuntimeWarning: {message}", file=sys.stderr)


def _is_importing(name: str) -> bool:
    """True while the module `name` is being executed for the first time."""
    module = sys.modules.get(name)
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


_complete = False

# While torch is being imported it imports this package for `_autoload` alone.
if not _is_importing("torch"):
    from torch_fl import _register

    _register.register()
    _alias_cuda_if_requested()
    _complete_megatron_if_requested()

    from flagos.routing import route
    from torch_fl._version import __version__
    from torch_fl.aten.routing import (
        counters,
        explain,
        get_registered_ops,
        plan_summary,
        register_impl,
        reset_counters,
        unregister_impl,
    )
    from torch_fl.flaggems import (
        disable_flaggems,
        enable_flaggems,
        is_flaggems_enabled,
    )
    from torch_fl.identity import backend_config_path, library_path, runtime_identity
    from torch_fl.native import native as _native

    def _build_accelerator() -> str:
        """The chip that serves the device; "" for the CPU. The name is PyTorch-Plugin-FL's."""
        return _native().accelerator

    # Importing modules that `_autoload` has loaded does not bind them here.
    globals().update(
        (name.removeprefix(f"{__name__}."), module)
        for name, module in list(sys.modules.items())
        if name.startswith(f"{__name__}.") and name.count(".") == 1
    )
    _complete = True

__all__ = [
    "__version__",
    "backend_config_path",
    "counters",
    "disable_flaggems",
    "enable_flaggems",
    "explain",
    "flagos",
    "get_registered_ops",
    "is_flaggems_enabled",
    "library_path",
    "plan_summary",
    "register_impl",
    "reset_counters",
    "route",
    "runtime_identity",
    "unregister_impl",
]


def __getattr__(name: str) -> object:
    # `torch_fl.flagos` is `torch.flagos`; it is imported late because its modules need a torch whose
    # import is complete, which it is not while torch autoloads this package.
    if name == "flagos":
        return _device_module()
    if name == "replay":
        return importlib.import_module("torch_fl.python_kernels.replay")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
