"""Generators that take back what was drawn in a step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from vllm_flagos import generators

pytestmark = pytest.mark.host


def drawn(generator: torch.Generator) -> list[float]:
    values: list[float] = torch.empty(4, device="flagos").exponential_(generator=generator).tolist()
    return values


def test_a_draw_is_taken_back_as_vllm_does_it() -> None:
    assert generators.class_of_device() is generators.StepGenerator
    generator = generators.StepGenerator(device="flagos")
    assert generator.manual_seed(5) is generator
    plain = torch.Generator(device="flagos").manual_seed(5)
    first, second = drawn(plain), drawn(plain)
    for _ in range(3):  # parts of a prompt
        assert generator.get_offset() == 0
        assert drawn(generator) == first
        assert generator.get_offset() == 4
        generator.set_offset(generator.get_offset() - 4)
    assert drawn(generator) == first
    generators.begin_step(SimpleNamespace(input_batch=SimpleNamespace(generators={3: generator})))
    assert drawn(generator) == second != first
    generator.set_offset(generator.get_offset() - 4)
    assert drawn(generator) == second


def test_a_generator_without_a_seed() -> None:
    generator = generators.StepGenerator(device="flagos")
    assert generator.get_offset() == 0
    first = drawn(generator)
    generator.set_offset(0)
    assert drawn(generator) == first


def test_no_other_offset_is_taken() -> None:
    generator = generators.StepGenerator(device="flagos").manual_seed(5)
    with pytest.raises(ValueError, match="offset 8: this generator can go back to the step's"):
        generator.set_offset(8)
    with pytest.raises(RuntimeError, match="offset"):
        torch.Generator(device="flagos").set_offset(4)  # for which there is the class
