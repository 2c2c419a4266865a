"""What programs around Torch-FL rely on: names, logs, files and variables of its."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from pathlib import Path

import pytest
import torch

import torch_fl

PACKAGE = Path(torch_fl.__file__).parent

# FlagGems' kernel of an operator, as far as routes and logs see it.
LIKE_FLAGGEMS = """
import torch, torch_fl
torch_fl.register_impl("tanh", lambda a: a, impl_id="test.gems", backend="flaggems")
x = torch.zeros(2, device="flagos")
x.tanh()
"""


@pytest.mark.parametrize(
    ("route", "name"),
    [
        (None, "flaggems"),
        ("flaggems", "flaggems"),
        ("impl:test.gems", "flaggems"),
        ("flagos_python", "flagos_python"),
        ("flaggems_python", "flagos_python"),
    ],
)
def test_flaggems_is_logged_as_it_was_routed(run_python, route, name):
    report = run_python(LIKE_FLAGGEMS, FLAGOS_LOG="dispatch", FLAGOS_OP_tanh=route).stderr
    assert f"[flagos dispatch] tanh -> {name}\n" in report


def test_a_file_that_routes_all_to_python_is_logged_so(run_python, tmp_path):
    conf = tmp_path / "backends.conf"
    conf.write_text("* = flagos_python | vendor | cpu\n")
    report = run_python(
        LIKE_FLAGGEMS, FLAGOS_LOG="dispatch", FLAGOS_BACKEND_CONFIG=str(conf)
    ).stderr
    assert "[flagos dispatch] tanh -> flagos_python\n" in report


DECLINES = """
import torch, torch_fl
def declines(a):
    raise NotImplementedError("not today")
torch_fl.register_impl("tanh", declines, impl_id="test.declines")
torch.zeros(2, device="flagos").tanh()
"""


@pytest.mark.needs("kernels")
@pytest.mark.parametrize("variable", ["FLAGOS_LOG", "FLAGOS_LOG_FALLBACK"])
def test_a_call_that_the_native_kernel_takes_over_is_no_fallback_to_the_cpu(run_python, variable):
    value = "dispatch,fallback" if variable == "FLAGOS_LOG" else "1"
    report = run_python(DECLINES, **{variable: value}).stderr
    assert "[flagos fallback] aten::tanh: not today\n" in report and "cpu_fallback" not in report
    assert ("[flagos dispatch]" in report) is (variable == "FLAGOS_LOG")


@pytest.mark.needs("compiler")
def test_a_call_on_the_cpu_is_logged_as_torch_fl_logs_it(on_chip):
    script = "device(torch.rand(3)).erfinv()\nassert fallbacks()"
    report = on_chip(script, FLAGOS_LOG="fallback").stderr
    assert "[flagos cpu_fallback] aten::erfinv\n" in report and "[flagos dispatch]" not in report


def test_a_misspelled_word_of_the_log_is_an_error(run_python):
    done = run_python(LIKE_FLAGGEMS, fails=True, FLAGOS_LOG="dispach")
    assert "`dispach` is no level" in done.stderr and "dispatch" in done.stderr


def test_the_identity_has_the_keys_of_torch_fl():
    identity = torch_fl.runtime_identity()
    assert identity["provider"] == "torch_fl" and identity["device_type"] == "flagos"
    assert identity["build_accelerator"] == torch_fl._build_accelerator()
    assert identity["torch_version"] == torch.__version__
    assert identity["device_count"] == len(identity["devices"]) == torch.flagos.device_count()
    first = identity["devices"][0]
    assert (first["index"], first["logical_device"]) == (0, "flagos:0")
    assert first["name"] == torch.flagos.get_device_name(0) and first["total_memory"] > 0


@pytest.mark.host
def test_the_host_is_no_chip_of_torch_fl():
    identity = torch_fl.runtime_identity()
    assert (identity["vendor"], identity["accelerator_class"]) == ("unknown", "unknown")


TELL_FILE = "import torch_fl; print(torch_fl.backend_config_path())"


@pytest.mark.parametrize(
    "asked",
    [None, "torch_fl/backends_cuda.conf", "torch_fl/configs/backends_flagos_py.conf"],
)
def test_a_path_of_the_package_finds_its_file(run_python, tmp_path, asked):
    script = f"import os; os.chdir({str(tmp_path)!r})\n{TELL_FILE}"
    report = run_python(script, FLAGOS_BACKEND_CONFIG=asked).stdout.strip()
    found = PACKAGE / "configs" / Path(asked).name if asked else PACKAGE / "backends.conf"
    assert Path(report) == found and found.is_file()


def test_the_path_of_an_own_file_is_told(run_python, tmp_path):
    conf = tmp_path / "mine.conf"
    conf.write_text("mm = cpu\n")
    script = f"import os; os.chdir({str(tmp_path)!r})\n{TELL_FILE}"
    report = run_python(script, FLAGOS_BACKEND_CONFIG="mine.conf").stdout.strip()
    assert Path(report) == conf


GENERATED = """
_conv_depthwise2d = cpu
_cudnn_ctc_loss.Tensor = cpu
_fused_dropout = cpu
sin = none
tanh = cpu  # flaggems
"""


@pytest.mark.host
def test_a_generated_file_may_route_what_flagos_leaves_to_torch(run_python, tmp_path):
    conf = tmp_path / "generated.conf"
    conf.write_text(GENERATED)
    script = """
    import torch, torch_fl
    torch.flagos.init()
    print(torch_fl.explain("tanh"), torch_fl.explain("sin"))
    """
    done = run_python(script, fresh=True, FLAGOS_BACKEND_CONFIG=str(conf))
    assert "decided by: " + str(conf) in done.stdout and "the built-in default" in done.stdout
    report = [line for line in done.stderr.splitlines() if "without effect" in line]
    assert len(report) == 1 and "and 2 more" in report[0], done.stderr
    conf.write_text("_conv_depthwise2 = cpu\n")
    assert (
        "_conv_depthwise2`"
        in run_python(script, fails=True, FLAGOS_BACKEND_CONFIG=str(conf)).stderr
    )


def test_documented_variables_are_told_once(run_python):
    script = (
        "import torch, torch_fl; x = torch.ones(2, device='flagos'); torch.flagos.init(); x + x"
    )
    names = [
        "FLAGOS_DISABLE_FLEX_ATTENTION_COMPAT",
        "FLAGOS_DISABLE_QWENIMAGE_ROPE",
        "FLAGOS_DIST_STAGED_GLOO",
        "FLAGOS_DCU_SKIP_RUNTIME_CHECK",
        "FLAGOS_PPU_MKL_DIR",
        "FLAGOS_TILEOPS_DISABLE_ALL_CACHE",
        "FLAGOS_USE_TILEOPS",
        "FLAGOS_USE_VENDOR_OPS",
    ]
    lines = run_python(script, fresh=True, **dict.fromkeys(names, "1")).stderr.splitlines()
    report = [line.split() for line in lines if "has no effect" in line]
    assert sorted(next(w for w in words if w.startswith("FLAGOS_")) for words in report) == sorted(
        names
    )
    done = run_python(script, fails=True, FLAGOS_TILEOP_FULL="1")
    assert "FLAGOS_TILEOP_FULL" in done.stderr


def current_stream(device: int = -1) -> int:
    ask = ctypes.CDLL(torch_fl.library_path()).flagos_current_stream
    ask.argtypes, ask.restype = [ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)], ctypes.c_int32
    stream = ctypes.c_void_p(1)
    assert ask(device, ctypes.byref(stream)) == 0
    return stream.value or 0


def test_c_programs_ask_for_the_current_stream():
    default = current_stream()
    stream = torch.flagos.Stream()
    with torch.flagos.stream(stream):
        assert current_stream() == current_stream(0) == stream.native_handle != default
        last = torch.flagos.device_count() - 1
        assert current_stream(last) == torch.flagos.current_stream(last).native_handle
        elsewhere: list[int] = []
        thread = threading.Thread(target=lambda: elsewhere.append(current_stream()))
        thread.start()
        thread.join()
        assert elsewhere == [default], "each thread has a current stream of its own"
    assert current_stream() == default


def test_a_device_that_is_not_there_has_no_stream():
    ask = ctypes.CDLL(torch_fl.library_path()).flagos_current_stream
    stream = ctypes.c_void_p(7)
    for device in (-2, 99, 1 << 20):
        assert ask(device, ctypes.byref(stream)) != 0 and stream.value == 7
    assert ask(0, None) != 0


CALLER = """
#include "flagos_torch.h"
long stream_of(int device) {
    void* stream = nullptr;
    return flagos_current_stream(device, &stream) == 0 ? (long)stream : -1;
}
extern "C" long caller(int device) { return stream_of(device); }
"""


@pytest.mark.needs("compiler")
def test_a_library_that_was_linked_without_it_finds_the_function(run_python, tmp_path):
    (tmp_path / "caller.cc").write_text(CALLER)
    library = tmp_path / "libcaller.so"
    include = f"-I{PACKAGE / 'include'}"
    command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-Wall", "-Werror", include]
    command += [str(tmp_path / "caller.cc"), "-o", str(library)]
    subprocess.run(command, check=True, timeout=120)
    run_python(f"""
import ctypes, torch, torch_fl
ctypes.CDLL(torch_fl.library_path(), ctypes.RTLD_GLOBAL)
caller = ctypes.CDLL({str(library)!r}).caller
caller.restype = ctypes.c_long
with torch.flagos.stream(torch.flagos.Stream()) as stream:
    assert caller(0) == torch.flagos.current_stream().native_handle, caller(0)
assert caller(99) == -1
""")
