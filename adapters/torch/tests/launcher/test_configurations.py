"""FlagGems' tuned kernels run the configuration that was verified, without measuring, unless another is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.torch.tests.launcher import simulated
from torch_fl.flaggems import configurations

pytestmark = pytest.mark.host

pytest.importorskip("triton", minversion="3.6")
if find_spec("flag_gems") is None:
    pytest.skip("FlagGems is not installed (make test-flaggems)", allow_module_level=True)


@pytest.fixture
def gems(driver: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with simulated.flaggems() as found, simulated.any_memory():
        configurations.install()
        configurations.named.cache_clear()
        yield found
        configurations.named.cache_clear()


@pytest.fixture
def measured(driver: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations that were measured, of which each takes a millisecond longer than the one before."""
    from triton.runtime.autotuner import Autotuner

    found: list[Any] = []

    def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        found.append(config)
        return [float(len(found))] * 3

    monkeypatch.setattr(Autotuner, "_bench", bench)
    return found


def products(m: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, m, 64).bfloat16(), torch.randn(2, 64, 128).bfloat16()


def bmm(gems: Any, m: int) -> tuple[str, dict[str, Any], Any]:
    """The kernel that `bmm` launched, its configuration as arguments, and its tuner."""
    from flag_gems.utils.libentry import LibTuner

    seen: list[Any] = []
    launch = configurations.launch

    def noted(tuner: Any, config: Any, *rest: Any) -> Any:
        seen[:] = [tuner, config]
        return launch(tuner, config, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configurations, "launch", noted)
        gems.bmm(*products(m))
    tuner, config = seen
    assert isinstance(tuner, LibTuner)
    return configurations.name(tuner), configurations.plain(config), tuner


def test_nothing_is_measured(gems: Any, measured: list[Any]) -> None:
    before = configurations.statistics()
    _, config, tuner = bmm(gems, 96)
    assert measured == [] and len(tuner.configs) > 1
    after = configurations.statistics()
    assert (after.verified, after.tuned) == (before.verified + 1, before.tuned)
    gems.bmm(*products(96))
    assert configurations.statistics() == after, "once for a key"
    assert config in [configurations.plain(one) for one in tuner.configs]
    assert "in the configuration that was verified" in configurations.description()


def test_it_is_the_configuration_that_verification_runs(gems: Any, measured: list[Any]) -> None:
    from torch_fl_tools.flaggems.recorded.tuning import choosing

    kernel, config, _ = bmm(gems, 160)
    with choosing(0) as choice:
        gems.bmm(*products(160))
    assert list(choice.chosen[kernel].values()) == [config]
    assert choice.configurations > 1


def test_flaggems_measures_where_it_is_asked_to(
    gems: Any, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(configurations.VARIABLE, "on")
    before = configurations.statistics()
    gems.bmm(*products(224))
    assert len(measured) > 1
    assert configurations.statistics().tuned == before.tuned + 1
    assert "tuned at first use" in configurations.description()
    monkeypatch.delenv(configurations.VARIABLE)
    count = len(measured)
    with configurations.tuning():
        gems.bmm(*products(600))
    assert len(measured) > count, "and where `flagos verify` does"


def test_a_file_names_another(
    gems: Any, measured: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys: list[str] = []
    key = configurations.key
    monkeypatch.setattr(configurations, "key", lambda *given: keys.append(key(*given)) or keys[-1])
    kernel, config, tuner = bmm(gems, 320)
    other = next(one for one in map(configurations.plain, tuner.configs) if one != config)
    assert keys[0].startswith("(512,")
    path = tmp_path / "tuning.json"
    named = {keys[0].replace("512", "2048"): other, keys[0].replace("512", "4096"): {"BLOCK": 3}}
    path.write_text(json.dumps({"configurations": {kernel: named}}))
    monkeypatch.setenv(configurations.VARIABLE, str(path))
    configurations.named.cache_clear()
    before = configurations.statistics().named
    assert bmm(gems, 2048)[1] == other
    assert configurations.statistics().named == before + 1
    assert bmm(gems, 8192)[1] != other, "a key that it does not name"
    assert bmm(gems, 4096)[1] in map(configurations.plain, tuner.configs), "one that is none"
    assert configurations.statistics().named == before + 1
    assert measured == []


def test_kernels_of_the_program_are_tuned_as_triton_does(gems: Any, measured: list[Any]) -> None:
    import triton

    from adapters.torch.tests.launcher import kernels

    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
    tuned = triton.autotune(configs=configs, key=["n"])(kernels.add)
    x = simulated.tensor(64, torch.float32)
    tuned[(1,)](x, x, x, 48)
    assert measured == configs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no tuning file"),
        ("[]", "is no tuning file"),
        ('{"configurations": {"mm": 3}}', "has no configuration by kernel and key"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        configurations.read(path)


def test_a_value_that_names_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(configurations.VARIABLE, "fast")
    with pytest.raises(
        ValueError, match="FLAGOS_TUNING=fast: expected `off`, `on`, or a tuning file"
    ):
        configurations.policy()
