"""Automatic graphs: programs that repeat give the same results, and most of their calls are followed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn

import flagos
from torch_fl.python_kernels import attachment, capture

pytestmark = pytest.mark.needs("automatic_graphs")

graphs = torch.flagos.graphs
Step = Callable[[int], torch.Tensor]


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)]
    return nn.Sequential(*layers).to("flagos")


def training(optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW, **options) -> Step:
    net = model()
    steps = optimizer(net.parameters(), lr=1e-2, **options)
    torch.manual_seed(1)
    batches = torch.randn(8, 12, 16)

    def step(turn: int) -> torch.Tensor:
        loss = net(batches[turn % 8].to("flagos")).square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        return loss.detach()

    return step


def run(make: Callable[[], Step], turns: int, *, auto: bool) -> tuple[list[torch.Tensor], int]:
    """What the turns of a program give, and how many of their calls were followed."""
    step = make()
    before = graphs.counts()["followed"]
    with graphs.auto(auto):
        results = [step(turn) for turn in range(turns)]
    return [result.cpu() for result in results], graphs.counts()["followed"] - before


def check(make: Callable[[], Step], turns: int = 40, least: int = 200) -> None:
    """The program gives the same with and without graphs, which follow at least so many calls."""
    expected, none = run(make, turns, auto=False)
    assert none == 0
    given, followed = run(make, turns, auto=True)
    for turn, (one, other) in enumerate(zip(given, expected, strict=True)):
        assert torch.equal(one, other), f"turn {turn}: {one} instead of {other}"
    assert followed >= least


@contextmanager
def broken(fault: int) -> Iterator[None]:
    torch.ops.flagos.graphs_inject(fault)
    try:
        yield
    finally:
        torch.ops.flagos.graphs_inject(0)


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.AdamW, {"foreach": False}),
        (torch.optim.Adam, {"fused": True}),
    ],
)
def test_training_has_the_same_losses(optimizer, options):
    check(lambda: training(optimizer, **options))


@pytest.mark.parametrize("fault", [1, 2], ids=["launched late", "given twice"])
def test_broken_graphs_are_seen(fault):
    def kept() -> Step:
        step, losses = training(), []

        def last(turn: int) -> torch.Tensor:
            losses.append(step(turn))
            return torch.stack(losses[-3:]).sum()

        return last

    expected, _ = run(kept, 40, auto=False)
    with broken(fault):
        given, followed = run(kept, 40, auto=True)
    assert followed > 0
    assert not all(map(torch.equal, given, expected))


def test_what_is_kept_stays_as_it_was():
    """Tensors of many turns live on while their memory is wanted again."""
    step, kept = training(), []
    with graphs.auto():
        for turn in range(40):
            kept.append(step(turn))
    expected, _ = run(training, 40, auto=False)
    assert torch.equal(torch.stack(kept).cpu(), torch.stack(expected))
    assert graphs.counts()["tensors moved"] > 0


def test_nothing_moves_while_another_thread_uses_the_device():
    """That thread may be on its way to the device with the address."""
    uses, ends = threading.Event(), threading.Event()

    def other() -> None:
        torch.ones(1, device="flagos").add_(1)
        uses.set()
        ends.wait(120)

    def moved() -> int:
        step, before = training(), graphs.counts()["tensors moved"]
        kept = [step(turn) for turn in range(40)]
        return graphs.counts()["tensors moved"] - before if kept else 0

    with graphs.auto():
        assert moved() > 0
        thread = threading.Thread(target=other)
        thread.start()
        assert uses.wait(120)
        assert moved() == 0
        ends.set()
        thread.join()
        assert any(moved() for _ in range(10)), "the thread has ended"


def test_scopes_of_threads_may_overlap():
    first, second = graphs.auto(), graphs.auto(False)
    before = graphs.is_auto()
    first.__enter__()
    second.__enter__()
    assert not graphs.is_auto()
    first.__exit__(None, None, None)
    assert not graphs.is_auto(), "the scope that began last goes on"
    second.__exit__(None, None, None)
    assert graphs.is_auto() == before
    with pytest.raises(TypeError, match="True or False, not 'yes'"), graphs.auto("yes"):
        pass


def test_a_branch_by_data_and_another_shape():
    def make() -> Step:
        step = training()

        def branches(turn: int) -> torch.Tensor:
            loss = step(turn)
            if loss.item() > 0.1 and turn % 5 == 0:
                loss = loss * 2 + turn
            extra = torch.ones(3 + turn % 4, device="flagos") * 2
            return loss + extra.sum()

        return branches

    check(make, turns=60)


@contextmanager
def another(
    getting: Callable[[], object], setting: Callable[[object], None], to: object
) -> Iterator[None]:
    before = getting()
    setting(to)
    try:
        yield
    finally:
        setting(before)


SETTINGS = {
    "dtype of numbers": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "threads": (torch.get_num_threads, torch.set_num_threads, 4),
    "products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        "medium",
    ),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_changes_in_the_middle_of_a_turn(setting):
    """Calls before have the old one, also where they are launched later, and calls behind the new one."""
    whole = torch.arange(4096).reshape(64, 64).to("flagos")
    torch.manual_seed(1)
    large = torch.randn(1 << 18).square().to("flagos")  # two threads add it up to another number

    def turn_of(turn: int) -> torch.Tensor:
        def half() -> list[torch.Tensor]:
            calls = []
            for _ in range(5):
                numbers = whole + 1.5
                calls += [numbers * 2, large.sum(), (numbers @ numbers).sum()]
            return calls

        results = half()
        with another(*SETTINGS[setting]) if turn % 40 == 39 else nullcontext():
            results += half()
        return torch.stack([result.double().sum() for result in results + half()])

    check(lambda: turn_of, turns=81)


def test_batches_out_of_a_list():
    """In each turn few calls have tensors that are older than two turns, and are others than in the turn before."""

    def make() -> Step:
        step, batches = training(), torch.randn(50, 4, 4, device="flagos").unbind()
        batches = [batch.clone() for batch in batches]
        return lambda turn: step(turn) + batches[turn].sum()

    check(make, turns=50)


def test_a_run_that_becomes_another():
    def make() -> Step:
        step = training()

        def turn_of(turn: int) -> torch.Tensor:
            loss = step(turn)
            for _ in range(6):
                loss = loss.sin() if turn < 30 else loss.cos().neg()
            return loss

        return turn_of

    expected, _ = run(make, 90, auto=False)
    step = make()
    with graphs.auto():
        given = [step(turn) for turn in range(80)]
        before = graphs.counts()
        given += [step(turn) for turn in range(80, 90)]
        after = graphs.counts()
    assert all(map(torch.equal, [one.cpu() for one in given], expected))
    followed, calls = (after[key] - before[key] for key in ("followed", "calls"))
    assert followed > 0.6 * calls


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Has a recorded function serve silu: the argument, with its first element replaced by a number."""
    monkeypatch.setattr(capture, "_HOST", "no such device")

    def serve(number: float) -> None:
        def function(x: torch.Tensor) -> torch.Tensor:
            made = torch.empty_like(x)
            made.copy_(x)
            made[0].fill_(number)
            return made

        chosen = attachment.Implementation(function, "test", True, ())
        attachment.attach_native("aten::silu", chosen, True)

    yield serve
    attachment.detach("aten::silu")


def _replaying() -> Step:
    x = torch.arange(8.0, device="flagos")

    def step(turn: int) -> torch.Tensor:
        y = x.add_(1).clone()
        for part in range(40):
            y = torch.nn.functional.silu(y) * 0.5 + 1
            if part == 20 and turn % 6 == 5:
                y = y + y[1].item()  # what was followed up to here runs now
        return y

    return step


@pytest.mark.needs("aliases")
def test_replays_of_kernels_in_python_are_followed(replayed):
    def native_calls() -> int:
        return sum(graphs.native_calls().get("aten::silu", {}).values())

    replayed(3.0)
    expected, _ = run(_replaying, 70, auto=False)
    assert expected[0][0] == 2.5, "it serves silu"
    step = _replaying()
    with graphs.auto():
        results = [step(turn).cpu() for turn in range(60)]
        before = native_calls()
        results += [step(turn).cpu() for turn in range(60, 70)]
        assert native_calls() - before < 40, "most of 400 calls were followed"
        assert graphs.followed_calls()["aten::silu"] > 1000
        replayed(5.0)  # another function: no graph repeats the one before
        changed = step(70)
    assert all(map(torch.equal, results, expected))
    assert changed[0] == 1 + 0.5 * 5


@pytest.mark.needs("aliases")
def test_replays_that_are_late_are_seen(replayed):
    replayed(3.0)
    expected, _ = run(_replaying, 80, auto=False)
    with broken(1):
        given, _ = run(_replaying, 80, auto=True)
    assert not all(map(torch.equal, given, expected))


def test_attention_without_dropout_is_followed():
    def make() -> Step:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).to("flagos")
        steps = torch.optim.SGD(layer.parameters(), lr=1e-2)
        x = torch.randn(2, 8, 32).to("flagos")

        def step(turn: int) -> torch.Tensor:
            loss = layer(x).square().mean()
            steps.zero_grad()
            loss.backward()
            steps.step()
            return loss.detach()

        return step

    check(make)


def test_native_calls_say_why():
    def make() -> Step:
        step = training()
        return lambda turn: step(turn) + torch.rand(1, device="flagos").sum() * 0

    check(make)
    native = graphs.native_calls()
    assert sum(
        native.get(op, {}).get("random numbers", 0) for op in ("aten::rand", "aten::uniform_")
    )


@pytest.mark.parametrize("options", [{"p": 0.5, "training": False}, {"p": 0.0}])
def test_dropout_that_draws_nothing_ends_no_chunk(options):
    x = torch.arange(64.0, device="flagos")

    def turn() -> torch.Tensor:
        y = x
        for _ in range(20):
            y = nn.functional.dropout(y * 0.5, **options) + 1
        return y

    with graphs.auto():
        for _ in range(20):
            turn()
        before = graphs.counts()
        assert turn()[0].item() == pytest.approx(2, abs=1e-5)
        after = graphs.counts()
    assert after["followed"] - before["followed"] >= 38
    assert after["launches of graphs"] - before["launches of graphs"] < 10
    assert not any("dropout" in what for what in after)


@pytest.mark.parametrize(
    ("op", "follows", "detail"),
    [
        ("aten::mm", True, ""),
        ("aten::copy_", True, ""),
        ("aten::bernoulli_.float", False, "random numbers"),
        ("aten::nonzero", False, "results whose shape depends on elements"),
        ("aten::_local_scalar_dense", False, "results on the host"),
        ("aten::view", False, "views, for which nothing is launched"),
        ("aten::einsum", False, "torch makes it of other operators"),
    ],
)
def test_an_explanation_says_whether_calls_are_followed(op, follows, detail):
    explanation = flagos.explain(op)
    found = explanation.data["automatic_graphs"]
    assert found["follows"] is follows
    assert found["detail"].startswith(detail)
    expected = "follow its calls" if follows else f"do not follow its calls: {found['detail']}"
    assert f"automatic graphs {expected}" in str(explanation)


def share_of_the_last_turn(step: Step) -> float:
    """How many of a step's calls are followed after 14 steps."""
    for turn in range(14):
        before = graphs.counts()
        step(turn).item()
    after = graphs.counts()
    return (after["followed"] - before["followed"]) / (after["calls"] - before["calls"])


def test_another_model_with_the_same_operators_is_another_run():
    def encoder(layers: int) -> Step:
        torch.manual_seed(layers)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to("flagos")
        steps = torch.optim.AdamW(net.parameters(), lr=1e-2, fused=True)
        x = torch.randn(2, 8, 16).to("flagos")

        def step(turn: int) -> torch.Tensor:
            with torch.autocast("flagos", torch.bfloat16):
                loss = net(x).square().mean()
            loss.backward()
            steps.step()
            steps.zero_grad()
            return loss.detach()

        return step

    with graphs.auto():
        for layers in (6, 9, 6):
            assert share_of_the_last_turn(encoder(layers)) > 0.9


EQUAL_LAYERS = """
import torch
from torch.flagos import graphs

weights = [torch.randn(16, 16).mul(0.1).to("flagos").requires_grad_() for _ in range(24)]
x = torch.randn(8, 16).to("flagos")

def step():
    hidden = x
    for i in range(0, len(weights), 4):
        a, b, c, d = (weight.to(torch.bfloat16).float() for weight in weights[i : i + 4])
        hidden = hidden + torch.tanh(hidden @ a)
        hidden = hidden + torch.sigmoid(hidden @ b).mul(0.5)
        hidden = hidden + torch.relu(hidden @ c).add(0.25)
        hidden = hidden - torch.sin(hidden @ d).sub(0.25)
    hidden.square().mean().backward()

with graphs.auto():
    for turn in range(14):
        before = graphs.counts()
        step()
        torch.flagos.synchronize()
after = graphs.counts()
print((after["followed"] - before["followed"]) / (after["calls"] - before["calls"]))
"""


def test_equal_layers_are_no_run_of_their_own(run_python):
    """Their weights may be as young as what a layer makes: in a new process, at the first step."""
    assert float(run_python(EQUAL_LAYERS).stdout) > 0.9


LOOPS = """
import torch
from torch.flagos import graphs

weights = [torch.randn(16, 16).mul(0.2).to("flagos") for _ in range(16)]
bias, state = torch.ones(8, 16, device="flagos"), torch.zeros(8, 16, device="flagos")

def equal_parts():  # of which two have one weight, and what one turn ends with the next one begins with
    global state
    for weight in weights:
        for _ in range(2):
            state = torch.tanh(state @ weight) * 0.9
            state = state + bias * 0.1

def loop():
    y = bias
    for _ in range(40):
        y = y * 0.5 + 1

for step in (equal_parts, loop):
    with graphs.auto():
        for turn in range(14):
            before = graphs.counts()
            step()
    after = graphs.counts()
    calls, followed, launches = (after[key] - before[key] for key in ("calls", "followed", "launches of graphs"))
    print(followed / calls, launches)
    torch.ops.flagos.graphs_release()
"""


def test_a_loop_is_followed_whole(run_python):
    """Not as its shortest part, which other weights or another beginning would break in each turn."""
    equal_parts, loop = (line.split() for line in run_python(LOOPS).stdout.splitlines())
    assert float(equal_parts[0]) > 0.95 and int(equal_parts[1]) <= 5, "160 calls, 48 in a graph"
    assert float(loop[0]) == 1 and int(loop[1]) == 2, "80 calls"


REPLACED = """
import torch
from torch import nn
from torch.flagos import graphs

def model():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).to("flagos")

x = torch.randn(2, 6, 16).to("flagos")
with graphs.auto():
    for number in range(24):
        if number == 12:
            before = graphs.counts()
        net = model()
        steps = torch.optim.Adam(net.parameters())
        for _ in range(8):
            steps.zero_grad()
            net(x).square().mean().backward()
            steps.step()
after = graphs.counts()
print((after["followed"] - before["followed"]) / (after["calls"] - before["calls"]))
"""


def test_a_model_that_is_replaced_again_and_again_is_followed(run_python):
    assert float(run_python(REPLACED).stdout) > 0.4


SHORT_STEPS = """
import torch
from torch import nn
from torch.flagos import graphs

torch.manual_seed(0)
batches = [torch.randn(16, 32).to("flagos") for _ in range(150)]
kept = []

def perceptron():  # whose step has 32 calls, of which four read a batch, another in each turn
    net = nn.Sequential(*[nn.Linear(32, 32), nn.GELU()] * 3).to("flagos")
    steps = torch.optim.AdamW(net.parameters(), lr=1e-3)
    def step(turn):
        loss = nn.functional.mse_loss(net(batches[2 * turn]), batches[2 * turn + 1])
        steps.zero_grad()
        loss.backward()
        steps.step()
    return step

def long_layers():  # of 33 calls, of which one has a weight, are a run forward and not backward
    weights = [nn.Parameter(torch.randn(32, 32).mul(0.2).to("flagos")) for _ in range(8)]
    def step(turn):
        x = batches[0]
        for weight in weights:
            x = x @ weight
            for part in range(32):
                x = x * 0.9 if part % 3 == 0 else x + 0.01 if part % 3 == 1 else torch.tanh(x)
        torch.autograd.grad(x.sum(), weights)
    return step

for make in (perceptron, long_layers):
    step = make()
    with graphs.auto():
        for turn in range(60):
            if turn == 40:
                before = graphs.counts()
            step(turn)
    after = graphs.counts()
    print((after["followed"] - before["followed"]) / (after["calls"] - before["calls"]))
    torch.ops.flagos.graphs_release()
"""


def test_a_short_step_is_a_run_and_a_long_layer_is_none(run_python):
    perceptron, long_layers = map(float, run_python(SHORT_STEPS).stdout.split())
    assert perceptron > 0.6, "four calls read a batch, AdamW has others"
    assert long_layers > 0.9


EVALUATED = """
import torch
from torch import nn
from torch.flagos import graphs

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
net = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to("flagos")
steps = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(2, 6, 16).to("flagos")
torch.backends.mha.set_fastpath_enabled(False)

def train():
    steps.zero_grad()
    net.train()(x).square().mean().backward()
    steps.step()

def evaluate():
    net.eval()
    with torch.no_grad():
        for _ in range(4):
            net(x).square().mean().item()

def share(work):
    before = graphs.counts()
    work()
    after = graphs.counts()
    return (after["followed"] - before["followed"]) / (after["calls"] - before["calls"])

with graphs.auto():
    for turn in range(8):
        for _ in range(10):
            train()
        evaluated = share(evaluate)
        if turn == 0:
            first = share(lambda: [train() for _ in range(4)])
    print(first, evaluated)
"""


def test_evaluation_is_a_run_beside_training(run_python):
    """It has the calls of the training's forward pass but for dropout, so much of it is followed as that."""
    first, evaluated = map(float, run_python(EVALUATED).stdout.split())
    assert first > 0.6, "behind the first evaluation the steps are what they were"
    assert evaluated > 0.6, "behind some more"


def test_what_an_explanation_says_is_what_happens():
    """An operator's calls are followed, or run natively for the reason that its explanation has."""
    x = torch.arange(6.0, device="flagos")
    before = graphs.followed_calls()
    with graphs.auto():
        for _ in range(20):
            for _ in range(20):
                x.neg().exp().bernoulli()
    followed = graphs.followed_calls()
    assert followed["aten::exp"] > before.get("aten::exp", 0)
    for op in ("aten::bernoulli", "aten::exp"):
        explained = flagos.explain(op).data["automatic_graphs"]
        assert explained["follows"] is (op in followed)
        if not explained["follows"]:
            assert graphs.native_calls()[op][explained["detail"]] >= 300


@pytest.mark.host
def test_a_kernel_of_python_is_not_followed(run_python):
    program = """
import flagos, torch

@flagos.implementation("aten::exp")
def exp(x):
    return torch.ops.aten.exp.default(x)

print(flagos.explain("aten::exp"))
"""
    assert "do not follow its calls: a kernel of Python serves it" in run_python(program).stdout


def test_writing_a_tensor_of_inference_mode_stays_what_it_is():
    x = torch.ones(8, device="flagos")

    def is_refused(turn: int) -> bool:
        with torch.inference_mode(turn % 9 == 1):
            y = x + 1
        assert x.sum().item() == 8  # a graph begins behind it
        try:
            for _ in range(20):
                torch._foreach_mul_([y, y], 0.5)
        except RuntimeError as error:
            return "Inplace update to inference tensor" in str(error)
        return False

    natively = [is_refused(turn) for turn in range(80)]
    # CUDA's kernels write it all the same.
    if torch.flagos.get_device_properties(0).vendor != "cuda":
        assert natively == [turn % 9 == 1 for turn in range(80)]
    with graphs.auto():
        assert [is_refused(turn) for turn in range(80)] == natively


def test_a_cache_that_grows():
    def make() -> Step:
        net, cache = model(), [torch.zeros(1, 4, device="flagos")]

        @torch.no_grad()
        def step(turn: int) -> torch.Tensor:
            if turn % 20 == 0:
                cache[0] = cache[0][:1]
            new = net(torch.full((1, 16), float(turn), device="flagos"))
            cache[0] = torch.cat([cache[0], new])
            weights = (cache[0] @ new.mT).softmax(0)
            hidden = weights.mT @ cache[0]
            for _ in range(8):
                hidden = hidden.tanh() + new
            return hidden

        return step

    check(make, turns=60)


def test_an_error_in_the_middle_of_a_turn():
    step, results = training(), []
    with graphs.auto():
        for turn in range(40):
            if turn % 7 == 6:
                with pytest.raises(RuntimeError, match="size"):
                    torch.ones(3, device="flagos") @ torch.ones(2, device="flagos")
            results.append(step(turn))
    expected, _ = run(training, 40, auto=False)
    assert torch.equal(torch.stack(results).cpu(), torch.stack(expected))


def test_two_threads_train_at_once():
    expected, _ = run(training, 30, auto=False)
    steps = [training(), training()]
    given: list[list[torch.Tensor]] = [[], []]

    def work(which: int) -> None:
        given[which] = [steps[which](turn) for turn in range(30)]

    with graphs.auto():
        threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for results in given:
        assert torch.equal(torch.stack(results).cpu(), torch.stack(expected))


def repeated(first: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    x = torch.arange(64.0, device="flagos")
    for _ in range(40):
        x = x * 0.5 + 1
    return first(x)


def address_in(capsule: object) -> int:
    """The address of the data that a capsule of DLPack has: its struct begins with it."""
    content = ctypes.pythonapi.PyCapsule_GetPointer
    content.restype, content.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_uint64.from_address(content(capsule, b"dltensor")).value


@pytest.mark.host
@pytest.mark.parametrize(
    "address_of",
    [
        lambda tensor: tensor.data_ptr(),
        lambda tensor: torch.to_dlpack(tensor),
    ],  # looked up while graphs are on
    ids=["data_ptr", "DLPack"],
)
def test_an_address_that_the_program_took_is_written_at_once(address_of):
    start, result = torch.zeros(64, device="flagos"), torch.zeros(64, device="flagos")
    address, held = 0, None
    with graphs.auto():
        for turn in range(24):
            x = start.fill_(turn)
            for part in range(40):
                x = x * 0.5 + 1
                if part == 20:
                    result.copy_(x + start)
                    if address:  # in the midst of a run, where nothing else looks at the device
                        assert ctypes.c_float.from_address(address).value == pytest.approx(2 + turn)
            if turn == 12:
                held = address_of(result)
                address = held if isinstance(held, int) else address_in(held)


@pytest.mark.host
def test_an_address_that_is_taken_in_each_turn_stays_the_tensors():
    former = torch.zeros(64, device="flagos")
    with graphs.auto():
        for turn in range(60):
            address = former.data_ptr()
            made = repeated(lambda x, turn=turn: x * 0 + (turn + 1))
            assert ctypes.c_float.from_address(address).value == turn
            assert former[0].item() == turn
            former = made


def test_memory_of_another_library_stays():
    with graphs.auto():
        views = [torch.from_dlpack(repeated(lambda x, turn=turn: x + turn)) for turn in range(12)]
        seen = [view[0].item() for view in views]
    assert seen == pytest.approx([2 + turn for turn in range(12)])


def test_memory_on_another_stream_is_not_given_again():
    other = torch.flagos.Stream()
    sums = []
    with graphs.auto():
        for turn in range(20):
            made = repeated(lambda x, turn=turn: x + turn)
            other.wait_stream(torch.flagos.current_stream())
            with torch.flagos.stream(other):
                made.record_stream(other)
                sums.append(made.sum())
            del made
        torch.flagos.current_stream().wait_stream(other)
    assert [each.item() for each in sums] == pytest.approx([64 * (2 + turn) for turn in range(20)])


def test_what_another_stream_waited_for_stays_where_it_is():
    """A tensor that moved behind the event would be copied when the other stream reads it."""
    x, other = torch.arange(4096.0, device="flagos"), torch.flagos.Stream()

    def step(turn: int) -> torch.Tensor:
        y = x
        for _ in range(40):
            y = y * 0.5 + turn
        return y

    with graphs.auto():
        for turn in range(60):
            for _ in range(3):
                step(turn)
            y = step(turn)
            ready = torch.flagos.Event()
            ready.record()
            step(turn)  # which would have its result where `y` is
            with torch.flagos.stream(other):
                other.wait_event(ready)
                seen = y + 0
            torch.flagos.synchronize()
            assert torch.equal(seen.cpu(), step(turn).cpu()), turn


@pytest.mark.parametrize("recorded", [False, True])
def test_what_is_recorded_on_another_stream_does_not_move(recorded: bool):
    other = torch.flagos.Stream()
    torch.ops.flagos.graphs_release()  # what other tests have kept would move, too
    with graphs.auto():
        for turn in range(20):
            repeated(lambda x, turn=turn: x + turn)
        before = graphs.counts()["tensors moved"]
        kept = repeated(lambda x: x)
        if recorded:
            kept.record_stream(other)
        repeated(lambda x: x + 20)
        assert (graphs.counts()["tensors moved"] == before) is recorded
        for turn in range(3):  # in which graphs that are new may have others moved
            repeated(lambda x, turn=turn: x + turn)
    assert kept.sum().item() == pytest.approx(repeated(lambda x: x).sum().item())


def test_gradients_that_another_stream_takes_stay_until_it_has_them():
    """As sharded trainers do: each gradient goes to a buffer on a stream of its own, and ends."""

    def make() -> Step:
        torch.manual_seed(0)
        net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)]).to("flagos")
        weights = list(net.parameters())
        taken = {weight: torch.zeros_like(weight) for weight in weights}
        x, other = torch.randn(16, 64).to("flagos"), torch.flagos.Stream()

        def take(weight: torch.Tensor) -> None:
            other.wait_stream(torch.flagos.current_stream())
            with torch.flagos.stream(other):
                taken[weight].copy_(weight.grad)
                weight.grad.record_stream(other)
            weight.grad = None

        for weight in weights:
            weight.register_post_accumulate_grad_hook(take)

        def step(turn: int) -> torch.Tensor:
            loss = net(x * (1 + 0.001 * turn)).square().mean()
            loss.backward()
            torch.flagos.current_stream().wait_stream(other)
            with torch.no_grad():
                for weight in weights:
                    weight.add_(taken[weight], alpha=-0.05)
            return loss.detach()

        return step

    check(make, least=1)


def test_memory_is_given_back():
    step = training()
    with graphs.auto():
        for turn in range(40):
            step(turn)
        held = graphs.counts()["bytes held"]
        assert held > 0
        torch.ops.flagos.graphs_release()
        assert graphs.counts()["bytes held"] == 0
        results = [step(turn) for turn in range(40, 80)]
    expected, _ = run(training, 80, auto=False)
    assert torch.equal(torch.stack(results).cpu(), torch.stack(expected[40:]))


def test_sizes_that_change_leave_no_memory_behind():
    """As where a sequence is computed anew with each token."""

    def peak(*, auto: bool) -> int:
        weight, x = torch.randn(32, 32).to("flagos") / 6, torch.randn(2048, 32).to("flagos")
        torch.ops.flagos.graphs_release()
        torch.flagos.reset_peak_memory_stats()
        before = torch.flagos.memory_allocated()
        with graphs.auto(auto):
            for length in range(256, 2048, 16):
                y = x[:length]
                for _ in range(20):
                    y = (y @ weight).tanh()
                for _ in range(20):  # whose sizes stay
                    weight = weight * 0.9999
            return torch.flagos.max_memory_allocated() - before

    followed = graphs.counts()["followed"]
    assert peak(auto=True) < 8 * peak(auto=False)
    assert graphs.counts()["followed"] - followed > 400


SIZES = """
import torch
from torch.flagos import graphs
x, sizes = torch.arange(4096.0, device="flagos"), range(1024, 4097, 256)

def step(x):  # two tensors of each size live at once, and those of no other
    return torch.stack([(x[:size] * 2 + 1).sum() for size in sizes])

with graphs.auto():
    sums = [step(x) for _ in range(30)]
counts = graphs.counts()
assert counts["followed"] > 400
# Two of 16 KiB, those of which the sums are, and some that outlive a turn.
assert counts["bytes held"] < 48 << 10 < sum(2 * 4 * size for size in sizes) / 2, counts
assert all(torch.equal(each.cpu(), step(x.cpu())) for each in sums)
"""


def test_a_run_holds_hardly_more_than_lives_at_once(run_python):
    run_python(SIZES)


OUTLIVES = """
import torch
from torch.flagos import graphs
x = torch.ones(1 << 14, device="flagos")

def step(*, longer):
    made = [x * factor for factor in range(32)]
    total = made[0]
    for each in made[1:]:
        total = total + each
    for _ in range(20 if longer else 0):
        total = total.neg()
    return made[3]

before = torch.flagos.memory_allocated()
with graphs.auto():
    for _ in range(20):
        step(longer=False)
    kept = step(longer=False)
    followed, runs = graphs.counts()["followed"], graphs.counts()["runs found"]
    for _ in range(20):  # the run is learnt anew, and what it was is forgotten
        step(longer=True)
assert followed > 0
assert graphs.counts()["runs found"] > runs
torch.ops.flagos.graphs_release()
assert torch.flagos.memory_allocated() - before <= 2 * x.nbytes
assert kept.sum().item() == 3 << 14
"""


def test_what_outlives_a_run_does_not_hold_its_memory(run_python):
    run_python(OUTLIVES)


def test_the_scope_is_restored():
    assert not graphs.is_auto()
    with graphs.auto():
        with graphs.auto(False):
            assert not graphs.is_auto()
        assert graphs.is_auto()
    assert not graphs.is_auto()


PROGRAM = """
import os, torch
x = torch.arange(64.0, device="flagos")
for turn in range(40):
    y = x
    for _ in range(40):
        y = y * 0.5 + 1
    if turn == 38 and {forks}:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
print(y.sum().item(), torch.flagos.graphs.counts()["followed"] > 0)
"""


@pytest.mark.parametrize(("graphs_variable", "followed"), [("auto", True), ("off", False)])
def test_the_variable_turns_graphs_on(run_python, graphs_variable, followed):
    done = run_python(PROGRAM.format(forks=True), FLAGOS_GRAPHS=graphs_variable)
    assert done.stdout.split() == ["128.0", str(followed)]


def test_the_configuration_turns_graphs_on(run_python, tmp_path):
    config = tmp_path / "flagos.toml"
    config.write_text('[policy]\ngraphs = "auto"\n')
    done = run_python(PROGRAM.format(forks=False), FLAGOS_CONFIG=str(config))
    assert done.stdout.split() == ["128.0", "True"]


@pytest.mark.parametrize("word", ["on", "1", "Auto"])
def test_another_word_is_refused(run_python, word):
    done = run_python(
        "import torch\ntorch.ones(1, device='flagos')", fails=True, FLAGOS_GRAPHS=word
    )
    assert f"`{word}` is neither `auto` nor `off`" in done.stderr


FULL = """
import torch
x = torch.arange(1 << 20, dtype=torch.float32, device="flagos")  # 4 MiB
kept = []
with torch.flagos.graphs.auto():
    for turn in range(60):
        y = x
        for _ in range(40):
            y = y * 0.5 + turn
        kept.append(y)
        if len(kept) == 8:
            big = torch.full((12 << 20,), float(turn), device="flagos")
            assert big[0].item() == turn
            del big
            first = [each[0].item() for each in kept]
            assert first == [2.0 * each for each in range(turn - 7, turn + 1)], (turn, first)
            kept.clear()
print(torch.flagos.graphs.counts()["followed"] > 0, torch.flagos.graphs.counts()["memory given back"] > 0)
"""


@pytest.mark.host
def test_a_full_device_gets_the_memory_of_graphs(run_python):
    assert run_python(FULL, FLAGOS_HOST_MEMORY="176MiB").stdout.split() == ["True", "True"]
