"""torchtitan's debug model on two ranks of the host vendor. TORCHTITAN_PATH names a checkout of v0.2.2.

It has no run on the CPU, so one rank on flagos is what the parallel ways are compared with.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from adapters.trainers.tests.ranks import (
    FULL,
    KILLED,
    breaker,
    checkout,
    environment,
    folder,
    launch,
    small_disk,
    without,
)

folder()
TITAN = checkout("TORCHTITAN_PATH", "torchtitan/train.py")
# Megabytes: a checkpoint has 74.
DISK = 110
OPTIONS = """--training.steps 6 --training.seq_len 128 --training.local_batch_size 2 --metrics.log_freq 1 --debug.seed 5
    --training.dataset c4_test"""
SAVE = "--checkpoint.enable --checkpoint.interval 3"
WORDS = "the pilot said that she wanted to see the harbour before the ship came in".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some texts."""
    place = tmp_path_factory.mktemp("words")
    texts = (
        " ".join(WORDS[(7 * i + j * (1 + i % 5)) % len(WORDS)] for j in range(60))
        for i in range(400)
    )
    (place / "data.json").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return place


def train(
    words: Path,
    place: Path,
    options: str = "",
    ranks: int = 2,
    fails: bool = False,
    beside: tuple[Path, ...] = (),
) -> str:
    config = TITAN / "torchtitan/models/llama3/train_configs/debug_model.toml"
    given = f"--job.config_file {config} --job.dump_folder {place} --training.dataset_path {words} {OPTIONS} {options}"
    variables = environment(TITAN, *beside, HF_HUB_OFFLINE="1")
    return launch(
        TITAN / "torchtitan/train.py",
        *given.split(),
        variables=variables,
        ranks=ranks,
        timeout=900,
        cwd=TITAN,
        fails=fails,
    )


def losses(output: str) -> dict[int, float]:
    """Step → its loss."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    return {
        int(step): float(loss) for step, loss in re.findall(r"step: +(\d+) +loss: +([\d.]+)", plain)
    }


@pytest.fixture(scope="module")
def alone(words: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of one rank."""
    return losses(train(words, tmp_path_factory.mktemp("alone"), ranks=1))


@pytest.mark.parametrize(
    "options",
    ["--parallelism.tensor_parallel_degree 2", "--parallelism.pipeline_parallel_degree 2"],
)
def test_a_split_model_learns_what_one_rank_learns(
    words: Path, tmp_path: Path, alone: dict[int, float], options: str
) -> None:
    found = losses(train(words, tmp_path, options))
    assert sorted(found) == sorted(alone) == [1, 2, 3, 4, 5, 6]
    for step, loss in found.items():
        assert loss == pytest.approx(alone[step], rel=5e-2), (step, found, alone)
    assert found[6] < found[1] - 2


@pytest.mark.parametrize("mode", ["disabled", "async"])
def test_fsdp_goes_on_from_a_checkpoint(words: Path, tmp_path: Path, mode: str) -> None:
    options = f"{SAVE} --checkpoint.async_mode {mode}"
    whole = losses(train(words, tmp_path, options))
    last = tmp_path / "checkpoint" / "step-6"
    assert last.is_dir()
    last.rename(tmp_path / "step-6")
    resumed = losses(train(words, tmp_path, options))
    assert resumed == {step: loss for step, loss in whole.items() if step > 3}


def test_a_compiled_model_learns_the_same(words: Path, tmp_path: Path) -> None:
    eager, compiled = (
        losses(train(words, tmp_path / name, option))
        for name, option in (("a", ""), ("b", "--compile.enable"))
    )
    for step, loss in compiled.items():
        assert loss == pytest.approx(eager[step], rel=2e-2)


SAVE_OFTEN = "--checkpoint.enable --checkpoint.interval 2"


@pytest.fixture(scope="module")
def whole(words: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of a run that nothing happens to."""
    return losses(train(words, tmp_path_factory.mktemp("whole"), SAVE_OFTEN))


@pytest.mark.parametrize(
    ("fault", "message"),
    [(KILLED, "Signal 9"), (without("aten::_log_softmax"), "aten::_log_softmax is blocked")],
    ids=["killed", "kernel"],
)
def test_a_broken_rank_ends_the_job_and_leaves_the_checkpoint(
    words: Path, tmp_path: Path, whole: dict[int, float], fault: str, message: str
) -> None:
    place = tmp_path / "broken"
    # A folder of a checkpoint with metadata is whole.
    beside = (breaker(tmp_path, place / "checkpoint" / "step-2" / ".metadata", fault),)
    assert message in train(words, place, SAVE_OFTEN, fails=True, beside=beside)
    resumed = losses(train(words, place, SAVE_OFTEN))
    assert resumed == {step: whole[step] for step in resumed}
    assert min(resumed) in (3, 5) and max(resumed) == 6


def test_a_full_disk_ends_the_job_and_leaves_the_checkpoint(
    words: Path, tmp_path: Path, whole: dict[int, float]
) -> None:
    # There is room for one checkpoint.
    with small_disk(tmp_path, DISK) as disk:
        output = train(words, disk, SAVE_OFTEN, fails=True)
        shutil.copytree(disk, tmp_path / "larger")
    assert FULL.search(output), output[-4000:]
    resumed = losses(train(words, tmp_path / "larger", SAVE_OFTEN))
    assert resumed == {step: whole[step] for step in (3, 4, 5, 6)}


@pytest.mark.parametrize(
    ("ranks", "options", "message"),
    [
        # torchtitan does not give the texts of a rank to other ranks.
        (1, "", "dp_degree is inconsistent before and after checkpoint"),
        (2, "--model.converters quantize.linear.float8", "float8 is only supported on SM89"),
    ],
    ids=["ranks", "float8"],
)
def test_a_refused_run_leaves_the_checkpoint(
    words: Path,
    tmp_path: Path,
    whole: dict[int, float],
    ranks: int,
    options: str,
    message: str,
) -> None:
    train(words, tmp_path, SAVE_OFTEN)
    for step in (4, 6):
        shutil.rmtree(tmp_path / "checkpoint" / f"step-{step}")
    refused = train(words, tmp_path, f"{SAVE_OFTEN} {options}", ranks=ranks, fails=True)
    assert message in refused, refused[-4000:]
    resumed = losses(train(words, tmp_path, SAVE_OFTEN))
    assert resumed == {step: whole[step] for step in (3, 4, 5, 6)}


def test_a_split_model_goes_on_with_another_number_of_ranks(words: Path, tmp_path: Path) -> None:
    whole = losses(train(words, tmp_path, f"{SAVE} --parallelism.tensor_parallel_degree 2"))
    for ranks, options in ((1, ""), (2, "--parallelism.pipeline_parallel_degree 2")):
        shutil.rmtree(tmp_path / "checkpoint" / "step-6")
        resumed = losses(train(words, tmp_path, f"{SAVE} {options}", ranks=ranks))
        assert sorted(resumed) == [4, 5, 6]
        for step, loss in resumed.items():
            assert loss == pytest.approx(whole[step], rel=2e-3), (step, resumed, whole)
