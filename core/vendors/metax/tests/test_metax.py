"""The vendor metax as programs see it, over a simulated runtime, beside a torch that is NVIDIA's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.vendors.metax.forwarder import build as forwarder
from core.vendors.metax.simulated import build as simulated
from tests.gpu import metax as on_gpu

# torch_fl is imported once the program has given torch the version of MetaX's.
LATE = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
HIDDEN = ("MACA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD")


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated libmcruntime.so."""
    return simulated.build(tmp_path_factory.mktemp("metax"))


def run(
    *arguments: str, preload: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python arguments` without the variables of this process that concern devices."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in HIDDEN and not name.startswith("FLAGOS_")
    }
    preloaded = {"LD_PRELOAD": str(preload)} if preload is not None else {}
    if preload is not None:
        preloaded["LD_LIBRARY_PATH"] = str(preload.parent)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, **preloaded, **variables},
        capture_output=True,
        text=True,
    )


def row(preload: Path | None = None, **variables: str) -> dict[str, object]:
    """What `flagos devices` says of the vendor."""
    done = run("-m", "flagos", "devices", "--json", preload=preload, **variables)
    vendors = json.loads(done.stdout)["vendors"]
    return next(one for one in vendors if one["name"] == "metax")


def test_devices_are_found_where_the_runtime_is_loaded(runtime: Path) -> None:
    asked = {"FLAGOS_VENDOR": "metax"}
    found = row(runtime, **asked)
    assert (found["devices"], found["chosen"]) == (2, True), found
    both = {"MACA_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert row(runtime, **both, **asked)["devices"] == 1
    assert row(runtime, CUDA_VISIBLE_DEVICES="0", **asked)["devices"] == 1
    hidden = run("-m", "flagos", "devices", preload=runtime, MACA_VISIBLE_DEVICES="", **asked)
    assert "MACA_VISIBLE_DEVICES=``" in hidden.stderr


def test_without_devices_everything_that_is_missing_is_named() -> None:
    assert "this machine has no /dev/mxcd" in str(row()["reason"])
    script = "import torch, torch_fl; torch.empty(1, device='flagos')"
    done = run("-c", script, FLAGOS_VENDOR="metax")
    assert done.returncode != 0
    nowhere = "libmcruntime.so is neither in LD_LIBRARY_PATH nor in /opt/maca/lib"
    for says in ("vendor `metax` cannot be used", "no file /dev/mxcd", nowhere, "install MACA"):
        assert says in done.stderr, done.stderr


def test_nvidias_torch_is_told_to_be_the_wrong_one(runtime: Path) -> None:
    import torch

    done = run("-c", "import torch, torch_fl", preload=runtime, FLAGOS_VENDOR="metax")
    assert done.returncode != 0
    for says in ("MetaX's build of torch", "+metax", "libruntime_cu.so", torch.__version__):
        assert says in done.stderr, done.stderr
    doctor = run("-m", "flagos", "doctor", "--json", preload=runtime, FLAGOS_VENDOR="metax")
    checked = json.loads(doctor.stdout)["checks"]
    adapter = next(check for check in checked if check["name"] == "torch_fl")
    assert "MetaX's build of torch" in adapter["detail"]
    # Installing the same wheels again changes nothing.
    assert "FLAGOS_VENDOR=host" in adapter["fix"] and "reinstall" not in adapter["fix"]


def test_the_checklist_passes(runtime: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    done = run(
        *("-m", "flagos", "vendor", "check", "metax", "--json"),
        preload=runtime,
        SIMULATED_METAX_REPORT=str(report),
    )
    steps = {step["name"]: step for step in json.loads(done.stdout)["steps"]}
    assert not [step for step in steps.values() if step["status"] == "fail"], steps
    names = list(steps)
    assert names.index("open") < names.index("declarations") < names.index("copies-arrive")
    assert "mcDeviceGetAttribute (B): threads of a block 1024" in steps["declarations"]["detail"]
    misuses = report.read_text().splitlines() if report.exists() else []
    # The try of an event without timing, and the suite's own.
    assert set(misuses) <= {"mcEventElapsedTime: an event has no time (refused: 400)"}


def test_a_wrong_declaration_is_a_finding(runtime: Path) -> None:
    """The control: attributes by CUDA's numbering, as of a runtime that renumbers them."""
    folder = runtime.parent / "renumbered"
    folder.mkdir()
    devices = (simulated.SOURCES / "devices.cc").read_text()
    wrong = devices.replace("{16, 104},", "{16, 0},")
    assert wrong != devices
    (folder / "devices.cc").write_text(wrong)
    # Beside this source, where its parts are looked for first.
    whole = folder / "libmcruntime.cc"
    whole.write_text((simulated.SOURCES / whole.name).read_text())
    library = folder / "libmcruntime.so"
    command = [*simulated.COMPILER, f"-I{simulated.SOURCES}", "-o", str(library)]
    subprocess.run([*command, str(whole)], check=True)
    done = run(
        *("-m", "flagos", "vendor", "check", "metax", "--json", "--only", "declarations"),
        preload=library,
    )
    step = next(one for one in json.loads(done.stdout)["steps"] if one["name"] == "declarations")
    assert step["status"] == "fail"
    assert "attribute 16 (multiprocessors) is 0" in step["detail"], step


def test_the_product_is_named_without_opening_the_device(runtime: Path) -> None:
    script = "from flagos import _core; print(_core.product_name('metax'), _core.device_count())"
    done = run("-c", script, preload=runtime, FLAGOS_VENDOR="metax")
    assert done.stdout.split("\n")[0] == "Simulated MXC500 2", done.stderr


# Whose torch it is.


def served(monkeypatch: pytest.MonkeyPatch, version: str, loaded: list[str]) -> tuple[str, ...]:
    from torch_fl.native import cuda_runtime

    found = {Path(path).name: path for path in loaded}
    monkeypatch.setattr(cuda_runtime.torch, "__version__", version)
    monkeypatch.setattr(
        cuda_runtime,
        "_loaded",
        lambda name: next((path for file, path in found.items() if file.startswith(name)), None),
    )
    monkeypatch.setattr(
        cuda_runtime, "_forwards_to", lambda path: "cuda" if "forwarder" in path else None
    )
    return cuda_runtime.vendors()


@pytest.mark.parametrize(
    ("version", "loaded", "expected"),
    [
        ("2.11.0+cu130", ["/x/libcudart.so.13"], ("cuda",)),
        ("2.11.0+cpu", [], ("cuda",)),
        ("2.8.0+metax3.5.3.9", [], ("metax",)),
        ("2.11.0+gitabc.metax3", [], ("metax",)),
        ("2.11.0", ["/opt/maca/lib/libruntime_cu.so", "/opt/maca/lib/libmcruntime.so"], ("metax",)),
        ("2.11.0", ["/opt/maca/lib/libmcruntime.so"], ("metax",)),
        ("2.11.0+cu130", ["/s/libmcruntime.so", "/x/libcudart.so.13"], ("cuda",)),
        ("2.11.0+cu130", ["/forwarder/libmcruntime.so", "/x/libcudart.so.13"], ("cuda", "metax")),
    ],
)
def test_whose_torch_it_is(
    monkeypatch: pytest.MonkeyPatch, version: str, loaded: list[str], expected: tuple[str, ...]
) -> None:
    from torch_fl.native import cuda_runtime

    assert served(monkeypatch, version, loaded) == expected
    for vendor in ("cuda", "metax"):
        assert (cuda_runtime.missing(vendor) is None) == (vendor in expected)
    assert cuda_runtime.missing("another") is None


def test_a_torch_for_the_cpu_is_told_to_be_the_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core has loaded the runtime, to count the devices; this torch computes on none."""
    from torch_fl.native import cuda_runtime

    monkeypatch.setattr(cuda_runtime.torch.version, "cuda", None)
    assert served(monkeypatch, "2.11.0+cpu", ["/opt/maca/lib/libmcruntime.so"]) == ("cuda",)
    said = cuda_runtime.missing("metax")
    assert said is not None
    for says in ("MetaX's build of torch", "2.11.0+cpu", "built without the device type cuda"):
        assert says in said, said


def test_the_wrong_torch_is_told_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_fl.native import cuda_runtime

    served(monkeypatch, "2.8.0+metax3.5.3.9", [])
    said = cuda_runtime.missing("cuda")
    assert said is not None
    assert "FLAGOS_VENDOR=metax" in said


def test_metaxs_torch_selects_the_vendor(runtime: Path) -> None:
    """A torch of MetaX's version, where the vendor has devices; NVIDIA's are not asked for."""
    script = (
        "import torch; torch.__version__ = '2.11.0+metax3.5'\n"
        "from torch_fl.native.description import description; print(description()['name'])\n"
        "print(description()['triton_backend'], description()['flaggems_vendor'])"
    )
    done = run("-c", script, preload=runtime, **LATE)
    assert done.stdout.split() == ["metax", "maca", "metax"], done.stderr


def test_tables_of_verdicts_name_tritons_back_end() -> None:
    from torch_fl.flaggems import tables

    assert (
        tables.file_name("verdicts", "MetaX C500", "5.0.2", "maca")
        == "verdicts.MetaX_C500.maca.flaggems-5.0.2.json"
    )
    nvidia = tables.file_name("verdicts", "NVIDIA H200", "5.0.2", "nvidia")
    assert nvidia == tables.file_name("verdicts", "NVIDIA H200", "5.0.2")


def test_the_launcher_knows_both_back_ends_by_their_names() -> None:
    from torch_fl.launcher import compiled

    def class_of(module: str, name: str) -> type:
        return type(name, (), {"__module__": module})

    nvidia = class_of("triton.backends.nvidia.driver", "CudaDriver")
    maca = class_of("triton.backends.metax.driver", "MacaDriver")
    assert compiled.backend(nvidia) == "nvidia"
    assert compiled.backend(maca) == "maca"
    for kind, name in ((nvidia, "nvidia"), (maca, "maca"), (type("Own", (maca,), {}), "maca")):
        known = compiled.known_driver(kind())
        assert known is not None
        assert known.name == name
    assert compiled.known_driver(class_of("triton.backends.amd.driver", "HIPDriver")()) is None
    assert compiled.known_driver(SimpleNamespace()) is None


# The forwarder.


@pytest.fixture(scope="session")
def forwarders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return forwarder.build(tmp_path_factory.mktemp("forwarder"))


def test_the_forwarder_says_what_it_is(forwarders: Path) -> None:
    """It makes torch's cuda that of both vendors, and Triton's back end NVIDIA's; without a GPU it counts no device."""
    script = (
        "import torch\n"
        "from torch_fl.native import cuda_runtime\n"
        "print(*cuda_runtime.vendors())\n"
        "import ctypes, flagos_metax, pathlib\n"
        "file = pathlib.Path(flagos_metax.__file__).with_name('libflagos_metax.so')\n"
        "library = ctypes.CDLL(str(file))\n"
        "class Host(ctypes.Structure):\n"
        "    _fields_ = [('size', ctypes.c_size_t), ('oldest', ctypes.c_uint32), ('newest', ctypes.c_uint32)]\n"
        "library.flagos_vendor.restype = ctypes.POINTER(ctypes.c_void_p)\n"
        "table = library.flagos_vendor(ctypes.byref(Host(16, 1, 1)), None)\n"
        # The words of the table before its description, and of that before the name of Triton's back end.
        "description = ctypes.cast(table[3], ctypes.POINTER(ctypes.c_char_p))\n"
        "print(description[10].decode())"
    )
    done = run("-c", script, preload=forwarders / "libmcruntime.so", FLAGOS_VENDOR="metax")
    assert done.stdout.splitlines() == ["cuda metax", "nvidia"], done.stderr


def test_the_forwarder_has_every_function(forwarders: Path, runtime: Path) -> None:
    def names(path: Path) -> set[str]:
        said = subprocess.run(
            ["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True
        )
        return {line.split()[-1] for line in said.stdout.splitlines()}

    api = (Path(__file__).parents[1] / "src/api.rs").read_text()
    wanted = {word.split("(")[0].rstrip(";") for word in api.split() if word.startswith("mc")}
    wanted = {word for word in wanted if word.isalnum() and word in names(runtime)}
    assert len(wanted) > 40
    assert not wanted - names(forwarders / "libmcruntime.so")


def test_who_opened_a_library_is_read_of_the_linkers_words() -> None:
    words = (
        "     1:\tfile=libcuda.so.1 [0];  dynamically loaded by /s/nvidia/cu13/lib/libcudart.so.13 [0]\n"
        "     1:\tfile=libcuda.so.1 [0];  needed by /t/cuda_utils.cpython-312.so [0]\n"
        "     1:\tfile=libcuda.so.1 [0];  dynamically loaded by /s/flagos/_core.abi3.so [0]\n"
        "     1:\tfile=libcudart.so.13 [0];  needed by /s/torch/lib/libtorch_cuda.so [0]\n"
    )
    by = [match[2] for match in on_gpu._OPENED.finditer(words)]
    assert len(by) == 3
    assert [path for path in by if on_gpu._OURS.search(path)] == ["/s/flagos/_core.abi3.so"]


def test_who_opens_a_library_is_written_down(forwarders: Path, tmp_path: Path) -> None:
    """Every time, and not the first one alone; libraries are still searched for by their openers' own paths."""
    log = tmp_path / "opens"
    script = (
        "import ctypes, torch\n"
        "for _ in range(3):\n"
        "    ctypes.CDLL('libm.so.6')\n"
        "print(torch.ones(2).sum().item())"
    )
    done = run("-c", script, preload=forwarders / "libopens.so", OPENS_LOG=str(log))
    assert done.stdout == "2.0\n", done.stderr
    lines = [line.split("\t") for line in log.read_text().splitlines()]
    opened = [by for file, by in lines if file == "libm.so.6"]
    assert len(opened) >= 3
    assert all("_ctypes" in by for by in opened)


def test_the_plan_calls_the_kernels_of_metaxs_torch_by_the_vendors_name(
    runtime: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "backends.conf"
    conf.write_text("* = metax | cpu\nsin = cuda | cpu\n")
    script = (
        "import torch; torch.__version__ = '2.11.0+metax3.5'\n"
        "import torch_fl\n"
        "for name in ('aten::mm', 'aten::sin'):\n"
        "    print(torch_fl.explain(name).data['winner'])\n"
        "print(torch._C._get_privateuse1_backend_name())"
    )
    done = run("-c", script, preload=runtime, FLAGOS_BACKEND_CONFIG=str(conf), **LATE)
    # Without kernels of NVIDIA's the route goes on to the CPU's.
    assert done.stdout.split() == ["metax.native", "cpu.fallback", "flagos"], done.stderr
