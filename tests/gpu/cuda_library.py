"""torch on the core's own CUDA memory and streams: the vendor cuda as a library, with a handful of kernels.

    python -m tests.gpu.cuda_library [--vendors dist/vendors] [--json FILE]

On an NVIDIA machine, with what `make cuda-as-library` builds. torch does not compute here: the kernels of the library
are launched by the core's launcher, and everything else by the CPU on copies. Each check compares with the CPU; the
report says how many calls there were, and how many fell back.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "cudalib"


def pointwise() -> None:
    import torch

    x, y = torch.randn(33, 65), torch.randn(65)
    there, other = x.to("flagos"), y.to("flagos")
    for function in (
        lambda a, b: a + b,
        lambda a, b: a * b,
        lambda a, b: torch.add(a, b, alpha=3),
        lambda a, b: (a * 2.5).relu(),
        lambda a, b: a.t() * a.t(),
        lambda a, b: a[:, ::2] + a[:, 1::2][:, :1],
        lambda a, b: a[:0] + b,
    ):
        _close(function(there, other), function(x, y))
    _require_no_fallbacks("add.Tensor", "mul.Tensor", "relu")


def products() -> None:
    import torch

    for shape in ((1, 1, 1), (7, 5, 3), (64, 64, 64), (129, 257, 65)):
        a, b = torch.randn(shape[0], shape[1]), torch.randn(shape[1], shape[2])
        _close(a.to("flagos") @ b.to("flagos"), a @ b)
        _close(b.to("flagos").t() @ a.to("flagos").t(), b.t() @ a.t())
    _require_no_fallbacks("mm")


def in_place_and_views() -> None:
    import torch

    x = torch.zeros(6, 8)
    there = x.to("flagos")
    for t in (x, there):
        t.fill_(2)
        t[1:3, ::2].mul_(4)
        t[:, :4].copy_(t[:, 4:] * 3)
        torch.mul(t, 0.5, out=t)
    _close(there, x)


def streams() -> None:
    import torch

    side = torch.Stream("flagos")
    x = torch.randn(1 << 20)
    there = x.to("flagos")
    event = torch.Event("flagos")
    with side:
        y = there * 2
        event.record(side)
    torch.accelerator.current_stream().wait_event(event)
    y.record_stream(torch.accelerator.current_stream())
    _close(y + there, x * 3)


def threads(count: int = 8, operations: int = 10_000) -> None:
    import torch

    wrong: list[str] = []

    def work(seed: int) -> None:
        stream = torch.Stream("flagos")
        with stream:
            x = torch.full((16,), 0.0, device="flagos")
            for _ in range(operations):
                x.add_(seed)
            found = x.tolist()
        if found != [float(seed * operations)] * 16:
            wrong.append(f"thread {seed}: {found[0]}, not {seed * operations}")

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, count + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if wrong:
        raise AssertionError("; ".join(wrong))


def training() -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 4))
    there = copy.deepcopy(model).to("flagos")
    inputs, targets = torch.randn(64, 32), torch.randint(0, 4, (64,))
    losses = {}
    for device, trained in (("cpu", model), ("flagos", there)):
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
        found = losses.setdefault(device, [])
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(trained(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    torch.testing.assert_close(
        torch.tensor(losses["flagos"]), torch.tensor(losses["cpu"]), rtol=1e-3, atol=1e-4
    )


def qwen3() -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=128,
    )
    model = Qwen3ForCausalLM(config)
    there = copy.deepcopy(model).to("flagos")
    batches = torch.randint(0, 512, (10, 4, 32))
    losses = {}
    for device, trained in (("cpu", model), ("flagos", there)):
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
        found = losses.setdefault(device, [])
        for batch in batches.to(device):
            optimizer.zero_grad()
            loss = trained(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    torch.testing.assert_close(
        torch.tensor(losses["flagos"]), torch.tensor(losses["cpu"]), rtol=1e-3, atol=1e-4
    )


def memory() -> None:
    """Freed blocks are used again, and a request beyond the device is refused with both numbers."""
    import torch

    free, total = torch.flagos.mem_get_info()
    assert 0 < free <= total
    for _ in range(100):
        torch.empty(1 << 26, device="flagos")
    assert torch.flagos.memory_allocated() < 1 << 28
    try:
        torch.empty(total * 2, dtype=torch.uint8, device="flagos")
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("twice the memory was given")
    assert torch.ones(2, device="flagos").tolist() == [1, 1]


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        pointwise,
        products,
        in_place_and_views,
        streams,
        threads,
        training,
        qwen3,
        memory,
    )
}


def _close(there: Any, here: Any) -> None:
    import torch

    assert there.device.type == "flagos"
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-4)


def _require_no_fallbacks(*operators: str) -> None:
    import torch_fl

    counters = torch_fl.counters()
    fell_back = {name: counters[f"aten::{name}"]["fallbacks"] for name in operators}
    assert not any(fell_back.values()), fell_back


def costs(iterations: int = 5_000) -> dict[str, float]:
    """Microseconds of a call from Python, on 8×8 float32."""
    import torch

    x, y = torch.ones(8, 8, device="flagos"), torch.ones(8, 8, device="flagos")
    calls = {
        "add": lambda: torch.add(x, y),
        "add_": lambda: x.add_(y),
        "empty": lambda: torch.empty(8, 8, device="flagos"),
    }
    found = {}
    for name, call in calls.items():
        for _ in range(iterations // 10):
            call()
        torch.flagos.synchronize()
        begun = time.perf_counter()
        for _ in range(iterations):
            call()
        found[name] = (time.perf_counter() - begun) / iterations * 1e6
        torch.flagos.synchronize()
    return found


def main() -> int:
    """Runs every check, also after one that fails; returns 1 if one did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--vendors", type=Path, default=Path("dist/vendors"))
    parser.add_argument("--json", type=Path, help="write the report here")
    options = parser.parse_args()
    os.environ["FLAGOS_VENDOR"] = NAME
    os.environ["FLAGOS_VENDOR_PATH"] = str(options.vendors.resolve())

    import torch

    import torch_fl
    from flagos import _core

    info = _core.vendor_info()
    if (info["name"], info["serving"]) != (NAME, "library"):
        sys.exit(f"{info['name']}, served by {info['serving']}, instead of {NAME} by its library")
    report: dict[str, Any] = {"device": torch.flagos.get_device_name(0), "checks": {}}
    for name, check in CHECKS.items():
        torch_fl.reset_counters()
        begun = time.perf_counter()
        try:
            check()
            outcome = "ok"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        found = torch_fl.counters().values()
        report["checks"][name] = {
            "outcome": outcome,
            "seconds": round(time.perf_counter() - begun, 2),
            "calls": sum(count["calls"] for count in found),
            "fallbacks": sum(count["fallbacks"] for count in found),
        }
        print(name, report["checks"][name], flush=True)
    report["microseconds"] = costs()
    print(report["device"], report["microseconds"])
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return int(any(check["outcome"] != "ok" for check in report["checks"].values()))


if __name__ == "__main__":
    sys.exit(main())
