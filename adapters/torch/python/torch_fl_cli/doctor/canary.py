"""Small computations on the device, each compared with the CPU; runs in a process of its own.

The comparison itself is put to the test first: it must notice a single wrong bit and a result that
never was on the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from flagos.processes.reports import report

if TYPE_CHECKING:
    import torch

DEVICE = "flagos"
NOBODYS = "privateuseone"
"""torch's name for out-of-tree devices while no package has registered its own."""


class Mismatch(Exception):
    """The device did not compute what the CPU computes."""


def compare(result: torch.Tensor, expected: torch.Tensor) -> None:
    """Raises unless ``result`` is on the device and is ``expected`` up to rounding."""
    import torch

    if result.device.type != DEVICE:
        raise Mismatch(f"the result is on {result.device}, not on {DEVICE}")
    on_host = result.detach().cpu()
    # The loosest difference between two correct f32 kernels of these sizes.
    if on_host.shape != expected.shape or not torch.allclose(
        on_host, expected, rtol=1e-5, atol=1e-5
    ):
        difference = "shape" if on_host.shape != expected.shape else "values"
        raise Mismatch(f"{difference} differ from the CPU's")


def negative_control() -> None:
    """Checks that the comparison refuses a wrong value, and the right value on the wrong device."""
    import torch

    right = torch.arange(16.0)
    wrong = right.clone()
    wrong[7] += 1
    compare(right.to(DEVICE), right)
    for lie, what in ((wrong.to(DEVICE), "a wrong value"), (right, "a result left on the CPU")):
        try:
            compare(lie, right)
        except Mismatch:
            continue
        raise Mismatch(f"the comparison accepts {what}: the other canaries prove nothing")


def copy_both_ways() -> None:
    """Host to device, on the device, device to host."""
    import torch

    values = torch.randn(1 << 16)
    there = values.to(DEVICE)
    if not torch.equal(there.clone().cpu(), values):
        raise Mismatch("values changed on the way to the device and back")
    compare(there, values)


def mm() -> None:
    """A matrix product."""
    import torch

    a, b = torch.randn(64, 32), torch.randn(32, 48)
    compare(a.to(DEVICE) @ b.to(DEVICE), a @ b)


def softmax() -> None:
    """A reduction with a special function."""
    import torch

    x = torch.randn(32, 100)
    compare(torch.softmax(x.to(DEVICE), -1), torch.softmax(x, -1))


def backward() -> None:
    """Gradients through a linear layer and an activation."""
    import torch

    x, weight = torch.randn(8, 16), torch.randn(4, 16)

    def gradient(device: str) -> torch.Tensor:
        w = weight.detach().to(device).requires_grad_()
        torch.nn.functional.silu(torch.nn.functional.linear(x.to(device), w)).sum().backward()
        if w.grad is None:
            raise Mismatch("backward left no gradient")
        return w.grad

    compare(gradient(DEVICE), gradient("cpu"))


def streams() -> None:
    """Work queued on a side stream is visible after waiting for it."""
    import torch

    values = torch.randn(1024)
    side = torch.Stream(device=DEVICE)
    with side:
        there = values.to(DEVICE) * 2
    side.synchronize()
    compare(there, values * 2)


def repeats() -> None:
    """Calls that repeat, which automatic graphs follow where the vendor has them."""
    import torch

    values = torch.randn(1024)
    expected, followed = values, values.to(DEVICE)
    supported = bool(torch.ops.flagos.graphs_supported())
    graphs = getattr(torch, DEVICE).graphs
    before = graphs.counts()
    with graphs.auto(supported):
        for turn in range(20):
            expected, followed = values + turn, values.to(DEVICE) + turn
            for _ in range(40):
                expected, followed = expected * 0.5 + 1, followed * 0.5 + 1
        compare(followed, expected)
        after = graphs.counts()
    report(
        "graphs",
        calls=after["calls"] - before["calls"],
        followed=after["followed"] - before["followed"],
        held=after["bytes held"],
    )


CANARIES: tuple[Callable[[], None], ...] = (
    negative_control,
    copy_both_ways,
    mm,
    softmax,
    backward,
    streams,
    repeats,
)


def main() -> int:
    """Reports how the device got there, then one line per canary."""
    import torch

    autoloaded = hasattr(torch, DEVICE)
    if torch._C._get_privateuse1_backend_name() == NOBODYS:
        # Also where `import torch` waits with registering, because torch has the device under another name.
        import torch_fl  # noqa: F401
    report(
        "device",
        autoloaded=autoloaded,
        owner=torch._C._get_privateuse1_backend_name(),
        count=torch.accelerator.device_count(),
    )
    torch.manual_seed(0)
    failed = False
    for canary in CANARIES:
        # Reported before the canary runs: if the process dies, the last line names the canary.
        report("started", canary=canary.__name__)
        try:
            canary()
        except Exception as error:
            failed = True
            # A check is one line; the table of an out-of-memory error is not.
            first_line = str(error).partition("\n")[0]
            report(canary.__name__, passed=False, reason=f"{type(error).__name__}: {first_line}")
        else:
            report(canary.__name__, passed=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
