"""Runs the portable wheels on an emulated aarch64: python -m tests.emulated 2.11 2.15 (`make dist-smoke`).

For each torch a folder gets what `pip install 'flagos[torch]'` installs on such a machine: the wheels in dist/portable,
torch's own for aarch64, and what it needs. `program.py` runs there, and the folder, of some 4 GB, is removed. Python is
Debian's, of the release that this machine has, in a folder that is kept. The emulator shows the files of this machine
where that folder has none, so it gets a /proc/cpuinfo of the emulated processor: torch's library cpuinfo ends in a
segmentation fault over that of another kind.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target/emulated"
PROGRAM = Path(__file__).with_name("program.py")
EMULATOR, DEBIAN, PROCESSOR = "qemu-aarch64", "arm64", "aarch64"
# One of the emulator's models, and how Linux tells it (Arm's Neoverse N1 Technical Reference Manual, MIDR_EL1).
MODEL = "neoverse-n1"
CPUINFO = """\
processor\t: {number}
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
NEEDED = {
    EMULATOR: "on Debian: apt-get install qemu-user",
    "apt-get": "Python for aarch64 comes from Debian's packages",
    "dpkg-deb": "Python for aarch64 comes from Debian's packages",
}
PLATFORMS = [f"manylinux2014_{PROCESSOR}", *(f"manylinux_2_{n}_{PROCESSOR}" for n in range(17, 29))]


def system(folder: Path) -> Path:
    """Python in a system for aarch64. It is unpacked into `folder` if it is not there."""
    interpreter = folder / "usr/bin/python3"
    if not interpreter.exists():
        shutil.rmtree(folder, ignore_errors=True)
        state = folder.with_name(f"{folder.name}.apt")
        for needed in ("lists/partial", "archives/partial"):
            (state / needed).mkdir(parents=True, exist_ok=True)
        (state / "status").touch()  # nothing is installed there
        options = [
            f"APT::Architecture={DEBIAN}",
            f"APT::Architectures={DEBIAN}",
            "APT::Install-Recommends=false",
            f"APT::Sandbox::User={os.environ.get('USER', 'root')}",  # the folder is the caller's
            f"Dir::State={state}",
            f"Dir::State::status={state}/status",
            f"Dir::Cache={state}",
        ]
        apt = ["apt-get", "-qq", *(part for option in options for part in ("-o", option))]
        run([*apt, "update"])
        # torch brings everything else that it needs.
        run([*apt, "--yes", "--download-only", "install", "python3", "libstdc++6"])
        for name in ("bin", "lib", "sbin"):  # links that no package has
            (folder / "usr" / name).mkdir(parents=True)
            (folder / name).symlink_to(f"usr/{name}")
        for package in sorted(state.glob("archives/*.deb")):
            run(["dpkg-deb", "--extract", package, folder])
        shutil.rmtree(state)
    described = folder / "proc/cpuinfo"
    described.parent.mkdir(exist_ok=True)
    described.write_text("".join(CPUINFO.format(number=n) for n in range(os.cpu_count() or 1)))
    return interpreter.resolve()


def run(command: list[str | Path]) -> None:
    """Runs it. Raises CalledProcessError where it fails, as it has told itself."""
    subprocess.run(command, check=True)


def install(minor: str, python: str, wheels: Path, folder: Path) -> None:
    """Puts the torch of that minor, and flagos from `wheels`, into `folder`."""
    platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--only-binary=:all:",
    ]
    pip += ["--python-version", python, *platforms, "--target", folder]
    pip += ["--no-compile"]  # this Python is not that one
    # The versions of what torch brings are those that it was tested with.
    pip += ["--constraint", ROOT / f"requirements/torch-{minor}.txt"]
    run([*pip, "--find-links", wheels, "flagos[torch]"])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("torches", nargs="+", metavar="MINOR", help="such as 2.15")
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist/portable")
    parser.add_argument("--keep", action="store_true", help="do not remove what was installed")
    arguments = parser.parse_args()
    for tool, why in NEEDED.items():
        if shutil.which(tool) is None:
            sys.exit(f"dist-smoke: {tool} was not found on PATH ({why})")
    if not list(arguments.wheels.glob(f"torch_fl-*_{PROCESSOR}.whl")):
        sys.exit(f"dist-smoke: no torch_fl for {PROCESSOR} in {arguments.wheels}: run 'make dist'")
    try:
        interpreter = system(FOLDER / "system")
        failed = [minor for minor in arguments.torches if not passes(minor, interpreter, arguments)]
    except subprocess.CalledProcessError as error:
        sys.exit(f"dist-smoke: {error}")
    if failed:
        sys.exit(f"dist-smoke: failed on {PROCESSOR} with torch {', '.join(failed)}")


def passes(minor: str, interpreter: Path, arguments: argparse.Namespace) -> bool:
    """Whether the program ends well with that torch; it tells what it found."""
    folder = FOLDER / minor
    shutil.rmtree(folder, ignore_errors=True)
    try:
        python = interpreter.name.removeprefix("python")
        install(minor, python, arguments.wheels, folder)
        print(f"-- torch {minor}, Python {python}, {PROCESSOR} emulated", flush=True)
        begun = time.monotonic()
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "2"}
        command = [EMULATOR, "-cpu", MODEL, "-L", interpreter.parents[2], interpreter, PROGRAM]
        ended = subprocess.run(command, env=variables, check=False).returncode
        print(f"-- ended with {ended} after {time.monotonic() - begun:.0f} s", flush=True)
        return ended == 0
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
