"""The native code of torch_fl for each torch, told without an import of torch."""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from flagos.adapters import Framework
from flagos.doctor.installation import installed_version


def minor_of(version: str) -> str:
    """The minor line of a version as in torch.__version__: "2.11" of "2.11.0a0+gitabc"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def shims_present() -> dict[str, Path]:
    """The shims of the installed torch_fl by the minor line of their torch, oldest first."""
    spec = find_spec("torch_fl")
    if spec is None or spec.origin is None:
        return {}
    shims = Path(spec.origin).parent / "_shims" / "__init__.py"
    return dict(_alone(shims).present()) if shims.exists() else {}


def framework() -> Framework:
    """The installed torch, and the shim that will serve it."""
    version = installed_version("torch")
    if version is None:
        return Framework("torch", None, "torch is not installed")
    shims = shims_present()
    shim = shims.get(minor_of(version))
    if shim is None:
        built_for = ", ".join(shims) or "no torch: the installation is incomplete"
        return Framework(f"torch {version}", None, f"torch_fl was built for {built_for}")
    return Framework(f"torch {version}", str(Path("torch_fl", "_shims", shim.name)))


def _alone(file: Path) -> ModuleType:
    """The module of a file, without its package: that of torch_fl imports torch."""
    spec = spec_from_file_location("_shims_of_torch_fl", file)
    assert spec is not None and spec.loader is not None  # the file is Python's source
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
