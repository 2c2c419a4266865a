"""Eight threads share one set of parameters, and every number still comes out exact.

All values are small integers in float32, so sums are exact in whatever order threads add them:
a single wrong bit means that one thread saw another one's state.

The second half is the negative control: the other known way to lend a device tensor to native
kernels, which changes the device of the shared storage and changes it back, fails the very same
check.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional

THREADS = 8
OPERATIONS = 10_000  # of each thread

# Runs one thread's work. Returns what went wrong, or None.
Work = Callable[[int], str | None]


def run_in_threads(work: Work) -> list[str]:
    """Starts THREADS threads at the same moment and returns what went wrong in any of them."""
    failures: list[str] = []
    start = threading.Barrier(THREADS)

    def body(index: int) -> None:
        try:
            start.wait()
            failure = work(index)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        if failure is not None:
            failures.append(f"thread {index}: {failure}")

    threads = [threading.Thread(target=body, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_threads_share_parameters_on_flagos() -> None:
    pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

    # One round is 14 operators forward and at least as many backward, counting what autograd calls
    # for each of them (relu, two linears, product, sum, views).
    operations_per_round = 26
    rounds = -(-OPERATIONS // operations_per_round)

    def integers(*shape: int, seed: int) -> Tensor:
        drawn = torch.Generator().manual_seed(seed)
        return torch.randint(-3, 4, shape, generator=drawn).float()

    def forward(inputs: Tensor, first: Tensor, second: Tensor, bias: Tensor) -> Tensor:
        hidden = functional.relu(functional.linear(inputs, first, bias))
        hidden = hidden.view(4, 2, 4).transpose(0, 1).reshape(4, 8)
        outputs = functional.linear(hidden, second).t() * 2
        left, right = outputs.chunk(2)
        return (torch.cat([left, right]).add(1) * outputs.detach()).sum()

    weights = [integers(8, 8, seed=1), integers(6, 8, seed=2), integers(8, seed=3)]
    inputs = [integers(4, 8, seed=10 + index) for index in range(THREADS)]

    # The expected results of each thread, computed on the CPU by one thread.
    expected = []
    for own in inputs:
        leaves = [weight.clone().requires_grad_() for weight in weights]
        loss = forward(own, *leaves)
        loss.backward()
        expected.append((loss.detach(), [leaf.grad for leaf in leaves]))

    shared = [weight.to("flagos").requires_grad_() for weight in weights]

    def work(index: int) -> str | None:
        own = inputs[index].to("flagos")
        expected_loss, expected_gradients = expected[index]
        for round_ in range(rounds):
            loss = forward(own, *shared)
            if not torch.equal(loss.detach().cpu(), expected_loss):
                return f"round {round_}: loss {loss.item()}, expected {expected_loss.item()}"
            if round_ % 2:
                # Into the shared .grad, as data-parallel threads do.
                loss.backward()
                continue
            for found, wanted in zip(
                torch.autograd.grad(loss, shared), expected_gradients, strict=True
            ):
                if not torch.equal(found.cpu(), wanted):
                    return f"round {round_}: a gradient differs"
        return None

    assert run_in_threads(work) == []
    backward_calls = rounds // 2
    for position, parameter in enumerate(shared):
        total = sum(gradients[position] for _, gradients in expected) * backward_calls
        assert total.abs().max() < 2**24, "beyond exact float32 integers: the test proves nothing"
        assert torch.equal(parameter.grad.cpu(), total)


# The negative control: a device tensor lent to a kernel that insists on native tensors, in miniature.


@dataclass
class Storage:
    """Memory and the device it claims to be on. Shared by all views of it."""

    device: str
    value: int


class WrongDevice(Exception):
    """A kernel was handed a tensor of another device."""


def native_kernel(storage: Storage) -> int:
    """Reads a native storage. Gives way meanwhile as a kernel of some length does, so that races show."""
    for _ in range(2):
        if storage.device != "native":
            raise WrongDevice(f"expected native, got {storage.device}")
        time.sleep(1e-4)
    return storage.value


def call_by_retagging(shared: Storage) -> int:
    """Changes the shared storage's device for the length of the call."""
    if shared.device != "flagos":
        raise WrongDevice(f"expected flagos, got {shared.device}")
    shared.device = "native"
    try:
        return native_kernel(shared)
    finally:
        shared.device = "flagos"


def call_by_twin(shared: Storage) -> int:
    """Hands the kernel a native storage of its own over the same memory."""
    if shared.device != "flagos":
        raise WrongDevice(f"expected flagos, got {shared.device}")
    return native_kernel(Storage("native", shared.value))


def miniature(call: Callable[[Storage], int]) -> Work:
    """Calls on one storage that all threads share."""
    shared = Storage("flagos", 42)

    def work(_index: int) -> str | None:
        for operation in range(500):
            if call(shared) != 42:
                return f"operation {operation}: another value"
        return None

    return work


def test_retagging_shared_storage_fails_the_check() -> None:
    failures = run_in_threads(miniature(call_by_retagging))
    assert failures
    assert all("WrongDevice" in failure for failure in failures)


def test_twin_storage_passes_the_check() -> None:
    assert run_in_threads(miniature(call_by_twin)) == []
