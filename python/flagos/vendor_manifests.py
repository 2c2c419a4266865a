"""Manifests of vendors' libraries that installed packages contribute.

A package contributes the manifest of a vendor by an entry point of the group ``flagos.vendors``, whose name is the
vendor's. Its value is one of

* a package, such as ``my_chip`` or ``my_chip.lib``: the manifest is ``<vendor>.toml`` in its folder. The
  package is found and not imported.
* a function without parameters, such as ``my_chip:manifest``, which returns the path of the manifest.

The native module asks for them before it looks for a vendor for the first time.
"""

from __future__ import annotations

import os
import threading
import warnings
from importlib.util import find_spec
from pathlib import Path

from flagos import _core
from flagos.adapters import Contribution, contributions
from flagos.messages import described

GROUP = "flagos.vendors"

# Reentrant: a contributed function may import a package that asks for the vendor.
_lock = threading.RLock()
_begun = False


def hand_over() -> None:
    """Tells the native module, once per process, where manifests are."""
    global _begun
    with _lock:
        if _begun:
            return
        _begun = True
        _core.find_vendors_in(str(Path(__file__).with_name("vendors")))
        try:
            contributed = contributions(GROUP)
        # The metadata of any installed package may be broken.
        except Exception as error:
            warnings.warn(
                f"vendors of installed packages are not looked for: {described(error)}",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        for each in contributed:
            try:
                _core.contribute_vendor(str(_manifest(each)))
            # A contribution's own code may raise anything. The vendor is then reported with the reason.
            except Exception as error:
                origin = f"entry point {each.name} of {each.distribution}"
                _core.contribute_missing_vendor(each.name, origin, described(error))


def _manifest(contribution: Contribution) -> Path:
    """The path of the contributed manifest."""
    if contribution.entry.attr:
        path = contribution.load()()
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"{contribution.entry.value} returned {path!r}, not the path of a manifest"
            )
        return Path(path)
    top, *rest = contribution.entry.module.split(".")
    spec = find_spec(top)
    if spec is None:
        raise ModuleNotFoundError(f"there is no package {top}")
    name = f"{contribution.name}.toml"
    folders = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"there is no {name} in the package {contribution.entry.module}")
