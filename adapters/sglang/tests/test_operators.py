"""SGLang's operators in the plan, and what stands between requests and the scheduler."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import flagos
from sglang_flagos import memory, operators, plugin_fl, requests
from sglang_flagos.engine import triton_missing
from sglang_flagos.operators import wheel

pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_round_once(dtype: torch.dtype) -> None:
    x, residual = (torch.randn(5, 64).to(dtype) for _ in range(2))
    weight = (torch.rand(64) + 0.5).to(dtype)

    def normed(wide: torch.Tensor) -> torch.Tensor:
        made = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return made * weight.double()

    out = torch.full_like(x, torch.nan).to("flagos")
    operators.rms_norm(out, x.to("flagos"), weight.to("flagos"), 1e-6)
    exact = normed(x.double())
    torch.testing.assert_close(out.cpu(), exact.to(dtype), atol=1e-6, rtol=0)
    given, sums = x.to("flagos", copy=True), residual.to("flagos", copy=True)
    operators.fused_add_rms_norm(given, sums, weight.to("flagos"), 1e-6)
    torch.testing.assert_close(sums.cpu(), x + residual, atol=0, rtol=0)
    exact = normed(x.double() + residual.double())
    torch.testing.assert_close(given.cpu(), exact.to(dtype), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("tokens", "chosen", "count", "block"), [(1, 2, 8, 16), (37, 3, 5, 4)])
def test_chosen_experts_in_blocks(tokens: int, chosen: int, count: int, block: int) -> None:
    experts = torch.randint(-1, count, (tokens, chosen))  # -1: another rank's
    places, of_blocks, total = operators.align_experts(experts.to("flagos"), count, block)
    room = tokens * chosen + min(tokens * chosen, count + 1) * (block - 1)
    assert len(places) == room and len(of_blocks) == -(-room // block)
    flat = experts.flatten().tolist()
    expected: list[int] = []
    of_expected: list[int] = []
    for expert in range(-1, count):
        mine = [place for place, one in enumerate(flat) if one == expert]
        of_expected += [expert] * -(-len(mine) // block)
        expected += mine + [len(flat)] * (-len(mine) % block)
    assert total.tolist() == [len(expected)]
    assert places[: len(expected)].tolist() == expected
    assert of_blocks[: len(of_expected)].tolist() == of_expected


# As SGLang's wheels 0.4.5 and 0.4.10 declare them.
OF_THE_WHEEL = (
    "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size, Tensor! sorted_token_ids, "
    "Tensor! experts_ids, Tensor! num_tokens_post_pad, Tensor! cumsum_buffer, bool pad_sorted_token_ids, "
    "bool ignore_invalid_expert) -> ()",
    "fwd(Tensor q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v, Tensor(a!)? out, "
    "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new, Tensor? seqused_q, Tensor? seqused_k, "
    "int? max_seqlen_q, int? max_seqlen_k, Tensor? page_table, Tensor? kv_batch_idx, Tensor? leftpad_k, "
    "Tensor? rotary_cos, Tensor? rotary_sin, Tensor? seqlens_rotary, Tensor? q_descale, Tensor? k_descale, "
    "Tensor? v_descale, float? softmax_scale, bool is_causal, int window_size_left, int window_size_right, "
    "int attention_chunk, float softcap, bool is_rotary_interleaved, Tensor? scheduler_metadata, int num_splits, "
    "bool? pack_gqa, int sm_margin, Tensor? sinks, Tensor? sparse_mask_fine, bool only_qv) "
    "-> (Tensor(a!), Tensor, Tensor, Tensor)",
)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What operators with the schemas of SGLang's wheel were given, by the name of the argument."""
    found: dict[str, Any] = {}
    library = torch.library.Library("sgl_kernel", "FRAGMENT")

    def define(schema: str) -> None:
        name = schema.partition("(")[0]

        def keep(*args: Any) -> Any:
            names = [
                one.name for one in getattr(torch.ops.sgl_kernel, name).default._schema.arguments
            ]
            found.update(zip(names, args, strict=True))
            return (args[6], *(args[0].new_empty(0) for _ in range(3))) if name == "fwd" else None

        library.define(schema)
        library.impl(name, keep, "CPU")

    for schema in OF_THE_WHEEL:
        define(schema)
    monkeypatch.setattr(wheel, "_operators", lambda name: torch.ops.sgl_kernel)
    yield found
    library._destroy()


def test_the_wheel_sorts_experts(given: dict[str, Any]) -> None:
    experts = torch.arange(12, dtype=torch.int32).reshape(3, 4)[:, :3]
    places, of_blocks, total = wheel.align_experts(experts, 12, 5)
    # The kernel reads a row after the other, and fills four places at once.
    assert given["topk_ids"].is_contiguous() and torch.equal(given["topk_ids"], experts)
    assert (given["num_experts"], given["block_size"]) == (13, 5)
    assert given["sorted_token_ids"] is places and len(places) == 48
    assert given["experts_ids"] is of_blocks and len(of_blocks) == 10
    assert given["num_tokens_post_pad"] is total and given["cumsum_buffer"].numel() == 14
    assert given["pad_sorted_token_ids"] and not given["ignore_invalid_expert"]


def test_the_wheel_attends(given: dict[str, Any]) -> None:
    q, k, v, out = (torch.zeros(4, 1, 2, 64, dtype=torch.bfloat16) for _ in range(4))
    q, out = q[:, 0], out[:, 0]
    starts, lengths, table = torch.arange(5), torch.arange(4), torch.arange(8).reshape(4, 2)
    wheel.paged_attention(
        *(q, k, v, out, starts, 1, lengths, 2, 0.5, True, (7, 0), table, 30.0, None, None, None)
    )
    expected = {
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "cu_seqlens_q": starts,
        "seqused_k": lengths,
        "max_seqlen_q": 1,
        "page_table": table,
        "softmax_scale": 0.5,
        "is_causal": True,
        "window_size_left": 7,
        "softcap": 30.0,
    }
    assert all(given[name] is one or given[name] == one for name, one in expected.items())
    others = {given[name] for name in given if name not in expected}
    assert others == {None, 0}  # and False


def test_a_library_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = tmp_path / "flash_ops.so"
    library.write_text("of another torch")
    monkeypatch.setattr(wheel, "_library", lambda name: library)
    monkeypatch.setattr(wheel, "_failure", wheel._failure.__wrapped__)  # which keeps nothing
    assert not wheel.attention_loads()
    assert "attention is not FlashAttention 3's: sgl_kernel's library cannot" in caplog.text


def test_a_mask_of_a_grammar() -> None:
    logits = torch.randn(2, 70)
    allowed = torch.rand(2, 96) < 0.5
    allowed[:, 31] = True  # the sign of a word
    words = [
        [sum(2**bit for bit in range(32) if row[32 * w + bit]) for w in range(3)] for row in allowed
    ]
    mask = torch.tensor([[w - 2**32 if w >= 2**31 else w for w in row] for row in words])
    found = logits.to("flagos")
    operators.apply_token_bitmask(found, mask.int())
    assert torch.equal(found.cpu(), logits.masked_fill(~allowed[:, :70], float("-inf")))
    narrow = torch.zeros(2, 1, dtype=torch.int32, device="flagos")
    operators.apply_token_bitmask(found := logits.to("flagos"), narrow)
    assert found.cpu()[:, :32].isinf().all() and torch.equal(found.cpu()[:, 32:], logits[:, 32:])


def test_attention_over_places_of_tokens() -> None:
    """The pool of SGLang: each token of a request has a place of its own."""
    pool = torch.randn(50, 2, 8, device="flagos"), torch.randn(50, 2, 4, device="flagos")
    table = torch.randperm(50)[:24].view(2, 12).int().to("flagos")
    counts, lengths = (3, 1), (12, 7)
    q = torch.randn(4, 4, 8, device="flagos")
    out = torch.full((4, 4, 4), torch.nan, device="flagos")
    operators.paged_attention(
        q=q,
        k=pool[0][:, None],
        v=pool[1][:, None],
        out=out,
        cu_seqlens_q=torch.tensor([0, 3, 4], dtype=torch.int32, device="flagos"),
        max_seqlen_q=3,
        seqused_k=torch.tensor(lengths, dtype=torch.int32, device="flagos"),
        max_seqlen_k=12,
        softmax_scale=0.3,
        causal=True,
        window_size=(-1, -1),
        block_table=table,
        softcap=0.0,
        q_descale=None,
        k_descale=None,
        v_descale=None,
    )
    row = 0
    for request, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        for query in range(count):
            seen = table[request, : length - count + query + 1].long().cpu()
            for head in range(4):
                keys, values = (x.cpu().double()[seen, head // 2] for x in pool)
                weights = torch.softmax(keys @ q[row, head].cpu().double() * 0.3, dim=0)
                torch.testing.assert_close(
                    out[row, head].cpu().double(), weights @ values, atol=1e-5, rtol=1e-5
                )
            row += 1


def test_the_plan_says_who_serves() -> None:
    report = str(flagos.explain("sglang::fused_experts"))
    assert "* reference.fused_experts" in report and "flaggems.fused_experts" in report
    assert triton_missing() is not None


# ------------------------------------------------------------------------------------------- requests


def tokenized(**fields: Any) -> Any:
    params = {"stop_token_ids": None, "logit_bias": None, "n": 1, "top_k": 1}
    return SimpleNamespace(
        **{
            "input_ids": [1, 2],
            "return_logprob": False,
            "token_ids_logprob": None,
            "top_logprobs_num": 0,
            "logprob_start_len": -1,
            **{name: value for name, value in fields.items() if name not in params},
            "sampling_params": SimpleNamespace(**params | {k: v for k, v in fields.items() if k in params}),
        }
    )  # fmt: skip


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"input_ids": []}, "input_ids: there is no token"),
    "rows of numbers": (
        {"input_ids": [], "input_embeds": [[0.0]]},
        "input_embeds: SGLang's server",
    ),
    "no token": (
        {"input_ids": [3, 99]},
        "input_ids: 99 is no token of this model, which has 0 to 9",
    ),
    "a stop that is none": ({"stop_token_ids": {-1}}, "stop_token_ids: -1 is no token"),
    "a bias that is none": ({"logit_bias": {"3": math.nan}}, "logit_bias: the one of token 3"),
    "no answers": ({"n": 0}, "n: 0 is none of 1 and more"),
    "too many choices": ({"top_k": 2**31}, "top_k: 2147483648 is more than"),
    "logprobs": ({"top_logprobs_num": 11}, "top_logprobs_num: 11 is not from 0 to 10"),
    "of others": ({"token_ids_logprob": [10]}, "token_ids_logprob: 10 is no token"),
    "before the first": ({"logprob_start_len": -2}, "logprob_start_len: -2 is none of -1"),
}


@pytest.mark.parametrize(("fields", "words"), WRONG.values(), ids=WRONG)
def test_a_request_that_would_end_the_server(fields: dict[str, Any], words: str) -> None:
    manager = SimpleNamespace(model_config=SimpleNamespace(vocab_size=10))
    with pytest.raises(ValueError, match="^" + words):
        requests.tokenized(lambda *args: tokenized(**fields), manager, None)
    assert requests.tokenized(lambda *args: 5 and tokenized(), manager, None).input_ids == [1, 2]


@pytest.mark.parametrize(
    ("text", "words"), [("{", "it cannot be made"), ("5", "int cannot be called"), ("print", None)]
)
def test_a_processor_of_logits_is_made_first(
    monkeypatch: pytest.MonkeyPatch, text: str, words: str | None
) -> None:
    theirs: Any = ModuleType("sglang.srt.sampling.custom_logit_processor")
    theirs.CustomLogitProcessor = SimpleNamespace(from_str=eval)
    for name in ("sglang", "sglang.srt", "sglang.srt.sampling"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)
    made = tokenized(custom_logit_processor=text)
    found = list(requests.problems(made, 10))
    assert found == [] if words is None else found[0].startswith(f"custom_logit_processor: {words}")


def manager(**fields: Any) -> Any:
    args = SimpleNamespace(enable_memory_saver=True)
    return SimpleNamespace(server_args=args, rid_to_state={}, **fields)


async def answers(original: Any, self: Any, obj: Any = None) -> list[Any]:
    return [part async for part in requests.generate(original, self, obj)]


def test_an_error_before_the_first_part_is_the_requests() -> None:
    async def fails(self: Any, obj: Any, request: Any) -> AsyncIterator[int]:
        if obj == "late":
            yield 1
        raise TypeError("'<' not supported")

    with pytest.raises(ValueError, match=r"cannot be read .TypeError: '<' not supported"):
        asyncio.run(answers(fails, manager()))
    with pytest.raises(TypeError):
        asyncio.run(answers(fails, manager(), "late"))


class UpdateWeightsFromTensorReqInput:
    """A request that needs an idle scheduler, by its name."""


def test_what_needs_an_idle_scheduler_waits_for_it() -> None:
    seen: list[list[Any]] = []
    idle, update = False, UpdateWeightsFromTensorReqInput()
    scheduler = SimpleNamespace(_engine_paused=False, is_fully_idle=lambda: idle)

    def original(self: Any, recv_reqs: list[Any]) -> None:
        seen.append(recv_reqs)

    requests.received(original, scheduler, [1, update, 2])
    requests.received(original, scheduler, [])
    idle = True
    requests.received(original, scheduler, [3])
    idle, scheduler._engine_paused = False, True
    requests.received(original, scheduler, [update])
    assert seen == [[1, 2], [], [update, 3], [update]]


# --------------------------------------------------------------------------------------------- memory


def test_memory_is_released_and_resumed() -> None:
    asked: list[Any] = []

    async def original(self: Any, obj: Any, request: Any) -> None:
        asked.append(obj.tags)

    async def parts(self: Any, obj: Any, request: Any) -> AsyncIterator[int]:
        yield 1

    def ask(what: Any, self: Any, *tags: str) -> None:
        asyncio.run(what(original, self, SimpleNamespace(tags=list(tags))))

    one = manager()
    with pytest.raises(ValueError, match="weights is not released"):
        ask(memory.ask_to_resume, one, "weights")
    ask(memory.ask_to_release, one, "weights", "kv_cache")
    with pytest.raises(ValueError, match="kv_cache, weights is released already"):
        ask(memory.ask_to_release, one)
    with pytest.raises(ValueError, match=r"memory is released .kv_cache, weights.: resume it"):
        asyncio.run(answers(parts, one))
    with pytest.raises(ValueError, match="nothing: tags are kv_cache, weights, cuda_graph"):
        ask(memory.ask_to_release, one, "nothing")
    ask(memory.ask_to_resume, one, "weights", "kv_cache")
    assert asyncio.run(answers(parts, one)) == [1]
    one.rid_to_state["r"] = object()
    with pytest.raises(ValueError, match="1 requests are running"):
        ask(memory.ask_to_release, one)
    assert asked == [["weights", "kv_cache"]] * 2
    one.server_args.enable_memory_saver = False
    with pytest.raises(ValueError, match="started without --enable-memory-saver"):
        ask(memory.ask_to_resume, one)


@pytest.mark.parametrize("kept", [True, False])
def test_storages_give_their_memory_up(kept: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).to("flagos")
    model[1].weight = model[0].weight  # tied
    model.register_buffer("view_of_it", model[0].weight.data[:2])
    before = [p.detach().cpu().clone() for p in model.parameters()]
    pool = SimpleNamespace(k_buffer=[torch.ones(8, device="flagos")], v_buffer=[])
    runner = SimpleNamespace(
        model=model,
        token_to_kv_pool=pool,
        server_args=SimpleNamespace(enable_weights_cpu_backup=kept),
    )
    worker = SimpleNamespace(
        tp_worker=SimpleNamespace(model_runner=runner), is_fully_idle=lambda: True
    )
    done = SimpleNamespace(tags=None)
    assert memory.release(lambda self, recv_req: 7, worker, done) == 7
    tensors = [*model.parameters(), *model.buffers(), *pool.k_buffer]
    assert all(t.untyped_storage().nbytes() == 0 for t in tensors)
    assert memory.resume(lambda self, recv_req: 8, worker, done) == 8
    assert pool.k_buffer[0].tolist() == [0.0] * 8
    for parameter, was in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.cpu(), was if kept else torch.zeros_like(was))
    assert model.view_of_it.data_ptr() == model[0].weight.data_ptr()


# ----------------------------------------------------------------------------------- sglang-plugin-FL

KNOWN = ["sglang::rms_norm", "sglang::silu_and_mul"]


def test_routes_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dict(plugin_fl.routes(KNOWN)) == {}
    monkeypatch.setenv("SGLANG_FL_PREFER", "Vendor")
    monkeypatch.setenv("SGLANG_FL_PER_OP", "rms_norm=reference|flagos;;")
    assert dict(plugin_fl.routes(KNOWN)) == {
        "sglang::rms_norm": ["reference", "flagos"],
        "sglang::silu_and_mul": ["vendor", "flagos", "reference"],
    }


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SGLANG_FL_PREFER", "gems", "'gems' is none of flagos, vendor, reference"),
        ("SGLANG_FL_PER_OP", "rms_norm", "'rms_norm' is not `operator=backend"),
        ("SGLANG_FL_PER_OP", "rms_norm=cuda", "'cuda' is none of"),
        ("SGLANG_FL_STRICT", "yes", "SGLANG_FL_STRICT=yes: write 0 or 1"),
    ],
)
def test_a_variable_that_means_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=words):
        plugin_fl.apply()
