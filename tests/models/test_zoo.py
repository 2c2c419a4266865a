"""A few of the architectures of `python -m tests.models.zoo`, and that it can see a difference."""

from __future__ import annotations

import pytest
import torch

from tests.models import zoo


@pytest.fixture
def devices(native):
    return native, "flagos"


@pytest.mark.host  # other vendors add in an order of their own
@pytest.mark.parametrize(
    ("kind", "name", "model_type"),
    [
        ("writes", "MixtralForCausalLM", "mixtral"),
        ("writes", "MambaForCausalLM", "mamba"),
        ("translates", "T5ForConditionalGeneration", "t5"),
        ("sees", "ConvNextForImageClassification", "convnext"),
    ],
)
def test_models_of_transformers_are_those_of_the_cpu(kind, name, model_type, devices):
    assert zoo.judge(kind, name, model_type, "default", devices)[0] == "same"


def test_a_difference_in_the_last_bit_is_seen(monkeypatch, devices):
    def run(kind, name, config, device):
        shown = real(kind, name, config, device)
        if device == "flagos":
            what, value = shown[-1]
            value = value.clone()
            value.view(-1)[-1:].view(torch.int32).bitwise_xor_(1)
            shown[-1] = what, value
        return shown

    real = zoo.run
    monkeypatch.setattr(zoo, "run", run)
    verdict, why = zoo.judge("fills", "BertForMaskedLM", "bert", "default", devices)
    assert verdict == "differs" and why.startswith("training.weight.")


def test_what_cannot_be_built_is_not_counted_as_the_same(devices):
    verdict, why = zoo.judge("writes", "NoSuchForCausalLM", "gpt2", "default", devices)
    assert verdict == "not built" and "NoSuchForCausalLM" in why


def test_nan_is_no_number_and_zeros_have_signs():
    nan, zero = torch.tensor([float("nan")]), torch.zeros(1)
    assert zoo.equal(nan, nan.clone()) and zoo.equal(torch.tensor(1.0), torch.tensor(1.0))
    assert not zoo.equal(nan, zero) and not zoo.equal(zero, -zero)


def test_what_is_close_is_no_other_model():
    one, rounded = torch.ones(2), torch.tensor([1.0, 1.001])
    assert not zoo.equal(one, rounded) and zoo.equal(one, rounded, close=True)
    assert not zoo.equal(one, torch.tensor([1.0, 1.01]), close=True)
    assert not zoo.equal(torch.tensor([3]), torch.tensor([4]), close=True)


def test_close_models_drop_nothing_out(devices):
    config = zoo.without_dropout(zoo.configuration("bert", {}))
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0
    assert (
        zoo.judge("fills", "BertForMaskedLM", "bert", "default", devices, close=True)[0] == "same"
    )
