"""`cuda` means flagos where a program asks for that: unchanged CUDA programs beside the same programs on the CPU."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from adapters.torch.tests.simulated import simulated_driver

pytestmark = pytest.mark.host

ALIAS = {"FLAGOS_ALIAS_CUDA": "1", "FLAGOS_HOST_DEVICES": "2"}

# `torch.set_default_device` gives the CPU's run what `.cuda()` and "cuda" say in the other.
TRAINING = """
import io, sys, warnings
warnings.simplefilter("ignore", FutureWarning)
import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
model = model.cuda() if torch.cuda.is_available() else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(32, 3, 8, 8), torch.arange(32) % 10)
pinned = torch.cuda.is_available()
for epoch in range(3):
    for x, y in torch.utils.data.DataLoader(data, batch_size=8, pin_memory=pinned, num_workers=1):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        assert x.is_cuda == (device.type != "cpu")
        loss = nn.functional.cross_entropy(nn.functional.dropout(model(x), 0.1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item().hex())
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
again = torch.load(file, map_location=device)
print(float(sum(value.double().sum() for value in again.values())).hex())
"""


@pytest.fixture
def aliased(run_python):
    """The lines that a script printed in a process where `cuda` means flagos."""

    def run(script: str, **variables: str) -> list[str]:
        done = run_python(textwrap.dedent(script), fresh=True, **{**ALIAS, **variables})
        return done.stdout.splitlines()

    return run


def test_a_training_program_gives_the_bits_of_the_cpu(aliased, run_python) -> None:
    expected = run_python(TRAINING, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    assert aliased(TRAINING) == expected.splitlines()
    assert len(set(expected.splitlines())) == 4


def test_device_strings(aliased) -> None:
    assert aliased(
        """
        import threading, torch
        print(torch.device("cuda"), torch.device("cuda", 1), torch.device("cuda:1"))
        print(torch.zeros(1, device="cuda").device)
        print(torch.zeros(1).to("cuda:1").device, torch.Generator("cuda:1").device, torch.empty(2).cuda(1).device)
        with torch.device("cuda"):
            print(torch.ones(1).device)
        thread = threading.Thread(target=lambda: print(torch.ones(1, device="cuda").device))
        thread.start(); thread.join()
        for wrong in ("cudas", "cuda:x", "cuda:-1"):
            try:
                print(torch.device(wrong))
            except RuntimeError as error:
                print("error", str(error).splitlines()[0][:40])
        """
    ) == [
        "flagos flagos:1 flagos:1",
        "flagos:0",
        "flagos:1 flagos:1 flagos:1",
        "flagos:0",
        "flagos:0",
        "error Expected one of cpu, cuda, ipu, xpu, mkl",
        "error Invalid device string: 'flagos:x'",
        "error Invalid device string: 'flagos:-1'",
    ]


def test_every_name_of_torch_cuda_is_ours_or_refused_or_asks_nothing_of_a_device(aliased) -> None:
    printed = aliased(
        """
        import torch, types
        from torch_fl.cuda_names import module
        for name in torch.cuda.__all__:
            value = getattr(torch.cuda, name)
            if name in module._KEPT or isinstance(value, types.ModuleType) or name == "default_generators":
                continue
            own = getattr(value, "__module__", "") or ""
            if own == "torch.cuda" or own.startswith("torch.cuda."):
                if not (isinstance(value, type) and name.endswith("Storage")):
                    print(name, own)
        """
    )
    assert printed == []


def test_what_has_no_counterpart_is_refused_by_name(aliased) -> None:
    printed = aliased(
        """
        import torch
        from torch.utils import cpp_extension
        for refused in (
            lambda: torch.cuda.cudart(),
            lambda: torch.cuda.utilization(),
            lambda: cpp_extension.CUDAExtension("mine", ["mine.cu"]),
            lambda: cpp_extension.load("mine", ["mine.cpp", "mine.cu"]),
            lambda: cpp_extension.load_inline("mine", "", "__global__ void f() {}"),
            lambda: torch.ones(1, device="cuda").__cuda_array_interface__,
        ):
            try:
                refused()
            except Exception as error:
                print(type(error).__name__, error)
        """
    )
    assert [line.split()[0] for line in printed] == ["UnsupportedError"] * 5 + ["AttributeError"]
    assert "torch.cuda.cudart has no counterpart" in printed[0]
    assert all("'mine' has CUDA sources" in line for line in printed[2:5])


def test_streams_events_types_and_memory(aliased) -> None:
    assert aliased(
        """
        import torch
        from torch.cuda.memory import memory_allocated
        stream, begin, end = torch.cuda.Stream(), torch.cuda.Event(True), torch.cuda.Event(enable_timing=True)
        x = torch.ones(1000).cuda()
        with torch.cuda.stream(stream):
            begin.record()
            y = x * 2
            end.record()
        stream.synchronize()
        end.synchronize()
        print(begin.elapsed_time(end) >= 0, isinstance(begin, torch.cuda.Event), isinstance(stream, torch.cuda.Stream))
        print(x.type(), isinstance(x, torch.cuda.FloatTensor), x.type("torch.cuda.HalfTensor").dtype)
        print(torch.cuda.FloatTensor([1, 2]).device, memory_allocated() == torch.flagos.memory_allocated() > 0)
        print(torch.cuda.device_count(), torch.cuda.default_generators[1].device)
        with torch.cuda.device(1):
            print(torch.cuda.current_device(), torch.ones(1).cuda().device)
        with torch.cuda.nvtx.range("a {}", 1):
            print(torch.cuda.nvtx.range_push("b"), torch.cuda.nvtx.range_pop(), torch.cuda.nvtx.range_pop())
        """
    ) == [
        "True True True",
        "torch.cuda.FloatTensor True torch.float16",
        "flagos:0 True",
        "2 flagos:1",
        "1 flagos:1",
        "0 0 -1",
    ]


def test_autocast_scaler_and_custom_functions(aliased) -> None:
    assert aliased(
        """
        import warnings; warnings.simplefilter("ignore", FutureWarning)
        import torch
        class Doubled(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
            def forward(ctx, x):
                return x * 2
            @staticmethod
            @torch.cuda.amp.custom_bwd
            def backward(ctx, gradient):
                return gradient * 2
        model = torch.nn.Linear(4, 4).cuda()
        x = torch.ones(2, 4, device="cuda")
        narrower = torch.amp.autocast("cuda", torch.bfloat16)
        for context in (torch.autocast("cuda"), torch.cuda.amp.autocast(), narrower):
            with context:
                print(model(x).dtype, Doubled.apply(x).dtype)
                print(torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype())
        print(torch.is_autocast_enabled(), model(x).dtype)
        for scaler in (torch.amp.GradScaler("cuda"), torch.cuda.amp.GradScaler()):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler.scale(model(x).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            print(scaler.is_enabled(), scaler.get_scale())
        """
    ) == [
        "torch.float16 torch.float16",
        "True torch.float16",
        "torch.float16 torch.float16",
        "True torch.float16",
        "torch.bfloat16 torch.float16",
        "True torch.bfloat16",
        "False torch.float32",
        "True 65536.0",
        "True 65536.0",
    ]


def test_files_say_cuda_and_are_read_from_it(aliased, tmp_path: Path) -> None:
    file = tmp_path / "saved.pt"
    printed = aliased(
        f"""
        import torch
        torch.save({{"x": torch.arange(3.).cuda(1)}}, {str(file)!r})
        for where in (None, "cpu", "cuda", "cuda:1", torch.device("cuda:0"), {{"cuda:1": "cuda:0"}},
                      lambda storage, location: storage.cuda(0) if location == "cuda:1" else None):
            print(torch.load({str(file)!r}, map_location=where)["x"].device)
        """
    )
    assert printed == [
        "flagos:1",
        "cpu",
        "flagos:0",
        "flagos:1",
        "flagos:0",
        "flagos:0",
        "flagos:0",
    ]
    plain = f"import torch; torch.load({str(file)!r})"
    without = subprocess.run(
        [sys.executable, "-c", plain],
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
    )
    assert "on a CUDA device" in without.stderr  # as a file of a GPU's machine is refused


def test_compiled_programs_see_what_others_see(aliased) -> None:
    assert aliased(
        """
        import torch
        @torch.compile(fullgraph=True, backend="aot_eager")
        def f(x):
            y = x.cuda() * (2 if x.is_cuda else 3)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return y @ y
        for x in (torch.ones(2, 2), torch.ones(2, 2, device="cuda")):
            print(f(x).dtype, f(x)[0, 0].item())
        """
    ) == ["torch.bfloat16 18.0", "torch.bfloat16 8.0"]


def test_torch_itself_sees_no_cuda(aliased) -> None:
    assert aliased(
        """
        import torch, torch.utils._triton
        print(torch.cuda.is_available(), torch.accelerator.current_accelerator())
        from torch._dynamo.device_interface import get_interface_for_device
        print(get_interface_for_device("cuda").is_available())
        """
    ) == ["True flagos", "False"]


def test_one_rank_of_nccl(aliased) -> None:
    assert aliased(
        """
        import os, torch, torch.distributed as dist
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())
        x = torch.ones(2, device="cuda")
        dist.all_reduce(x)
        group = dist.new_group([0], backend="cpu:gloo,cuda:nccl")
        dist.all_reduce(x, group=group)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda(), device_ids=[0])
        model(x).sum().backward()
        print(x.tolist(), dist.is_nccl_available(), dist.init_device_mesh("cuda", (1,)).device_type)
        dist.destroy_process_group()
        """
    ) == ["[1.0, 1.0] True flagos"]


@pytest.mark.parametrize("accelerator", ["gpu", "cuda", "auto"])
def test_lightning_takes_the_device(aliased, accelerator: str) -> None:
    pytest.importorskip("lightning")
    printed = aliased(
        f"""
        import lightning, torch
        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)
            def training_step(self, batch, index):
                print(batch.device, self.device)
                return self.layer(batch).square().mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)
        quiet = dict.fromkeys(
            ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
        )
        trainer = lightning.Trainer(max_steps=1, accelerator={accelerator!r}, devices=1, **quiet)
        trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(4, 4)))
        """
    )
    assert "flagos:0 flagos:0" in printed


def test_it_can_be_asked_for_by_a_call_and_is_off_otherwise(run_python) -> None:
    done = run_python(
        """
        import torch
        print(torch.cuda.is_available(), torch.device("cuda"), torch.Tensor.is_cuda is torch._C.TensorBase.is_cuda)
        torch.flagos.alias_cuda()
        torch.flagos.alias_cuda()
        print(torch.cuda.is_available(), torch.device("cuda"), torch.ones(1).cuda().is_cuda)
        """,
        fresh=True,
    )
    assert done.stdout.splitlines() == ["False cuda True", "True flagos True"]


@pytest.mark.parametrize("value", ["2", "cuda"])
def test_a_value_that_is_no_flag_is_an_error(run_python, value: str) -> None:
    done = run_python("import torch", fresh=True, fails=True, FLAGOS_ALIAS_CUDA=value)
    assert "FLAGOS_ALIAS_CUDA" in done.stderr and "use `1` or `0`" in done.stderr


def test_beside_a_cuda_device_it_is_refused(run_python) -> None:
    # The driver is simulated: torch is made to count its devices as flagos does.
    script = """
        import torch
        torch.cuda.device_count = lambda: 1
        try:
            torch.flagos.alias_cuda()
        except RuntimeError as error:
            print(error)
        print(torch.device("cuda"))
    """
    done = run_python(textwrap.dedent(script), fresh=True, LD_LIBRARY_PATH=str(simulated_driver()))
    refused, device = done.stdout.splitlines()
    assert "torch has a CUDA device here, so `cuda` keeps its meaning" in refused
    assert device == "cuda"


class TestRun:
    """`flagos run`."""

    @staticmethod
    def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("flagos")), "run", *arguments]
        return subprocess.run(command, capture_output=True, text=True, **options)

    def test_scripts_modules_code_and_commands(self, tmp_path: Path) -> None:
        script = tmp_path / "program.py"
        script.write_text("import sys, torch\nprint(torch.ones(1).cuda().device, sys.argv[1:])\n")
        (tmp_path / "as_module.py").write_text(script.read_text())
        for arguments in (
            [str(script), "-x", "1"],
            ["--", str(script), "-x", "1"],
            ["-m", "as_module", "-x", "1"],
            ["python", str(script), "-x", "1"],
        ):
            done = self.run(*arguments, cwd=tmp_path)
            assert done.stdout == "flagos:0 ['-x', '1']\n", done.stderr
        assert self.run("-c", "raise SystemExit(7)").returncode == 7

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "there is no program to run"),
            (["absent.py"], "there is no file 'absent.py'"),
            (["no-such-command"], "there is no command 'no-such-command'"),
            (["--fast", "x.py"], "there is no option '--fast'"),
            (["-m"], "-m needs a module"),
        ],
    )
    def test_mistakes(self, arguments: list[str], said: str) -> None:
        done = self.run(*arguments)
        assert done.returncode == 1
        assert said in done.stderr and "fix:" in done.stderr

    def test_help(self) -> None:
        assert "flagos run torchrun" in self.run("--help").stdout
