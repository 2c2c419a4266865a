"""Registers the `flagos` device with torch, once per process.

Order matters: what can refuse (torch's version, another owner of PrivateUse1) is asked before the
extension is opened, and torch learns the device's name only after its kernels are in place.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import torch

from torch_fl import _shims, _unavailable, whole_files

DEVICE = "flagos"

# Reentrant: the thread that registers takes it again when it reads a device string.
_lock = threading.RLock()
_registering = False
_registered = False
# Set when registering failed after torch had got some of our kernels.
_failure: BaseException | None = None


def register() -> None:
    """Register the device. Idempotent.

    Raises ImportError when there is no native code for the installed torch, when the extension is
    missing, and RuntimeError when another plugin owns PrivateUse1: torch is left
    as it was found, and a later call tries again. What fails after that, such as a configuration
    that is not understood, cannot be undone: every later call raises the same error.
    """
    global _registering, _registered
    with _lock:
        if _registered or _registering:
            return
        if _failure is not None:
            raise _failure
        _registering = True
        try:
            _register()
        finally:
            _registering = False
        _registered = True


def _register() -> None:
    global _failure
    shim = _shims.shim_for(torch.__version__)
    _require_free_privateuse1()
    open_extension(shim)
    try:
        _register_kernels()
        _name_device()
    except BaseException as error:
        _failure = error
        raise


def require_what_is_installed() -> None:
    """Raise ImportError unless there is native code for the installed torch, and it opens."""
    open_extension(_shims.shim_for(torch.__version__))


def _require_free_privateuse1() -> None:
    owner = torch._C._get_privateuse1_backend_name()
    taken = f"another plugin already owns it as {owner!r}"
    if owner == "privateuseone":
        # A plugin that has not named its device yet is recognized by its allocation kernel.
        if not torch._C._dispatch_has_kernel_for_dispatch_key(
            "aten::empty.memory_format", "PrivateUse1"
        ):
            return
        taken = "another plugin already registered kernels for it"
    raise RuntimeError(
        f"torch has one slot for out-of-tree devices (PrivateUse1) and {taken}; "
        "uninstall that plugin, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import torch_fl "
        "before it in the processes that need flagos"
    )


def open_extension(shim: Path) -> None:
    """Open the native modules and the shim. Raises ImportError when one is missing or does not fit."""
    try:
        whole_files.require("flagos._core", "torch_fl._C")
        whole_files.require_whole(shim)
        from flagos import _core  # noqa: F401
        from torch_fl import _C, native  # noqa: F401

        _C.open_shim(str(shim))
    except ImportError as error:
        raise ImportError(
            f"the native modules of flagos could not be opened ({error}); reinstall them together "
            "(pip install --force-reinstall 'flagos[torch]') and run 'flagos doctor'"
        ) from error


def _register_kernels() -> None:
    from flagos import _core
    from torch_fl import _C, tools
    from torch_fl.aten import routing
    from torch_fl.flaggems import presence
    from torch_fl.native import native

    _core.set_shipped_config(str(Path(__file__).with_name("backends.conf")))
    if os.environ.get("FLAGOS_BACKEND_CONFIG"):
        # Torch-FL's generated files route every operator that has a CUDA kernel. The names take 20 ms.
        _core.leave_to_framework(torch._C._dispatch_get_all_op_names())
    native()  # raises for a vendor that this torch cannot reach
    _C.register(_core.api_capsule())
    for tool in tools.requested():
        tool.kernels_registered()
    routing.declare_native_implementations()
    policy = presence.policy()
    # A pack is of FlagGems' operators: without FlagGems it is refused there.
    if presence.folder() is not None or os.environ.get(presence.PACK):
        from torch_fl.flaggems import implementations

        implementations.register()
    if policy == presence.ON_USE:
        admission = tools.load(presence.ON_USE, f"{presence.POLICY}={policy}")
        if presence.folder() is not None:
            implementations.verify_on_use(admission)
    for tool in tools.requested():
        tool.implementations_registered()


def _name_device() -> None:
    from torch_fl import waiting

    _unavailable.uninstall()
    torch.utils.rename_privateuse1_backend(DEVICE)
    from torch_fl import flagos
    from torch_fl.flagos import late_names

    late_names.provide("record", _record)
    late_names.provide("alias_cuda", _alias_cuda)
    waiting.uninstall()
    torch._register_device_module(DEVICE, flagos)
    # `import torch.flagos.amp` must give the module `torch_fl.flagos.amp`, not a second copy of it.
    prefix = flagos.__name__ + "."
    for name, module in list(sys.modules.items()):
        if name.startswith(prefix):
            sys.modules[f"torch.{DEVICE}.{name[len(prefix) :]}"] = module
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)

    from torch_fl import autograd_at_exit
    from torch_fl.integrations import on_import
    from torch_fl.native import native
    from torch_fl.nn import data_parallel
    from torch_fl.runtime import dlpack, profiler, sharing

    native().install()
    for module in (autograd_at_exit, data_parallel, dlpack, profiler, sharing, on_import):
        module.install()


def _record() -> object:
    from torch_fl import tools

    try:
        return tools.load("recording", f"torch.{DEVICE}.record")
    except tools.MissingToolsError as error:
        raise AttributeError(str(error)) from None


def _alias_cuda() -> object:
    from torch_fl import cuda_names

    return cuda_names.alias_cuda
