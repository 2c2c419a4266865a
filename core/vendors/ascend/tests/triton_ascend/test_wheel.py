"""triton-ascend 3.2.0 as its wheel has it, on flagos and the simulated chip."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from core.vendors.ascend.tests.triton_ascend.wheel import Chip

ADD = """
import kernels
x, y = there(range(100)), there([1] * 100)
out = there([0] * 100)
def launch(kernel):
    kernel[(4,)](x, y, out, 100, BLOCK=32)
"""


def contents(folder: Path) -> str:
    """A hash of every file's name and bytes."""
    hashed = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        hashed.update(str(file.relative_to(folder)).encode())
        if file.is_file():
            hashed.update(file.read_bytes())
    return hashed.hexdigest()


def test_it_is_imported_without_torch_npu_and_unchanged(chip: Chip, tmp_path: Path) -> None:
    """An installed torch_npu is not imported, and nobody else is told that there is one."""
    decoy = chip.packages / "torch_npu.py"
    decoy.write_text("raise SystemExit('torch_npu was imported')\n")
    installed = contents(chip.wheel)
    try:
        chip.run("""
import triton.backends.ascend.driver, triton.backends.ascend.compiler
import triton.runtime.libentry
assert triton.__version__ == "3.2.0"
assert triton.runtime.libentry.torch_device_fn is torch.flagos
assert triton.runtime.libentry.DEVICE_COUNT == 2
assert not hasattr(torch, "npu") and "torch_npu" not in sys.modules
import triton.language.extra.cann.libdevice as functions  # FlagGems' name of it
import triton.language.extra.ascend.libdevice as same
assert functions is same and same.__spec__.name == "triton.language.extra.ascend.libdevice"
from triton.runtime import driver
assert type(driver.active._obj).__name__ == "NoneType"  # CANN is not needed yet
assert driver.active.get_current_target().arch == "Ascend910B3"
assert driver.active.get_device_interface() is torch.flagos
driver.reset_active()
assert driver.active.get_current_device() == 0
""")
    finally:
        decoy.unlink()
    assert contents(chip.wheel) == installed


def test_triton_may_be_imported_before_torch(chip: Chip) -> None:
    chip.run(
        ADD
        + """
launch(kernels.add)
assert back(out) == [index + 1 for index in range(100)], back(out)
import triton.testing
assert triton.testing.__dict__["__builtins__"]["__import__"].__module__ == "flagos_ascend.triton_ascend.names"
""",
        before="import triton, sys; assert 'torch' not in sys.modules\n",
    )


def test_a_kernel_computes(chip: Chip) -> None:
    done = chip.run(
        ADD
        + """
launch(kernels.add)
assert back(out) == [index + 1 for index in range(100)], back(out)
blocks, arguments = ctypes.c_uint32(), (ctypes.c_uint8 * 64)()
assert last(ctypes.byref(blocks), arguments, ctypes.c_uint64(64)) == 64 and blocks.value == 4
words = [int.from_bytes(bytes(arguments[at : at + 8]), "little") for at in range(0, 64, 8)]
assert words[0] == 0xC2C0 and words[1:3] == [0, 0]
assert words[3:6] == [x.data_ptr(), y.data_ptr(), out.data_ptr()]
assert words[6:] == [100 | 4 << 32, 1 | 1 << 32]
"""
    )
    assert done.report == []


def test_a_kernel_is_compiled_before_the_driver_is_used(chip: Chip, tmp_path: Path) -> None:
    """For a target that the program names."""
    chip.run(
        """
import kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
source = ASTSource(kernels.add, signature=types, constants={"BLOCK": 32})
made = triton.compile(source, target=GPUTarget("npu", "Ascend910B3", 0))
assert made.asm["npubin"] == b"add 40 24 32 48"
from triton.runtime import driver
assert driver.active._obj is None
""",
        TRITON_CACHE_DIR=str(tmp_path),
    )


WAITS = (
    ADD
    + """
launch(kernels.slow_add)
flagos.synchronize()
count = finished()
launch(kernels.slow_add)
launch(kernels.slow_add)
ran = finished() - count
flagos.synchronize()
assert finished() - count == 2 and back(out) == [index + 1 for index in range(100)]
print("waited" if ran == 2 else "did not wait", synchronised())
"""
)


def test_a_launch_does_not_wait_for_its_kernel(chip: Chip) -> None:
    """Each kernel takes 0.3 s."""
    assert chip.run(WAITS).output == "did not wait 0\n"


def test_a_launch_waits_where_that_is_asked_for(chip: Chip) -> None:
    """The same program notices it: so the test above could fail."""
    assert chip.run(WAITS, TRITON_ENABLE_TASKQUEUE="false").output == "waited 3\n"


LOCKS = """
import kernels
out = there([0])
{change}
kernels.locked[(1,)](out, 5)  # compiles
flagos.synchronize()
before = flagos.memory_allocated()
for _ in range(4):
    for _ in range(50):
        kernels.locked[(1,)](out, 5)
    assert flagos.memory_allocated() == before, (before, flagos.memory_allocated())
    flagos.synchronize()
print("reserved", flagos.memory_reserved())
"""


def test_memory_of_locks_is_released_and_is_not_used_too_early(chip: Chip) -> None:
    """A kernel that finds its locks changed, or changed by others, is recorded; so is a copy over memory in use."""
    done = chip.run(LOCKS.format(change=""))
    assert done.report == []
    assert int(done.output.split()[-1]) <= 8 << 20


def test_memory_of_locks_in_the_order_of_the_stream_is_too_early(chip: Chip) -> None:
    """What the test above notices: the launcher copies the first values while the kernel before still runs."""
    change = "from flagos_ascend.triton_ascend import memory; memory.locks = memory.workspace"
    assert chip.run(LOCKS.format(change=change)).report != []


def test_workspaces_of_two_streams_are_apart_and_released(chip: Chip) -> None:
    done = chip.run("""
import kernels
out, side = there([0]), flagos.Stream()
before = flagos.memory_allocated()
for _ in range(20):
    kernels.works[(2,)](out, 5)
    with flagos.stream(side):
        kernels.works_too[(2,)](out, 6)
assert flagos.memory_allocated() == before
flagos.synchronize()
assert finished() == 40
""")
    assert done.report == []


def test_without_memory_nothing_is_launched(chip: Chip) -> None:
    done = chip.run("""
import kernels
out = there([0])
said = raised(torch.OutOfMemoryError, lambda: kernels.greedy[(2,)](out, 5))
assert queued() == 0 and "requested" in said, said
kernels.add[(1,)](out, out, out, 1, BLOCK=32)
flagos.synchronize()
assert queued() == finished() == 1
""")
    assert done.report == []


def test_a_grid_without_programs_launches_nothing(chip: Chip) -> None:
    done = chip.run("""
import kernels
out = there([0])
for kernel in (kernels.works, kernels.locked):
    for grid in ((0,), (2, 0), (2, 2, 0)):
        kernel[grid](out, 5)
flagos.synchronize()
assert queued() == 0
""")
    assert done.report == []


def test_what_the_runtime_refuses_is_raised_with_the_kernels_name(chip: Chip) -> None:
    chip.run(
        ADD
        + """
launch(kernels.add)
here = torch.tensor([0.0] * 100)   # memory of the host
said = raised(RuntimeError, lambda: kernels.add[(4,)](here.data_ptr() and x, y, out, 1 << 20, BLOCK=32))
assert "Triton kernel add was not launched" in said and "107000" in said, said
"""
    )


def test_a_kernel_that_fails_is_told_when_the_device_is_waited_for(chip: Chip) -> None:
    chip.run("""
import kernels
out = there([0])
kernels.fails[(1,)](out, 5)
said = raised(RuntimeError, flagos.synchronize)
assert "507015" in said, said
os._exit(0)  # the device is lost
""")


def test_a_thread_launches_on_its_own_device(chip: Chip) -> None:
    done = chip.run("""
import kernels
results = []
def work():
    flagos.set_device(1)
    x = there(range(100))
    for _ in range(3):
        out = there([0] * 100)
        kernels.add[(4,)](x, x, out, 100, BLOCK=32)
        results.append(back(out) == [2 * index for index in range(100)])
for _ in range(2):
    x = there(range(100))
    kernels.add[(4,)](x, x, x, 100, BLOCK=32)
    thread = threading.Thread(target=work)
    thread.start(); thread.join()
    flagos.set_device(1); work(); flagos.set_device(0)
    kernels.add[(4,)](x, x, x, 100, BLOCK=32)
    assert back(x) == [4 * index for index in range(100)]
assert results == [True] * 12, results
""")
    assert done.report == []


def test_a_module_that_was_compiled_with_torch_npu_is_not_taken(chip: Chip, tmp_path: Path) -> None:
    """Its key in the cache is that of npu_utils.cpp alone."""
    source = chip.wheel / "triton/backends/ascend/npu_utils.cpp"
    key = hashlib.md5(source.read_text().encode()).hexdigest()
    chip.run(
        """
import base64
from triton.runtime.cache import get_cache_manager
get_cache_manager(os.environ["KEY"]).put(b"linked to torch_npu", "npu_utils.so", binary=True)
assert get_cache_manager(os.environ["KEY"]).get_file("npu_utils.so")
"""
        + ADD
        + "launch(kernels.add); assert back(out)[3] == 4",
        KEY=key,
        TRITON_CACHE_DIR=str(tmp_path),
    )


SOURCES = """
from types import SimpleNamespace
from triton.backends.ascend import driver as module
from triton.runtime import driver
driver.active.get_current_target()
from flagos_ascend.triton_ascend import launcher_3_2_0
every = {index: kind for index, kind in enumerate(("*fp32", "i1", "i32", "i64", "u32", "fp16", "fp32", "fp64", "*i8"))}
count = 0
for locks, workspace in ((2, 64), (-1, -1), (1, -1), (-1, 8)):
    for mode, simt in (("simd", False), ("simt", True)):
        metadata = SimpleNamespace(
            workspace_size=workspace, lock_num=locks, lock_init_value=3, bs_task_type=32, mix_mode="mix",
            compile_on_910_95=simt, parallel_mode=mode, force_simt_only=simt, debug=False)
        text = module.generate_npu_wrapper_src({1: 1}, every, metadata)
        for word in ("torch", "at::", "at_npu", "OpCommand"):
            for line in text.splitlines():
                assert word not in line or "flagos_ascend.triton_ascend" in line, line
        assert ("rtStreamSynchronize" in text) == (os.environ.get("TRITON_ENABLE_TASKQUEUE") == "false")
        if (locks > 0) == (workspace > 0):
            assert module.make_npu_launcher_stub(module.generate_npu_header_src(), text).endswith(".so")
            count += 1
assert count == 4
"""


@pytest.mark.parametrize("taskqueue", ["true", "false"])
@pytest.mark.parametrize("disabled", ["TRITON_DISABLE_FFTS", "TRITON_GRID_WARN_PRINT"])
def test_generated_launchers_have_no_torch_and_compile(
    chip: Chip, taskqueue: str, disabled: str
) -> None:
    chip.run(SOURCES, TRITON_ENABLE_TASKQUEUE=taskqueue, **{disabled: "true"})


def test_another_versions_launcher_is_refused(chip: Chip) -> None:
    chip.run("""
import kernels
from triton.backends.ascend import driver as module
from flagos_ascend.triton_ascend import launcher_3_2_0
original = module.generate_npu_wrapper_src.__wrapped__
module.generate_npu_wrapper_src = lambda *arguments: original(*arguments).replace("SetCustomHandler", "SetHandler")
launcher_3_2_0.install(module)
out = there([0])
said = raised(RuntimeError, lambda: kernels.locked[(1,)](out, 5))
assert "are not those of 3.2.0" in said and "at_npu" in said, said
""")


def test_without_cann_the_error_says_what_to_do(chip: Chip) -> None:
    chip.run(
        ADD
        + """
del os.environ["ASCEND_HOME_PATH"]
os.environ["TRITON_CACHE_DIR"] += "-empty"
said = raised(RuntimeError, lambda: launch(kernels.add))
assert "ASCEND_HOME_PATH" in said and "set_env.sh" in said, said
"""
    )


def test_headers_of_cann_9(chip: Chip, tmp_path: Path) -> None:
    """Another place, and another name of a limit."""
    from core.vendors.ascend.simulated_rt import cann

    newer = cann.build(tmp_path / "9.0", release=9, libraries_of=chip.cann)
    older, chip.cann = chip.cann, newer
    try:
        chip.run(
            ADD + "launch(kernels.add); assert back(out)[3] == 4",
            TRITON_CACHE_DIR=str(tmp_path / "cache"),
        )
    finally:
        chip.cann = older


def test_the_command_tries_the_driver(chip: Chip) -> None:
    """All of it: `torch_fl_cli` finds the wheel, CANN and the compiler, and a process makes the driver."""
    done = chip.run(
        """
import torch_fl_cli.ascend
sys.exit(torch_fl_cli.ascend.run(["triton", "--json"]))
""",
        LD_PRELOAD=str(chip.cann / "lib64/libascendcl.so"),
    )
    value = json.loads(done.output)
    assert value["usable"] and value["version"] == "3.2.0", value
    assert value["way"] == "a driver made active in memory"
    driver = value["checks"][-1]
    assert driver["detail"] == "FlagosDriver for Ascend910B3, 2 devices", driver


def test_a_program_is_started_with_it(chip: Chip) -> None:
    done = chip.run(
        """
import torch_fl_cli.ascend
del os.environ["FLAGOS_VENDOR"]
torch_fl_cli.ascend.run(["triton", "--", sys.executable, "-c", "import os; print(os.environ['FLAGOS_VENDOR'])"])
"""
    )
    assert done.output == "ascend\n"


def test_another_versions_driver_is_refused(chip: Chip) -> None:
    """At every use; the import itself warns, because a program may import Triton for another device."""
    chip.run("""
from triton.backends.ascend import driver as module
from triton.runtime import driver
module.generate_npu_wrapper_src = module.generate_npu_wrapper_src.__wrapped__
del module._precompile_npu_hash
for _ in range(2):
    said = raised(RuntimeError, lambda: driver.active.get_current_target())
    assert "has no _precompile_npu_hash" in said and "3.2.1 or later" in said, said
""")
