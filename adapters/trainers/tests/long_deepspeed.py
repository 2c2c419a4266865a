"""DeepSpeed on two ranks of the host vendor beside its own run on the CPU and gloo, and what happens when things break.

DeepSpeed's compiled Adam of the CPU is another formula than FusedAdam: for it there is a bound instead of equal bits.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapters.trainers.tests import test_files
from adapters.trainers.tests.ranks import PROGRAMS, environment, folder, launch, results

HOME = folder()
CASES = PROGRAMS / "deepspeed_cases.py"
DEVICES = ("flagos", "cpu")
EQUAL = [
    *("0", "1", "2", "3", "0-bf16", "1-bf16", "2-bf16", "3-bf16"),
    *(
        "1-accumulate",
        "2-accumulate",
        "3-accumulate",
        "2-overlap",
        "2-checkpointed",
        "3-checkpointed",
    ),
    *("1-resume", "2-resume", "3-resume", "0-experts", "1-experts", "2-experts"),
    *("2-torchcpu", "1-cpu", "2-cpu", "3-cpu", "3-cpu-parameters"),
]
PIPELINES = ("0-pipeline", "1-pipeline")
# DeepSpeed's accelerator of the CPU has neither fp16 nor Lion and Lamb.
ONLY_DEVICES = ("0-fp16", "1-fp16", "2-fp16", "3-fp16", "2-fp16-overflow", "2-lion", "0-lamb-fp16")
FUSED = {"1-fused": 1e-5, "3-fused": 1e-5, "2-fused-bf16": 1e-2}


def run(device: str, folder: Path, *cases: str, ranks: int = 2) -> dict[str, dict[str, Any]]:
    variables = environment(DS_ACCELERATOR=device)
    return results(
        launch(CASES, str(folder), *cases, variables=variables, ranks=ranks, timeout=1500)
    )


def losses(found: dict[str, Any]) -> list[float]:
    return [float.fromhex(loss) for loss in found["losses"]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    """Device → case → what was found. Each in the same order: ZeRO 3 changes later engines of a process."""
    found = {}
    for device in DEVICES:
        place = tmp_path_factory.mktemp(device)
        found[device] = run(device, place, *EQUAL, *FUSED) | run(device, place, *PIPELINES)
    return found


@pytest.mark.parametrize("case", [*EQUAL, *PIPELINES])
def test_losses_are_those_of_the_cpu_in_every_bit(both: Any, case: str) -> None:
    ours, theirs = (both[device][case] for device in DEVICES)
    assert (ours["device"], ours["backend"]) == ("flagos", "flagos")
    assert (theirs["device"], theirs["backend"]) == ("cpu", "gloo")
    assert ours["losses"] == theirs["losses"] and len(set(ours["losses"])) > 1
    if "resumed" in ours:
        assert ours["resumed"] == ours["losses"][len(ours["losses"]) // 2 :]


def test_a_difference_would_be_found(both: Any) -> None:
    assert both["flagos"]["1"]["losses"] != both["flagos"]["1-bf16"]["losses"]


@pytest.mark.parametrize("case", FUSED)
def test_fused_adam_is_near_the_cpus_compiled_one(both: Any, case: str) -> None:
    pairs = zip(*(losses(both[device][case]) for device in DEVICES), strict=True)
    assert max(abs(ours - theirs) for ours, theirs in pairs) <= FUSED[case]


def test_float16_scales_its_losses(tmp_path: Path) -> None:
    found = run("flagos", tmp_path, *ONLY_DEVICES)
    for case in ONLY_DEVICES:
        assert all(3.0 < loss < 6.0 for loss in losses(found[case])), case
    # Scales of 2**22 and below overflowed: they were halved, and their steps left out.
    assert found["2-fp16-overflow"]["skipped"] > 0 and found["2-fp16-overflow"]["scale"] < 2**22


@pytest.mark.parametrize("stage", [1, 3])
def test_a_universal_checkpoint_resumes_with_another_number_of_ranks(
    tmp_path: Path, stage: int
) -> None:
    found = {}
    for device in DEVICES:
        place = tmp_path / device
        saved = run(device, place, f"{stage}-save")[f"{stage}-save"]["losses"]
        command = [
            sys.executable,
            "-m",
            "deepspeed.checkpoint.ds_to_universal",
            "--inject_missing_state",
        ]
        command += [
            "--input_folder",
            str(place / "saved/half"),
            "--output_folder",
            str(place / "universal/half"),
        ]
        subprocess.run(
            command, env=environment(DS_ACCELERATOR=device), check=True, capture_output=True
        )
        (place / "universal" / "latest_universal").write_text("half")
        case = f"{stage}-universal"
        found[device] = [run(device, place, case, ranks=ranks)[case]["losses"] for ranks in (1, 2)]
        assert found[device][1] == saved  # the same number of ranks goes on with the same bits
        other = [float.fromhex(loss) for loss in found[device][0]]
        assert other == pytest.approx([float.fromhex(loss) for loss in saved], rel=1e-6)
    assert found["flagos"] == found["cpu"]


asynchronous = pytest.mark.skipif(
    subprocess.run(
        ["g++", "-x", "c++", "-fsyntax-only", "-include", "libaio.h", "/dev/null"],
        capture_output=True,
    ).returncode
    != 0,
    reason="libaio.h is missing",
)


@asynchronous
def test_tensors_are_swapped_to_files(tmp_path: Path) -> None:
    case = "3-nvme-resume"
    ours, theirs = (run(device, tmp_path / device, case)[case] for device in DEVICES)
    assert ours["losses"] == theirs["losses"]
    # They are not the uninterrupted run's, on neither device.
    assert ours["resumed"] == theirs["resumed"]


@asynchronous
@pytest.mark.parametrize("own", [False, True])
def test_files_are_read_into_tensors_of_the_device(tmp_path: Path, own: bool) -> None:
    arguments = (str(tmp_path), *["own"] * own)
    variables = environment(DS_ACCELERATOR="flagos")
    found = results(launch(test_files.PROGRAM, *arguments, variables=variables, ranks=1))
    test_files.check(found["files"], filled=not own)


def test_the_double_of_the_files_is_as_deepspeeds_sources_say() -> None:
    sources = HOME / "deepspeed/ops/csrc/aio/py_lib"
    text = (sources / "py_ds_aio.cpp").read_text()
    # Each `.def` to the next, with the words of the binding's arguments.
    calls = {
        name: re.findall(r'"(\w+)"_a', rest)
        for name, rest in re.findall(r'\.def\(\s*"(\w+)"(.*?)(?=\.def\(|\Z)', text, re.DOTALL)
        if '"fd"_a' not in rest
    }
    program = (
        "import inspect, json\nfrom deepspeed.ops.op_builder.cpu import aio_handle\n"
        "found = {name: [one.rstrip('_') for one in inspect.signature(call).parameters][1:]\n"
        "         for name, call in vars(aio_handle).items() if not name.startswith('_')}\n"
        "print('RESULT', json.dumps({'case': 'calls', 'calls': found}))"
    )
    seam = Path(__file__).with_name("seam")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment() | {"PYTHONPATH": str(seam)},
        capture_output=True,
        text=True,
        check=True,
    )
    double = results(done.stdout)["calls"]["calls"]
    assert double and double == {name: calls[name] for name in double}
    # What is read comes to tensors of these kinds. The fourth is under `#if`, for Ascend's own DeepSpeed.
    (finish,) = re.findall(
        r"void cpu_op_desc_t::finish\(\).*?\n}",
        (sources / "deepspeed_cpu_op.cpp").read_text(),
        re.DOTALL,
    )
    kinds = re.findall(
        r"_buffer\.is_(\w+)\(\)", finish.partition("#if defined(__ENABLE_CANN__)")[0]
    )
    assert sorted(kinds) == ["cpu", "cuda", "xpu"]


def test_the_launcher_starts_ranks_on_flagos(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "deepspeed.launcher.runner",
        "--no_local_rank",
        "--num_gpus",
        "2",
        str(CASES),
        str(tmp_path),
        "2",
    ]
    done = subprocess.run(
        command,
        env=environment(DS_ACCELERATOR="flagos"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = results(done.stdout)
    assert (
        found["2"]["device"] == "flagos"
        and found["2"]["losses"] == run("cpu", tmp_path, "2")["2"]["losses"]
    )


@pytest.mark.parametrize("graphs", ["off", "auto"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("killed", "Signal 9"),
        ("full", "inline_container"),  # of torch's writer, which says what it could not write
        ("ranks", "world size"),
        ("kernel", "extension quantizer has no implementation for flagos"),
        ("operator", "aten::gelu is blocked"),
    ],
)
def test_a_fault_is_a_clear_error_and_the_last_checkpoint_is_whole(
    tmp_path: Path, fault: str, message: str, graphs: str
) -> None:
    variables = environment(DS_ACCELERATOR="flagos", FLAGOS_GRAPHS=graphs)
    program = PROGRAMS / "deepspeed_faults.py"
    first = launch(program, str(tmp_path), "train", variables=variables)
    ranks = 1 if fault == "ranks" else 2
    broken = launch(
        program, str(tmp_path), fault, variables=variables, ranks=ranks, fails=True, timeout=300
    )
    assert message.lower() in broken.lower(), broken[-4000:]
    resumed = launch(program, str(tmp_path), "resume", variables=variables)
    assert results(resumed)["resume"]["losses"] == results(first)["train"]["losses"][2:]


def test_transformers_trainer_takes_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "zero3.json").write_text(
        json.dumps(
            {
                "zero_optimization": {"stage": 3},
                "bf16": {"enabled": "auto"},
                "train_micro_batch_size_per_gpu": "auto",
                "gradient_accumulation_steps": "auto",
            }
        )
    )
    program = PROGRAMS / "transformers_deepspeed.py"
    variables = environment(DS_ACCELERATOR="flagos", ACCELERATE_TORCH_DEVICE="flagos")
    found = results(launch(program, str(tmp_path), variables=variables))["trainer"]
    assert found["device"].startswith("flagos") and found["engine"] == "DeepSpeedEngine"
    assert found["loss"] < found["first"]
    del variables["DS_ACCELERATOR"]
    refused = launch(program, str(tmp_path), variables=variables, fails=True)
    assert "ACCELERATE_TORCH_DEVICE=flagos" in refused and "DS_ACCELERATOR" in refused


def test_the_doubles_have_deepspeeds_names() -> None:
    real = (HOME / "deepspeed/accelerator/abstract_accelerator.py").read_text()
    program = (
        "import json\nfrom deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator as A\n"
        "print('RESULT', json.dumps({'case': 'names', 'names': sorted(A.__abstractmethods__)}))"
    )
    found = {}
    for path in (HOME, Path(__file__).with_name("seam")):
        variables = environment(DS_ACCELERATOR="cpu") | {"PYTHONPATH": str(path)}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
        found[path] = results(done.stdout)["names"]["names"]
    assert len({tuple(names) for names in found.values()}) == 1 and "abstractmethod" in real


def test_deepspeeds_own_report_names_what_serves() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deepspeed.env_report", "--hide_errors_and_warnings"],
        env=environment(DS_ACCELERATOR="flagos"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "fused_adam" in done.stdout and shutil.which("g++")
