"""The backend `flagos` of torch.distributed. The programs of the ranks are in `ranks/`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import torch

from adapters.torch.tests.launch import HERE, launch, launch_all_well
from adapters.torch.tests.simulated import simulated_libraries


def test_the_backend_is_the_default_of_the_device():
    import torch.distributed as dist

    assert dist.Backend.default_device_backend_map["flagos"] == "flagos"
    assert dist.get_default_backend_for_device("flagos") == "flagos"
    assert dist.Backend.backend_capability["flagos"] == ["flagos", "cpu"]
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo", "torch's own choice stays"


def test_auto_needs_gloo_for_the_cpu_on_several_hosts(monkeypatch):
    from torch_fl import distributed

    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert distributed.backend_string() == "flagos"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert distributed.backend_string("auto") == "cpu:gloo,flagos:flagos"
    assert distributed.backend_string("nccl") == "nccl"


def test_groups_of_gloo_alone_wait_with_ids_of_devices(run_python):
    """As where no device is installed: accelerate passes ids in programs of the CPU."""
    run_python(
        "import pytest, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "assert dist.barrier() is None and dist.barrier(device_ids=[0]) is None\n"
        "dist.barrier(None, True, [0]).wait()\n"
        "with pytest.raises(RuntimeError, match='No backend type'):\n"
        "    dist.barrier.__wrapped__(device_ids=[0])\n"
    )


@pytest.mark.host
@pytest.mark.parametrize(
    ("device", "ranks", "largest", "variables"),
    [("flagos", 3, "20011", {"FLAGOS_COMM_WINDOW": "64KiB"}), ("cpu", 2, "300007", {})],
)
def test_collectives_do_what_gloo_does(device, ranks, largest, variables):
    for output in launch_all_well("collectives.py", device, largest, ranks=ranks, **variables):
        checked = re.search(r"checked (\d+)", output)
        assert checked is not None and int(checked.group(1)) > 1000


@pytest.mark.host
def test_a_program_may_end_with_its_last_collective():
    launch_all_well("ends.py", "200", ranks=2)


@pytest.mark.host
def test_groups_that_share_ranks_do_what_gloo_does_in_any_order():
    for output in launch_all_well("groups.py", "flagos", "25", ranks=4):
        checked = re.search(r"checked (\d+) calls of (\d+) groups", output)
        assert checked is not None and int(checked.group(1)) == 25 * int(checked.group(2))
        assert int(checked.group(2)) >= 4


@pytest.mark.host
@pytest.mark.parametrize(
    ("device", "ranks", "arguments", "variables"),
    [
        ("flagos", 3, (), {}),
        ("cpu", 2, (), {}),
        ("flagos", 2, ("TORCH_DISTRIBUTED_DEBUG",), {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    ],
)
def test_everything_else_of_torch_distributed(device, ranks, arguments, variables):
    launch_all_well("api.py", device, *arguments, ranks=ranks, **variables)


@pytest.mark.host
@pytest.mark.parametrize(("device", "ranks"), [("flagos", 2), ("cpu", 3)])
def test_callbacks_may_wait_for_other_calls(device, ranks):
    for output in launch_all_well("callbacks.py", device, ranks=ranks):
        assert output.count("passed") == 5


@pytest.mark.host
def test_accelerate_and_trainer_form_groups():
    pytest.importorskip("accelerate")
    # A device for each rank, as under torchrun.
    variables = {"ACCELERATE_TORCH_DEVICE": "flagos", "LOCAL_WORLD_SIZE": "2"}
    for output in launch_all_well("accelerated.py", ranks=2, **variables):
        assert output.count("passed") == 5


@pytest.mark.slow
@pytest.mark.host
@pytest.mark.parametrize("ranks", [1, 2])
def test_lightning_trains_as_on_the_cpu(ranks):
    pytest.importorskip("lightning")
    # A launcher of its own: ranks of Lightning have a device each.
    program = [str(HERE / "ranks" / "lightning_trained.py")]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else ()), *program],
        env=os.environ | {"FLAGOS_HOST_DEVICES": "2", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("lightning passed") == ranks


@pytest.mark.host
@pytest.mark.parametrize("ranks", [2, 4])
def test_random_operators_of_dtensor_are_those_of_one_device(ranks):
    launch_all_well("dtensor_random.py", ranks=ranks)


def test_the_fake_group_of_torch_takes_tensors_of_the_device(run_python):
    run_python("""
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    x = torch.ones(16, 4, device="flagos")
    dist.all_reduce(x)
    sharded = distribute_tensor(x, init_device_mesh("flagos", (8,)), [Shard(0)])
    assert sharded.to_local().shape == (2, 4) and (sharded @ sharded.t()).shape == (16, 16)
    dist.destroy_process_group()
    """)


@pytest.mark.host
def test_training_is_that_of_one_process(tmp_path):
    launch_all_well("training.py", "flagos", "all", str(tmp_path), ranks=2)
    # The checkpoint of two ranks, read by three.
    launch_all_well("training.py", "flagos", "load", str(tmp_path), ranks=3)


FAULTS = {
    "killed": r"all_reduce \(sequence \d+, sum of 8388608 x float32, 32.0 MiB\).*process of rank 1 .* has ended",
    "killed_async": r"all_reduce \(sequence 1, .*process of rank 1 .* has ended",
    "missing": r"\(sequence 3, .*Timed out waiting for rank 1 \(process \d+, last seen in barrier, sequence 2\)",
    "other_shape": r"all_reduce \(sequence 1, .*rank [012] called all_reduce of 100[012] x float32, sum",
    "other_op": r"rank [01] called (broadcast|all_reduce) of 1000 x float32",
    "other_root": r"rank [012] called broadcast of 1000 x float32, root [012]",
    "other_type": r"rank [012] called all_reduce of 1000 x (int32|float32)",
    "aborted": r"(rank 1|this rank) aborted the group: abort\(\) was called on rank 1",
    "connecting": r"waiting for rank 1 of 3",
    "monitored": r"Rank 1 failed to pass monitoredBarrier in 1000 ms, in group 0",
}


@pytest.mark.host
@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_told_by_every_other_rank(what, tmp_path):
    ends = launch("faults.py", what, "flagos", ranks=3, FLAGOS_COMM_DUMP=str(tmp_path))
    for rank, end in enumerate(ends):
        if rank == 1 and what in ("killed", "killed_async", "connecting", "monitored"):
            continue
        assert end.status == 0, end.output
        assert re.search(f"(DistBackendError|ValueError): .*{FAULTS[what]}", end.output), end.output
        seconds = re.search(r"after ([\d.]+) s", end.output)
        assert seconds is not None
        # Only these are found by the timeout, of 3 s; it is 120 s for the others.
        least = 2.5 if what in ("missing", "connecting") else 0
        assert least <= float(seconds.group(1)) < 60, end.output
    if what == "missing":
        assert "the last calls are in" in ends[0].output, ends[0].output
        report = json.loads((tmp_path / "0-rank0.json").read_text())
        assert [call["progress"] for call in report["calls"]] == ["done", "done", "failed"]
        assert report["state"]["ranks"][1]["sequence"] == 2


@pytest.mark.host
@pytest.mark.parametrize("what", ["connecting", "monitored"])
def test_a_store_that_is_a_file_tells_who_is_missing(what, tmp_path):
    """Its timeouts are plain errors, and whole seconds: others than rank 0 may hear of it too late."""
    ends = launch("faults.py", what, "flagos", ranks=3, STORE_FILE=str(tmp_path / "store"))
    assert re.search(f"DistBackendError: .*{FAULTS[what]}", ends[0].output), ends[0].output
    assert re.search("DistBackendError: .*rank [01]", ends[2].output), ends[2].output


@pytest.mark.host
def test_a_group_that_is_connected_needs_no_store():
    for end in launch("faults.py", "store_dies", "flagos", ranks=3):
        assert "the connected group went on" in end.output, end.output
        assert re.search(r"DistBackendError: .*the store could not (read|write)", end.output), (
            end.output
        )
        seconds = re.search(r"after ([\d.]+) s", end.output)
        assert seconds is not None and float(seconds.group(1)) < 60, end.output


@pytest.mark.host
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_rank_of_another_user_is_told_at_once():
    for rank, end in enumerate(launch("faults.py", "another_user", "flagos", ranks=3)):
        message = "rank 0's memory cannot be opened; all ranks must run as one user"
        if rank != 1:
            message = f"rank 1 could not attach to the shared memory of its group: .*{message}"
        assert re.search(message, end.output), end.output
        seconds = re.search(r"after ([\d.]+) s", end.output)
        assert seconds is not None and float(seconds.group(1)) < 60, end.output


@pytest.mark.host
def test_ranks_that_are_all_killed_leave_no_shared_memory():
    before = set(os.listdir("/dev/shm"))
    assert [end.status for end in launch("faults.py", "killed_all", "flagos", ranks=3)] == [-9] * 3
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "flagos" in name]


@pytest.mark.host
def test_a_rank_that_is_stopped_for_a_while_is_waited_for():
    ends = launch("faults.py", "stopped", "flagos", ranks=2)
    for end in ends:
        assert "RuntimeError: went on" in end.output, end.output
    waited = re.search(r"having waited for ([\d.]+) s", ends[0].output)
    assert waited is not None and float(waited.group(1)) > 0.5, ends[0].output


@pytest.mark.host
def test_a_group_has_several_lives_threads_and_children():
    for output in launch_all_well("lives.py", "8", ranks=2):
        assert "8 lives" in output


@pytest.mark.host
def test_a_launcher_starts_again_and_training_goes_on(tmp_path):
    """torchrun's agent, whose ranks are forked. A rank dies in the middle; the end is that of one process."""
    (end,) = launch("agent.py", "elastic.py", str(tmp_path), ranks=1)
    assert end.status == 0, end.output
    assert "started at 5" in end.output
    check_elastic(tmp_path)


def check_elastic(folder):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(10):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(step))
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    end = torch.load(folder / "end.pt", map_location="cpu", weights_only=True)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(end[name], value)


@pytest.fixture(scope="module")
def simulated():
    """The simulated libraries of vendors, by name."""
    return simulated_libraries()


ENGINES = [
    ("nccl", "new"),
    ("nccl", "other"),
    ("flagcx", "new"),
    ("flagcx", "other"),
    ("hccl", "new"),
]


@pytest.mark.host
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(os.mkfifo, "is not a regular file", id="pipe"),
        pytest.param(
            lambda path: (path.touch(), path.chmod(0o666)), "every user may write", id="anybody's"
        ),
        pytest.param(lambda path: None, "No such file", id="missing"),
    ],
)
def test_a_library_that_must_not_be_loaded_is_refused(make, reason, tmp_path):
    library = tmp_path / "libnccl.so"
    make(library)
    variables = {"FLAGOS_COMM_ENGINE": "nccl", "FLAGOS_COMM_LIBRARY": str(library)}
    (end,) = launch("api.py", "flagos", "futures", ranks=1, timeout=60, **variables)
    assert end.status == 1
    assert f"FLAGOS_COMM_LIBRARY: {library}: " in end.output and reason in end.output


@pytest.mark.needs("host_memory")
@pytest.mark.parametrize(("engine", "library"), ENGINES)
def test_engines_of_vendors_over_simulated_libraries(simulated, engine, library):
    variables = {"FLAGOS_COMM_ENGINE": engine, "FLAGOS_COMM_LIBRARY": str(simulated[library])}
    for output in launch_all_well("engine.py", "collectives", ranks=3, **variables):
        assert "well" in output


@pytest.mark.needs("host_memory", "faults")
def test_gradients_are_exact_when_communication_is_late(simulated):
    """With a control: futures that complete on the compute stream give wrong ones."""
    variables = {"FLAGOS_COMM_ENGINE": "nccl", "FLAGOS_COMM_LIBRARY": str(simulated["new"])}
    for output in launch_all_well(
        "engine.py", "gradients", FLAGOS_HOST_DELAY_US="20000", **variables
    ):
        assert "well" in output


@pytest.mark.host
def test_an_engine_that_was_asked_for_is_never_replaced():
    for end in launch("api.py", "flagos", ranks=2, timeout=60, FLAGOS_COMM_ENGINE="hccl"):
        assert end.status != 0
        assert "the engine hccl cannot be used (it was asked for)" in end.output
        assert "libhccl.so" in end.output and "FLAGOS_COMM_LIBRARY" in end.output
