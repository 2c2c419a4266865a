"""The build of a wheel with a vendor's library, for the `setup.py` of a vendor's crate.

cargo compiles the crate that lies beside `setup.py`. `CARGO_BUILD` is the command, `cargo build` by default, and
`CARGO_BUILD_TARGET` its target: `cargo-zigbuild zigbuild` and `aarch64-unknown-linux-gnu.2.28` make a library for
another machine. The wheel is for every Python 3 of the target's platform.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


class WithLibrary(Distribution):
    """A distribution that is not Python alone."""

    def has_ext_modules(self) -> bool:
        """Whether the wheel is of one platform."""
        return True


class BuildLibrary(build_py):
    """Copies the package, and then the library beside its manifest."""

    def run(self) -> None:
        """Compile the crate."""
        super().run()
        (package,) = (name for name in self.distribution.packages if "." not in name)
        name = f"lib{package}.so"
        shutil.copy(_compiled(name), Path(self.build_lib, package, name))


class AnyPython(bdist_wheel):
    """Names the wheel for any Python 3, because the library knows none."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform."""
        target = os.environ.get("CARGO_BUILD_TARGET")
        native = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return "py3", "none", native if target is None else f"linux_{target.partition('-')[0]}"


def _compiled(name: str) -> Path:
    """The library of the crate in this folder. Raises the error of cargo, which has said what is wrong."""
    command = shlex.split(os.environ.get("CARGO_BUILD", "cargo build"))
    arguments = ["--release", "--locked", "--lib", "--message-format=json-render-diagnostics"]
    target = os.environ.get("CARGO_BUILD_TARGET")
    if target is not None:
        # Named here: cargo itself knows no target with the version of a glibc.
        arguments += ["--target", target]
    environment = {name: of for name, of in os.environ.items() if name != "CARGO_BUILD_TARGET"}
    done = subprocess.run(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    messages = (json.loads(line) for line in done.stdout.splitlines())
    files = [Path(file) for message in messages for file in message.get("filenames", ())]
    return next(file for file in files if file.name == name)


def build() -> None:
    """The body of `setup.py`."""
    commands = {"build_py": BuildLibrary, "bdist_wheel": AnyPython}
    setup(distclass=WithLibrary, cmdclass=commands)
