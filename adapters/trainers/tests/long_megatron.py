"""Megatron-LM-FL's `pretrain_gpt.py` on the host vendor, with mock data: one checkpoint, for every parallel way.

Megatron prints seven digits of a loss and four of a gradient's norm; the runs are compared in all of them. Without
dropout, as on the host vendor the device's random numbers are the CPU's, and the loader's draws of a resumed run move
them. MEGATRON_PATH names checkouts of Megatron-LM-FL, separated like a PATH, and TEFL_PATH one of TransformerEngine-FL
2.9, of which nothing has to be built: te-fl has its operators.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.trainers.tests.ranks import (
    FULL,
    KILLED,
    breaker,
    environment,
    folder,
    launch,
    results,
    small_disk,
    without,
)
from adapters.trainers.tests.ranks import checkout as checkout_of
from flagos_trainers import releases
from flagos_trainers.megatron import places, retarget

folder()
PATHS = [Path(path) for path in os.environ.get("MEGATRON_PATH", "").split(os.pathsep) if path]
if not PATHS:
    pytest.skip("MEGATRON_PATH names no checkouts of Megatron-LM-FL", allow_module_level=True)

MODEL = """--mock-data --tokenizer-type NullTokenizer --vocab-size 127 --make-vocab-size-divisible-by 64 --num-layers 4
    --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2
    --global-batch-size 8 --train-iters 6 --lr 1e-3 --min-lr 1e-4 --weight-decay 0.1 --clip-grad 1.0
    --lr-decay-style cosine --eval-iters 0 --eval-interval 100 --log-interval 1 --seed 11 --transformer-impl local
    --no-gradient-accumulation-fusion --no-persist-layer-norm --no-masked-softmax-fusion --no-rope-fusion
    --attention-dropout 0 --hidden-dropout 0 --distributed-timeout-minutes 5 --ckpt-format torch_dist"""
EXPERTS = """--num-experts 4 --moe-router-topk 2 --swiglu --disable-bias-linear
    --moe-token-dispatcher-type alltoall"""
SAVE = "--save-interval 3 --save"
LATEST = "latest_checkpointed_iteration.txt"
#: A checkpoint of the third of six iterations, and what all six print.
Saved = tuple[Path, dict[int, tuple[str, str]]]
PARALLEL = {
    "one rank": (1, ""),
    "tensor": (2, "--tensor-model-parallel-size 2"),
    "pipeline": (2, "--pipeline-model-parallel-size 2"),
    "data": (2, ""),
    "data, overlapped": (2, "--overlap-grad-reduce"),
}


def pretrain(
    checkout: Path,
    ranks: int,
    options: str,
    fails: bool = False,
    beside: tuple[Path, ...] = (),
    model: str = MODEL,
    **variables: str,
) -> str:
    names = {"FLAGOS_MEGATRON": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1", **variables}
    return launch(
        checkout / "pretrain_gpt.py",
        *model.split(),
        *options.split(),
        variables=environment(checkout, *beside, **names),
        ranks=ranks,
        fails=fails,
        timeout=900,
    )


def steps(output: str) -> dict[int, tuple[str, str]]:
    """Iteration → its loss and the norm of its gradient, as they are printed."""
    line = re.compile(r"iteration +(\d+)/.*lm loss: ([\d.E+-]+).*grad norm: ([\d.]+)")
    return {int(found[1]): (found[2], found[3]) for found in line.finditer(output)}


@pytest.fixture(
    scope="module", params=PATHS, ids=lambda path: str(retarget.version(path / "megatron"))
)
def checkout(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def saved(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A checkpoint of the third of six iterations, and all six."""
    place = tmp_path_factory.mktemp("saved")
    whole = steps(pretrain(checkout, 1, f"{SAVE} {place}"))
    (place / LATEST).write_text("3")
    return place, whole


@pytest.mark.parametrize("way", PARALLEL)
def test_a_run_goes_on_in_every_parallel_way(checkout: Path, saved: Saved, way: str) -> None:
    place, whole = saved
    ranks, options = PARALLEL[way]
    found = steps(pretrain(checkout, ranks, f"{options} --load {place}"))
    assert sorted(found) == [4, 5, 6] and sorted(whole) == [1, 2, 3, 4, 5, 6]
    # Megatron prints the mean of the first two losses for the second iteration after a start.
    assert (found[4], found[6]) == (whole[4], whole[6]) and found[5][1] == whole[5][1]


def test_experts_of_two_ranks_are_those_of_one(checkout: Path, tmp_path: Path) -> None:
    pretrain(checkout, 1, f"{EXPERTS} {SAVE} {tmp_path}")
    (tmp_path / LATEST).write_text("3")
    # Megatron does not give another number of ranks the state of an optimizer that is not distributed.
    load = f"{EXPERTS} --load {tmp_path} --no-load-optim"
    one = steps(pretrain(checkout, 1, load))
    two = steps(pretrain(checkout, 2, f"{load} --expert-model-parallel-size 2"))
    assert float(two[4][0]) == pytest.approx(float(one[4][0]), rel=1e-6)
    assert float(two[6][0]) == pytest.approx(float(one[6][0]), rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        "--bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
        # Megatron begins at 2**32, which would leave out all six steps.
        "--fp16 --initial-loss-scale 65536",
    ],
)
def test_a_distributed_optimizer_and_halves_learn(checkout: Path, options: str) -> None:
    found = steps(pretrain(checkout, 2, options))
    assert float(found[6][0]) < float(found[1][0]) - 0.3


# ---- The specification of TransformerEngine

ENGINE = "--transformer-impl transformer_engine"
# TransformerEngine has context parallelism in halves alone.
HALVES = f"{ENGINE} --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """`pretrain`, with TransformerEngine-FL and the metadata that its build would write."""
    path = checkout_of("TEFL_PATH", "transformer_engine/plugin/core/__init__.py")
    number = retarget.version(path / "transformer_engine")
    site = tmp_path_factory.mktemp("engine")
    (site / "transformer_engine.dist-info").mkdir()
    (site / "transformer_engine.dist-info" / "METADATA").write_text(
        f"Name: transformer_engine\nVersion: {number}\n"
    )

    def run(checkout: Path, ranks: int, options: str) -> str:
        output = pretrain(
            checkout, ranks, options, beside=(path, site), TE_FL_SKIP_CUDA="1", TE_FL_STRICT="1"
        )
        served = dict(re.findall(r"Op '(\w+)' using '([\w.]+)'", output))
        assert served["generic_gemm"] == served["layernorm_fwd"] == "default.flagos_rs", served
        return output

    return run


def test_the_engine_learns_what_the_local_specification_does(
    checkout: Path,
    saved: Saved,
    engine: Callable[..., str],
    tmp_path: Path,
) -> None:
    whole = steps(engine(checkout, 1, f"{ENGINE} {SAVE} {tmp_path}"))
    for step, (loss, _) in saved[1].items():
        assert float(whole[step][0]) == pytest.approx(float(loss), rel=2e-6)
    (tmp_path / LATEST).write_text("3")
    for parallel in ("--tensor-model-parallel-size 2 --sequence-parallel", PARALLEL["pipeline"][1]):
        found = steps(engine(checkout, 2, f"{ENGINE} {parallel} --load {tmp_path}"))
        for step in (4, 6):
            assert float(found[step][0]) == pytest.approx(float(whole[step][0]), rel=2e-6)
            assert float(found[step][1]) == pytest.approx(float(whole[step][1]), rel=2e-3)


def test_a_distributed_optimizer_goes_on_in_data_and_context_parallel(
    checkout: Path, engine: Callable[..., str], tmp_path: Path
) -> None:
    whole = steps(engine(checkout, 1, f"{HALVES} {SAVE} {tmp_path}"))
    for parallel in ("", "--context-parallel-size 2"):
        (tmp_path / LATEST).write_text("3")
        found = steps(engine(checkout, 2, f"{HALVES} {parallel} --load {tmp_path}"))
        assert sorted(found) == [4, 5, 6]
        for step in (4, 6):
            # bf16 has three digits.
            assert float(found[step][0]) == pytest.approx(float(whole[step][0]), rel=1e-3)
            assert float(found[step][1]) == pytest.approx(float(whole[step][1]), rel=2e-2)


def test_grouped_experts_of_two_ranks_are_those_of_one(
    checkout: Path, engine: Callable[..., str], tmp_path: Path
) -> None:
    grouped = f"{HALVES} {EXPERTS} --moe-grouped-gemm"
    whole = steps(engine(checkout, 1, f"{grouped} {SAVE} {tmp_path}"))
    (tmp_path / LATEST).write_text("3")
    # TransformerEngine's extra states of grouped experts have names by rank; they are of FP8 alone. Megatron does not
    # give another number of ranks the optimizer's state, so that the fourth step has the same gradient, and the fifth
    # another optimizer.
    parallel = "--expert-model-parallel-size 2 --dist-ckpt-strictness ignore_all --no-load-optim"
    found = steps(engine(checkout, 2, f"{grouped} {parallel} --load {tmp_path}"))
    assert float(found[4][0]) == pytest.approx(float(whole[4][0]), rel=1e-3)
    assert float(found[4][1]) == pytest.approx(float(whole[4][1]), rel=2e-2)
    assert float(found[6][0]) < float(found[4][0])


def test_every_place_is_in_the_table(checkout: Path) -> None:
    version = str(retarget.version(checkout / "megatron"))
    assert version in releases.MEGATRON.values()
    assert retarget.scan(checkout / "megatron") == places.of("megatron", version)


def test_the_doubles_have_megatrons_names(checkout: Path) -> None:
    program = (
        "import json\nfrom megatron.plugin.platform.platform_base import PlatformBase as P\n"
        "print('RESULT', json.dumps({'case': 'names', 'names': sorted(P.__abstractmethods__)}))"
    )
    found = []
    for path in (checkout, Path(__file__).with_name("seam")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(path),
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(results(done.stdout)["names"]["names"])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("fault", "message"),
    [(KILLED, "Signal 9"), (without("aten::exp.out"), "aten::exp.out is blocked")],
    ids=["killed", "kernel"],
)
def test_a_broken_rank_ends_the_job_and_leaves_the_checkpoint(
    checkout: Path, saved: Saved, tmp_path: Path, fault: str, message: str
) -> None:
    place = tmp_path / "saved"
    beside = (breaker(tmp_path, place / LATEST, fault),)
    # The last of 200 iterations is far, and the rates of learning are those of six.
    options = f"--train-iters 200 --lr-decay-iters 6 {SAVE} {place}"
    output = pretrain(checkout, 2, options, fails=True, beside=beside)
    assert message in output, output[-4000:]
    goes_on(checkout, saved, place)


def test_a_full_disk_ends_the_job_and_leaves_the_checkpoint(
    checkout: Path, saved: Saved, tmp_path: Path
) -> None:
    # A checkpoint has 2.6 MB.
    with small_disk(tmp_path, 4) as place:
        output = pretrain(checkout, 2, f"{SAVE} {place}", fails=True)
        assert FULL.search(output), output[-4000:]
        goes_on(checkout, saved, place)


def test_a_missing_extension_of_megatron_is_named_and_leaves_the_checkpoint(
    checkout: Path, saved: Saved, tmp_path: Path
) -> None:
    place = tmp_path / "saved"
    shutil.copytree(saved[0], place)
    fused = MODEL.replace("--no-gradient-accumulation-fusion", "")
    output = pretrain(checkout, 2, f"--load {place} {SAVE} {place}", fails=True, model=fused)
    assert "CUDA extension fused_weight_gradient_mlp_cuda module is not found" in output
    goes_on(checkout, saved, place)


def goes_on(checkout: Path, saved: Saved, place: Path) -> None:
    """Loads the checkpoint of the third iteration, and has the next losses of the uninterrupted run."""
    assert (place / LATEST).read_text() == "3"
    found = steps(pretrain(checkout, 2, f"--load {place} --override-opt-param-scheduler"))
    # Megatron prints the mean of the first two losses for the second iteration after a start.
    assert (found[4], found[6]) == (saved[1][4], saved[1][6])
