"""Many threads use the device in every way at once for a while, and every number must come out right.

    python -m tests.gpu.soak [--minutes 10] [--threads 6] [--seed N] [--json FILE] [--sabotage KIND]

Each thread draws workloads by its own seed: streams that wait for each other, pinned copies, memory
made and freed on several streams, backward passes, recorded graphs, views shared with CUDA, and
running out of memory. Values are small integers, so that results are exact, and each is compared with
one computed on the CPU or known beforehand. In the end all memory must be back.

`--sabotage` is the control: it makes the mistake it names, and the run must fail. On the host vendor
there are no graphs and no CUDA; its copies are delayed at random, so that mistakes in ordering show.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SABOTAGE = {
    "wait": "a stream reads what another writes without waiting for it",
    "buffer": "one number of a buffer is changed",
    "replay": "a recorded graph is not replayed (needs CUDA)",
    "leak": "a tensor is kept",
}
MIB = 1 << 20
TOO_MANY = 10  # failures after which there is nothing more to learn


def on_cuda() -> bool:
    """Whether CUDA serves flagos here."""
    return bool(torch.flagos.get_device_properties().vendor == "cuda")


class Turns:
    """Any number of threads work, or one of them has the device for itself."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._places = threading.Semaphore(threads)
        self._one_at_a_time = threading.Lock()

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._places:
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._one_at_a_time:
            for _ in range(self._threads):
                self._places.acquire()
            try:
                yield
            finally:
                self._places.release(self._threads)


class Worker:
    """One thread's stream of random workloads."""

    def __init__(self, seed: str, turns: Turns, sabotage: str | None, common: Tensor) -> None:
        self.seed = seed
        self.done: Counter[str] = Counter()
        self.kept: list[Tensor] = []
        self._random = random.Random(seed)
        self._generator = torch.Generator().manual_seed(self._random.randrange(1 << 40))
        self._turns = turns
        self._sabotage = sabotage
        self._common = common
        self._cuda = on_cuda()
        self._side = torch.flagos.Stream(device="flagos:0")
        workloads = {
            self.waiting_streams: 6,
            self.pinned_copies: 6,
            self.memory_churn: 6,
            self.memory_in_use_elsewhere: 4,
            self.backward: 4,
            self.common_tensor: 4,
            self.out_of_memory: 1,
            self.exhaustion: 1,
        }
        if self._cuda:
            workloads |= {self.graph: 2, self.views_of_cuda: 4}
        self.workloads = workloads

    def step(self) -> None:
        """One workload, drawn by weight."""
        (work,) = self._random.choices([*self.workloads], [*self.workloads.values()])
        self.run(work)

    def run(self, work: Callable[[], None]) -> None:
        """One given workload. Raises AssertionError when a number is wrong."""
        work()
        self.done[work.__name__] += 1

    def _integers(self, *shape: int) -> Tensor:
        return torch.randint(-3, 4, shape, generator=self._generator).float()

    def _keep_busy(self) -> None:
        if self._cuda:
            torch.cuda._sleep(self._random.randrange(1, 2_000_000))

    def waiting_streams(self) -> None:
        """One stream writes, and another one reads after it has waited, by stream or by event."""
        value, count = self._random.randrange(1, 100), self._random.randrange(1, 1 << 14)
        main = torch.flagos.current_stream()
        with self._turns.shared():
            source = torch.full((count,), float(value)).pin_memory()
            target = torch.zeros(count, device="flagos")
            self._side.wait_stream(main)
            with torch.flagos.stream(self._side):
                self._keep_busy()
                target.copy_(source, non_blocking=True)
                if self._random.random() < 0.3:
                    target.mul_(2)
                    value *= 2
                written = self._side.record_event()
            if self._sabotage != "wait":
                if self._random.random() < 0.5:
                    main.wait_stream(self._side)
                else:
                    main.wait_event(written)
            total = target.sum().item()
            self._side.synchronize()
        assert total == value * count, f"{total} for {value} × {count}"

    def pinned_copies(self) -> None:
        """Bytes go to the device and back through pinned memory."""
        count = self._random.choice((1, 1000, 1 << 16, 1 << 20))
        data = torch.randint(-1000, 1000, (count,), generator=self._generator)
        with self._turns.shared():
            there = data.pin_memory().to("flagos", non_blocking=True)
            back = torch.empty(count, dtype=torch.int64, pin_memory=True)
            back.copy_(there * 2 + 1, non_blocking=True)
            torch.flagos.current_stream().record_event().synchronize()
        assert torch.equal(back, data * 2 + 1)

    def memory_churn(self) -> None:
        """Tensors of many sizes live and die on two streams; none may touch another's memory."""
        main = torch.flagos.current_stream()
        living: list[tuple[int, Tensor]] = []
        with self._turns.shared():
            for value in range(self._random.randrange(5, 40)):
                size = self._random.choice((1, 100, 5_000, 300_000, 3_000_000))
                with torch.flagos.stream(self._random.choice((main, self._side))):
                    tensor = torch.full((size,), value, dtype=torch.int32, device="flagos")
                tensor.record_stream(main)
                living.append((value, tensor))
                if self._random.random() < 0.5:
                    living.pop(self._random.randrange(len(living)))
            main.wait_stream(self._side)
            if self._sabotage == "buffer" and living:
                living[0][1][-1] += 1
            wrong = [value for value, tensor in living if not bool((tensor == value).all())]
        assert not wrong, f"tensors filled with {wrong} hold something else"

    def memory_in_use_elsewhere(self) -> None:
        """Memory that another stream still reads is not given to the next tensor."""
        main = torch.flagos.current_stream()
        value, count = self._random.randrange(1, 100), 1 << 18
        with self._turns.shared():
            tensor = torch.full((count,), float(value), device="flagos")
            self._side.wait_stream(main)
            back = torch.empty(count, pin_memory=True)
            with torch.flagos.stream(self._side):
                self._keep_busy()
                back.copy_(tensor, non_blocking=True)
            tensor.record_stream(self._side)
            del tensor
            other = torch.zeros(count, device="flagos")
            self._side.synchronize()
            assert not other.any()
        assert bool((back == value).all())

    def backward(self) -> None:
        """Gradients of a small network, with the CPU's to compare with."""
        weights = [self._integers(32, 64), self._integers(16, 32)]
        inputs = self._integers(8, 64)

        def gradients(device: str) -> list[Tensor]:
            leaves = [nn.Parameter(weight.to(device)) for weight in weights]
            hidden = functional.relu(functional.linear(inputs.to(device), leaves[0]))
            loss = (functional.linear(hidden, leaves[1]) * 2).sum()
            loss.backward()
            return [loss.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)]

        with self._turns.shared():
            found = gradients("flagos")
        assert all(map(torch.equal, found, gradients("cpu")))

    def common_tensor(self) -> None:
        """All threads read one tensor through views of it."""
        row = self._random.randrange(len(self._common))
        with self._turns.shared():
            part = self._common[row].view(-1, 16).t()
            total = (part * 2).sum().item()
        assert total == 2 * row * self._common.shape[1]

    def out_of_memory(self) -> None:
        """A request beyond all memory is refused, and the next one is served."""
        with self._turns.shared():
            try:
                torch.empty(2 * torch.flagos.mem_get_info()[1], dtype=torch.uint8, device="flagos")
            except torch.OutOfMemoryError:
                pass
            else:
                raise AssertionError("more memory than there is was given out")
            assert torch.ones(1000, device="flagos").sum().item() == 1000

    def exhaustion(self) -> None:
        """Memory up to a limit, and over it; what was given out before is whole."""
        with self._turns.alone():
            torch.flagos.synchronize()
            torch.flagos.empty_cache()
            total = torch.flagos.mem_get_info()[1]
            size = 32 * MIB
            limit = torch.flagos.memory_reserved() + 8 * size
            torch.flagos.set_per_process_memory_fraction(limit / total)
            given: list[Tensor] = []
            try:
                while len(given) <= limit // size:
                    given.append(
                        torch.full((size,), len(given), dtype=torch.uint8, device="flagos")
                    )
                raise AssertionError("no limit")
            except torch.OutOfMemoryError:
                pass
            finally:
                torch.flagos.set_per_process_memory_fraction(1.0)
            wrong = [i for i, tensor in enumerate(given) if not bool((tensor == i).all())]
            # More than 8 where memory was reserved already; fewer where the vendor rounds up.
            assert len(given) >= 4 and not wrong, f"{len(given)} tensors, {wrong} wrong"
            given.clear()
            torch.flagos.empty_cache()

    def graph(self) -> None:
        """A recorded computation replayed over several inputs."""
        weight = self._integers(64, 64)
        with self._turns.alone():  # capture forbids others to wait for the whole device
            torch.flagos.synchronize()
            there, x = weight.to("flagos"), torch.zeros(16, 64, device="flagos")
            functional.relu(x @ there)
            recorded = torch.flagos.Graph()
            with torch.flagos.graph(recorded):
                drawn = torch.rand(100, device="flagos")
                y = functional.relu(x @ there) + x
            torch.flagos.synchronize()
        draws = []
        for _ in range(3):
            inputs = self._integers(16, 64)
            with self._turns.shared():
                x.copy_(inputs)
                if self._sabotage != "replay":
                    recorded.replay()
                found = y.cpu()
                draws.append(drawn.cpu())
            assert torch.equal(found, functional.relu(inputs @ weight) + inputs)
        # Destroying a graph frees memory of the driver's, which would invalidate a capture under way.
        with self._turns.shared():
            del recorded
        assert not torch.equal(draws[0], draws[1]), "two replays drew the same numbers"

    def views_of_cuda(self) -> None:
        """A write through a view on CUDA is seen on flagos, and the other way round."""
        value = self._random.randrange(1, 100)
        with self._turns.shared():
            ours = torch.full((1000,), float(value), device="flagos")
            theirs = ours.to("cuda")
            assert theirs.data_ptr() == ours.data_ptr()
            theirs.add_(1)
            ours.mul_(2)
            total = theirs.sum().item() + ours.view(10, 100).sum().item()
        assert total == 4 * (value + 1) * 1000

    def leak(self) -> None:
        """Keeps memory for ever: called now and then with `--sabotage leak`."""
        self.kept.append(torch.empty(MIB, device="flagos"))


def settle() -> tuple[int, int]:
    """Memory allocated and reserved when nothing is under way and the cache is empty."""
    gc.collect()
    torch.flagos.synchronize()
    if on_cuda():
        torch._C._cuda_clearCublasWorkspaces()  # cuBLAS keeps one for each stream it has seen
    torch.flagos.empty_cache()
    return torch.flagos.memory_allocated(), torch.flagos.memory_reserved()


def soak(seconds: float, threads: int, seed: int, sabotage: str | None) -> dict[str, Any]:
    """Runs the threads, and says what they did and what went wrong."""
    turns = Turns(threads)
    rows = torch.arange(64.0).view(-1, 1).expand(64, 256)
    common = rows.contiguous().to("flagos")
    torch.flagos.synchronize()
    workers = [Worker(f"{seed}:{index}", turns, sabotage, common) for index in range(threads)]
    first = Worker(f"{seed}:first", turns, None, common)
    for work in first.workloads:  # libraries make what they keep
        first.run(work)
    before = settle()

    failures: list[str] = []
    start = time.monotonic()
    over = threading.Event()

    def body(worker: Worker) -> None:
        with torch.flagos.stream(torch.flagos.Stream(device="flagos:0")):
            while not over.is_set():
                try:
                    worker.step()
                    if sabotage == "leak" and not worker.kept:
                        worker.leak()
                except Exception:
                    done = worker.done.total()
                    failures.append(f"seed {worker.seed}, step {done}: {traceback.format_exc()}")

    running = [threading.Thread(target=body, args=(worker,), daemon=True) for worker in workers]
    for thread in running:
        thread.start()
    told = start
    while (spent := time.monotonic() - start) < seconds and len(failures) < TOO_MANY:
        over.wait(min(1, seconds - spent))
        if time.monotonic() - told > 10:
            told = time.monotonic()
            steps = sum(worker.done.total() for worker in workers)
            print(
                f"{spent:6.0f} s  {steps:9,} steps  {len(failures)} failures  "
                f"{torch.flagos.memory_allocated() / MIB:,.0f} MiB allocated",
                flush=True,
            )
    over.set()
    for thread in running:
        thread.join(60)
    if any(thread.is_alive() for thread in running):
        faulthandler.dump_traceback(all_threads=True)
        failures.append("a thread has not ended within a minute: see above where each is")
        after = before
    else:
        after = settle()
        if after[0] != before[0] or after[1] > before[1]:
            failures.append(
                f"memory allocated and reserved was {before} bytes and is {after} in the end"
            )
    steps = sum((worker.done for worker in workers), Counter[str]())
    return {
        "seed": seed,
        "threads": threads,
        "seconds": time.monotonic() - start,
        "vendor": torch.flagos.get_device_properties().vendor,
        "sabotage": sabotage,
        "steps": dict(sorted(steps.items())),
        "failures": failures,
        "memory_before": before,
        "memory_after": after,
        "memory_peak": torch.flagos.max_memory_allocated(),
    }


def main() -> int:
    """Runs, prints, and answers 1 when anything went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument(
        "--sabotage", choices=SABOTAGE, help="; ".join(map(": ".join, SABOTAGE.items()))
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    # Read when the device is first used; the CUDA vendor ignores them.
    os.environ.setdefault("FLAGOS_HOST_DELAY_US", "500")
    os.environ.setdefault("FLAGOS_HOST_SEED", str(options.seed))
    if options.sabotage == "replay" and not on_cuda():
        parser.error("only CUDA records graphs")
    print(f"seed {options.seed}, {options.threads} threads, {options.minutes} minutes", flush=True)
    report = soak(options.minutes * 60, options.threads, options.seed, options.sabotage)
    for failure in report["failures"][:TOO_MANY]:
        print(failure)
    for name, count in report["steps"].items():
        print(f"{count:9,}  {name}")
    print(
        f"{'FAILED' if report['failures'] else 'OK'}: {sum(report['steps'].values()):,} steps in "
        f"{report['seconds']:.0f} s on {report['vendor']}, {len(report['failures'])} failures, "
        f"seed {options.seed}; memory allocated and reserved {report['memory_before']} before, "
        f"{report['memory_after']} after"
    )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
