"""Makes the verdicts of `flagos_serving.verdicts`: FlagGems' kernels for engines' operators beside the references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flagos_serving.flaggems import BACKEND, FlagGems, missing

if TYPE_CHECKING:
    from torch_fl.flaggems.table_file import Verdict

_TIMEOUT = 300.0  # seconds for one case, with compilation

Sample = tuple[str, tuple[Any, ...]]
_KINDS = (torch.bfloat16, torch.float16, torch.float32)
# Hidden sizes of models, and numbers of tokens: of one request, of a batch, and of prompts.
_HIDDEN = (64, 2880, 4096, 8192)
_TOKENS = (1, 7, 64, 1000)


def samples(kernel: str) -> Iterator[Sample]:
    """Names and arguments of calls as models make them, on the CPU, the small ones first."""
    torch.manual_seed(0)
    yield from _SAMPLES[kernel]()


def _rows() -> Iterator[tuple[str, int, int, torch.dtype]]:
    for hidden in _HIDDEN:
        for tokens in _TOKENS:
            if tokens * hidden <= 1 << 22:
                for kind in _KINDS[: 3 if hidden == _HIDDEN[0] else 2]:
                    name = str(kind).removeprefix("torch.")
                    yield f"{name} [{tokens}, {hidden}]", tokens, hidden, kind


def _norms(fused: bool) -> Iterator[Sample]:
    for name, tokens, hidden, kind in _rows():
        x, other = (torch.randn(tokens, hidden).to(kind) for _ in range(2))
        first = (x, other) if fused else (torch.full_like(x, torch.nan), x)
        yield name, (*first, torch.randn(hidden).to(kind), 1e-6)


def _activations() -> Iterator[Sample]:
    for name, tokens, hidden, kind in _rows():
        x = 3 * torch.randn(tokens, 2 * hidden)
        yield name, (torch.full((tokens, hidden), torch.nan, dtype=kind), x.to(kind))


def _rotations() -> Iterator[Sample]:
    for size in (64, 80, 128):
        angles = torch.outer(torch.arange(512.0), 10000.0 ** -torch.linspace(0, 1, size // 2))
        cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
        for heads, of_keys in ((4, 2), (32, 8)):
            for tokens in _TOKENS[:-1]:
                for kind in _KINDS:
                    packed = torch.randn(tokens, (heads + 2 * of_keys) * size).to(kind)
                    query, key, _ = packed.split(
                        (heads * size, of_keys * size, of_keys * size), dim=-1
                    )
                    for neox in (True, False):
                        name = f"{kind} {tokens} tokens, {heads} heads of {size}, neox {neox}"
                        positions = torch.randint(0, 512, (tokens,))
                        yield name, (positions, query, key, size, cache.to(kind), neox)


def _gatings() -> Iterator[Sample]:
    for experts, k in ((8, 2), (60, 4), (128, 8), (256, 8)):
        for tokens in _TOKENS:
            for kind in (torch.bfloat16, torch.float32):
                # Different in every type: kernels are free to choose among equal ones.
                scores = torch.stack([torch.randperm(experts) for _ in range(tokens)])
                gating = ((scores - experts // 2) / 32).to(kind)
                for renormalize in (True, False):
                    into = (
                        torch.full((tokens, k), torch.nan),
                        *(torch.full((tokens, k), -1, dtype=torch.int32) for _ in range(2)),
                    )
                    name = f"{kind} {tokens} tokens, {k} of {experts}, renormalize {renormalize}"
                    yield name, (*into, gating, renormalize, None)


def _sums() -> Iterator[Sample]:
    for name, tokens, hidden, kind in _rows():
        for k in (2, 8):
            x = torch.randn(tokens, k, hidden).to(kind)
            yield f"{name} of {k}", (x, torch.full((tokens, hidden), torch.nan, dtype=kind))


def _alignments() -> Iterator[Sample]:
    for experts, k in ((8, 2), (60, 4), (128, 8)):
        for tokens in _TOKENS:
            for block in (16, 64):
                chosen = torch.stack([torch.randperm(experts)[:k] for _ in range(tokens)]).int()
                most = chosen.numel() + experts * (block - 1)
                into = (
                    torch.full((most,), -1, dtype=torch.int32),
                    torch.full((-(-most // block),), -1, dtype=torch.int32),
                    torch.full((1,), -1, dtype=torch.int32),
                )
                name = f"{tokens} tokens, {k} of {experts}, blocks of {block}"
                yield name, (chosen, experts, block, *into, None)


def _latent() -> Iterator[Sample]:
    for tokens in _TOKENS:
        for kind in _KINDS:
            slots = torch.randperm(2048)[:tokens]
            slots[::5] = -1
            cache = torch.zeros(128, 16, 576, dtype=kind)
            keys = torch.randn(tokens, 512).to(kind), torch.randn(tokens, 64).to(kind)
            yield f"{kind} {tokens} tokens", (*keys, cache, slots, "auto", torch.ones(1))


def _mixtures() -> Iterator[Sample]:
    for hidden, middle, experts, k in ((64, 32, 8, 2), (2048, 768, 16, 8)):
        for tokens in _TOKENS[:-1]:
            for kind in (torch.bfloat16, torch.float16):
                # Of one sign: roundings of what cancels out would say nothing about a kernel.
                x = torch.rand(tokens, hidden).to(kind)
                w13 = (torch.rand(experts, 2 * middle, hidden) / hidden).to(kind)
                w2 = (torch.rand(experts, hidden, middle) / middle).to(kind)
                chosen = torch.stack([torch.randperm(experts)[:k] for _ in range(tokens)]).int()
                shares = torch.softmax(torch.randn(tokens, k), dim=-1)
                name = f"{kind} {tokens} tokens, {k} of {experts} experts of [{middle}, {hidden}]"
                yield name, (x, w13, w2, shares, chosen, "silu")


_SAMPLES: dict[str, Callable[[], Iterator[Sample]]] = {
    "rms_norm": partial(_norms, False),
    "fused_add_rms_norm": partial(_norms, True),
    "rotary_embedding": _rotations,
    "silu_and_mul": _activations,
    "gelu_and_mul": _activations,
    "gelu_tanh_and_mul": _activations,
    "topk_softmax": _gatings,
    "moe_sum": _sums,
    "moe_align_block_size": _alignments,
    "concat_and_cache_mla": _latent,
    "fused_experts": _mixtures,
}


# --------------------------------------------------------------------------------------- verification


def verify(
    registered: Callable[[], FlagGems],
    ops: list[str],
    cases: int | None = None,
    jobs: int = 4,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Verdict]:
    """The entry of each operator. ``jobs`` processes verify them, each on its first ``cases`` samples.

    ``registered`` registers an engine's operators in such a process: a function of a module, found by its name.
    A result is compared with the operator's reference over the same values in float64, rounded once: STRICT within
    torch's tolerances of the type, BASIC within ten times these. Raises RuntimeError where FlagGems cannot be used.
    """
    from torch_fl.flaggems import table_file
    from torch_fl_tools.comparing import tasks

    reason = missing()
    if reason is not None:
        raise RuntimeError(f"FlagGems cannot be used: {reason}")
    found: dict[str, Verdict] = {}
    task = partial(_verified, registered, cases)
    for one in tasks.run(list(ops), task, jobs, _TIMEOUT, context="spawn", reuse=_again):
        entry = one.result
        if (
            entry is None
        ):  # the process ended, or a case took too long; FlagGems' fault, once it was called
            verdict = table_file.FAILED if one.step else table_file.UNTESTED
            why = f"{one.step or 'its start'}: {one.failure}"
            entry = {"verdict": verdict, "cases": 0, "first": why}
        found[one.name] = entry
        progress(f"{one.name}: {entry['verdict']}, {entry['cases']} cases{_because(entry)}")
    return found


def _because(entry: Verdict) -> str:
    return f": {entry['first']}" if entry.get("first") else ""


def _again() -> bool:
    """Whether a process may verify another operator: not with a device that an error has left unusable."""
    try:
        return bool(torch.ones(1, device="flagos").item() == 1.0)
    except RuntimeError:
        return False


def _verified(
    registered: Callable[[], FlagGems],
    cases: int | None,
    op: str,
    report: Callable[[str, Any], None],
) -> Verdict:
    from torch_fl.flaggems import table_file
    from torch_fl_tools.flaggems.comparison import compare, worse

    flaggems = registered()
    operator, name, kernel = flaggems.offered[op], op.partition("::")[2], flaggems.serves[op]
    serve = operator.implementation(f"{BACKEND}.{name}")
    reference = operator.implementation(f"reference.{name}")
    entry: Verdict = {"verdict": table_file.UNTESTED, "cases": 0}
    for count, (label, args) in enumerate(samples(kernel)):
        if count == cases:
            break
        expected = _results(kernel, reference, args, wide=True)
        report(label, None)
        try:
            verdict, why = compare(expected, _results(kernel, serve, args), False)
        except Exception as error:
            message = " ".join(str(error).split())[:200]
            verdict, why = table_file.FAILED, f"{type(error).__name__}: {message}"
        entry["cases"] += 1
        if worse(verdict, entry["verdict"]):
            entry["verdict"] = verdict
            if verdict != table_file.STRICT:
                entry["first"] = f"{label}: {why}"
        if verdict == table_file.FAILED:
            break
    return entry


def _results(
    kernel: str, serve: Callable[..., Any], args: tuple[Any, ...], wide: bool = False
) -> list[Tensor]:
    """Runs a call, and returns its tensors and its result on the CPU in the types that they have in the call."""
    storages: dict[int, Tensor] = {}

    def moved(x: Any) -> Any:
        """A copy on flagos; views of one tensor stay views of one."""
        if not isinstance(x, Tensor):
            return x
        base = x if x._base is None else x._base
        if id(base) not in storages:
            there = base.to("flagos", copy=True)
            storages[id(base)] = there.double() if wide and there.is_floating_point() else there
        place = storages[id(base)]
        return place.as_strided(x.shape, x.stride(), x.storage_offset())

    given = [moved(a) for a in args]
    made = serve(*given)
    torch.accelerator.synchronize()
    results = [
        after.cpu().to(before.dtype)
        for before, after in zip(args, given, strict=True)
        if isinstance(before, Tensor)
    ]
    if isinstance(made, Tensor):
        results.append(made.cpu().to(args[0].dtype))
    return _comparable(kernel, args, results)


def _comparable(kernel: str, args: tuple[Any, ...], results: list[Tensor]) -> list[Tensor]:
    """The results without what an operator leaves open."""
    if kernel != "moe_align_block_size":
        return results
    chosen, places, experts, total = results
    used, block = int(total), args[2]
    # An expert's tokens come in any order, and what lies behind the last ones is not read.
    of = experts[: used // block].repeat_interleave(block)
    return [chosen, (of.long() << 32 | places[:used]).sort().values, total]
