"""The native code for torch: one library for each minor version, in this folder.

torch's C++ classes change from one minor version to the next. A library that is opened beside another torch than its
own ends in an undefined symbol at best, so the version decides which one is opened, and none is tried.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def minor_of(version: str) -> str:
    """The minor line of a version as in torch.__version__: "2.11" of "2.11.0a0+gitabc"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def present(folder: Path = FOLDER) -> dict[str, Path]:
    """The shims of a folder by the minor line of their torch, oldest first."""
    found = {
        path.stem.removeprefix("torch_").replace("_", "."): path
        for path in folder.glob("torch_*_*.so")
    }
    return dict(sorted(found.items(), key=lambda one: [int(part) for part in one[0].split(".")]))


def shim_for(installed: str, folder: Path = FOLDER) -> Path:
    """The shim for torch `installed`, as in torch.__version__.

    Raises ImportError when there is none, with those that are there and what to install.
    """
    shims, minor = present(folder), minor_of(installed)
    if minor in shims:
        return shims[minor]
    if not shims:
        raise ImportError(
            f"torch_fl has no native code for any torch: {folder} holds no torch_*.so. "
            "Reinstall the wheel (pip install --force-reinstall --no-deps torch-fl), or run `make setup` in a clone"
        )
    *others, last = shims
    raise ImportError(
        f"torch {installed} is installed, and torch_fl was built for torch "
        f"{' and '.join(filter(None, (', '.join(others), last)))}; install one of those "
        f"(pip install 'torch=={last}.*'), or build torch-fl for torch {minor} "
        f"(in a clone, where that torch is supported: TORCH={installed.split('+')[0]} make setup)"
    )
