"""triton-ascend from 3.2.1 on, whose registry of frameworks flagos is in.

No wheel of it is published for tests, so a double (`newer`) stands for it, on torch itself and the real torch_fl. Where
TRITON_ASCEND_SOURCE names a checkout of triton-ascend, the same programs also run on its driver and registry, over the
rest of 3.2.0's wheel.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from core.vendors.ascend.tests.triton_ascend import wheel
from core.vendors.ascend.tests.triton_ascend.wheel import HERE, Chip

SOURCE = "TRITON_ASCEND_SOURCE"
# Of the checkout, in the place of 3.2.0's.
PARTS = {
    "third_party/ascend/backend/driver.py": "triton/backends/ascend",
    "third_party/ascend/backend/utils.py": "triton/backends/ascend",
    "third_party/ascend/backend/backend_register.py": "triton/backends/ascend",
    "third_party/ascend/backend/npu_utils.cpp": "triton/backends/ascend",
    "python/triton/tools/get_ascend_devices.py": "triton/tools",
}


@pytest.fixture(scope="module", params=["double", "sources"])
def newer(
    request: pytest.FixtureRequest, toolkit: Path, tmp_path_factory: pytest.TempPathFactory
) -> Chip:
    """The chip with the double, or with the checkout's driver."""
    folder = tmp_path_factory.mktemp("newer")
    if request.param == "double":
        if reason := wheel.why_no_chip():
            pytest.skip(reason)
        return Chip(folder / "chip", toolkit, HERE / "newer", sys.executable, real=True)
    if reason := wheel.why_not():
        pytest.skip(reason)
    if SOURCE not in os.environ:
        pytest.skip(f"{SOURCE} names no checkout of triton-ascend, 3.2.1 or later")
    overlay = folder / "overlay"
    shutil.copytree(os.environ[wheel.WHEEL], overlay, symlinks=True)
    for part, place in PARTS.items():
        shutil.copy(Path(os.environ[SOURCE]) / part, overlay / place)
    python = wheel.interpreter()
    assert python is not None
    return Chip(folder / "chip", toolkit, overlay, python, real=wheel.has_torch())


LAUNCH = """
import inspect
from types import SimpleNamespace
from triton.runtime import driver
active = driver.active

def compiled(name, text, locks=2, workspace=64):
    load = active.utils.load_binary
    # Before 3.3 the name has the mode in it.
    whole = (name, text, 0, 0, "aiv") if len(inspect.signature(load).parameters) > 4 else (name + "_aiv", text, 0, 0)
    function = load(*whole)[1]
    src = SimpleNamespace(fn=SimpleNamespace(arg_names=["out", "n"]), constants={}, signature={0: "*fp32", 1: "i32"})
    metadata = SimpleNamespace(
        workspace_size=workspace, lock_num=locks, lock_init_value=0, bs_task_type=0, mix_mode="aiv",
        compile_on_910_95=False, parallel_mode="simd", force_simt_only=False, debug=False, shared=1)
    launcher = active.launcher_cls(src, metadata)
    def launch(out, n, grid=(2, 1, 1)):
        stream = active.get_current_stream(active.get_current_device())
        told = {"kernel_name": name, "tensor_kinds": []}
        launcher(*grid, stream, function, told, None, None, None, out.data_ptr(), n)
    return launch
out = there([0])
"""


def test_flagos_is_the_framework(newer: Chip) -> None:
    newer.run("""
from triton.runtime import driver
active = driver.active
assert active.get_current_device() == 0
from triton.backends.ascend import backend_register, utils
registry = backend_register.backend_strategy_registry._get_instance()
assert utils.backend_policy == "flagos"
assert set(registry.list_methods("flagos")) == set(registry.list_methods("torch_npu"))
ask = utils.get_backend_func
assert ask("get_device_interface") is torch.flagos and ask("get_cc_cmd", build_pch=True) == []
assert ask("get_tensor_params_shape", 1, there([1, 2, 3])) == [[3]]
assert ask("get_current_stream", None) == active.get_current_stream(0) != 0
ask("set_current_device", 1)
assert ask("get_current_device") == torch.flagos.current_device() == 1
assert ask("get_current_stream", 1) == active.get_current_stream() != active.get_current_stream(0)
side = torch.flagos.Stream(device="flagos:1")
with torch.flagos.stream(side):
    assert active.get_current_stream(1) not in (active.get_current_stream(0), 0)
assert ask("get_empty_tensor", 5).data_ptr() != 0
from flagos_ascend.triton_ascend import driver as ours, registry as methods
methods.register(backend_register.backend_strategy_registry)  # again
backend_register.backend_strategy_registry.register("another", "a_new_method")(print)
methods.CATEGORY = "flagos once more"
said = raised(RuntimeError, lambda: methods.register(backend_register.backend_strategy_registry))
assert "a_new_method" in said and "flagos ascend triton" in said, said
""")


def test_a_launch_does_not_wait_and_releases_its_memory(newer: Chip) -> None:
    program = (
        LAUNCH
        + """
launch = compiled("waits", b"sleep 100000\\ntake 8 2 0\\nfill 16 128 5\\nhold 16 128 5")
before = flagos.memory_allocated()
for _ in range(4):
    launch(out, 5)
ran = finished()
assert flagos.memory_allocated() == before
flagos.synchronize()
assert queued() == finished() == 4
print("waited" if ran == 4 else "did not wait", synchronised())
"""
    )
    done = newer.run(program)
    assert done.report == [] and done.output.split()[-4:] == ["did", "not", "wait", "0"]
    # The same program notices a launch that waits.
    assert newer.run(program, TRITON_ENABLE_TASKQUEUE="false").output.split()[-2:] == [
        "waited",
        "4",
    ]


def test_locks_in_the_order_of_the_stream_would_be_too_early(newer: Chip) -> None:
    program = """
launch = compiled("locked", b"take 8 2 0")
for _ in range(100):
    launch(out, 5)
flagos.synchronize()
"""
    assert newer.run(LAUNCH + program).report == []
    change = "from flagos_ascend.triton_ascend import memory; memory.locks = memory.workspace\n"
    assert newer.run(LAUNCH + change + program).report != []


def test_errors_are_raised_and_empty_grids_launch_nothing(newer: Chip) -> None:
    newer.run(
        LAUNCH
        + """
launch = compiled("one", b"fill 24 4000000000 1")
launch(out, 5, (0, 1, 1)); launch(out, 5, (2, 0, 1))
assert queued() == 0
said = raised(RuntimeError, lambda: launch(out, 5))
assert "Triton kernel one was not launched" in said and "107000" in said, said
greedy = compiled("greedy", b"", workspace=1 << 40)
said = raised(torch.OutOfMemoryError, lambda: greedy(out, 5))
assert queued() == 0 and "requested" in said, said
"""
    )


def test_modules_that_name_torch_npu_see_flagos(newer: Chip) -> None:
    decoy = newer.packages / "torch_npu.py"
    decoy.write_text("raise SystemExit('torch_npu was imported')\n")
    try:
        newer.run("""
import triton.runtime.libentry as entry
assert entry.torch_device_fn is torch.flagos and entry.DEVICE_COUNT == 2
assert entry.torch_npu.__name__ == "torch_npu" and "torch_npu" not in sys.modules and not hasattr(torch, "npu")
assert entry.torch.float32 is torch.float32 and entry.torch is not torch
said = raised(AttributeError, lambda: entry.torch_npu.profiler)
assert "TRITON_BENCH_METHOD" in said, said
said = raised(AttributeError, lambda: entry.torch_npu.empty_with_format)
assert "flagos ascend triton" in said, said
try:
    import torch_npu
except SystemExit as error:
    assert "was imported" in str(error)  # everybody else gets what is installed
else:
    raise AssertionError("the decoy was not found")
""")
    finally:
        decoy.unlink()
