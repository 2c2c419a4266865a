"""torch.compile and torch.export."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*TypedStorage is deprecated"),
    pytest.mark.needs("generated_code"),
]


@pytest.fixture(scope="module", autouse=True)
def _compiler_cache(tmp_path_factory):
    """No compiled code of another run; within this one the compiled headers are shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def generated_code(function, *inputs: torch.Tensor) -> str:
    from torch._inductor.utils import run_and_get_code

    _, sources = run_and_get_code(torch.compile(function), *inputs)
    return "\n".join(sources)


@pytest.mark.slow
def test_pointwise_and_reduction(native):
    def f(x, y):
        return (torch.relu(x * 2 + y).sum(-1), x.cos().mean())

    x, y = torch.randn(8, 16), torch.randn(16)
    compiled = torch.compile(f)(x.to("flagos"), y.to("flagos"))
    assert all(t.device == torch.device("flagos", 0) for t in compiled)
    expected = f(x.to(native), y.to(native))
    torch.testing.assert_close([t.cpu() for t in compiled], [t.cpu() for t in expected])


@pytest.mark.slow
@pytest.mark.host
def test_kernels_are_fused_and_work_in_place_on_device_memory():
    code = generated_code(lambda x: (x.sin() + 1).relu(), torch.randn(64, device="flagos"))
    assert code.count("cpp_pybinding") == 1
    assert "device='flagos:0'" in code and ".cpu(" not in code


@pytest.mark.slow
@pytest.mark.usefixtures("two_devices")
def test_the_device_of_the_inputs_is_kept():
    x = torch.ones(4, device="flagos:1")
    assert torch.compile(lambda x: x.sin() * 2)(x).device.index == 1


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.LayerNorm(8),
        nn.GELU(),
        nn.Linear(8, 2),
    )


def test_training_follows_the_native_device(native):
    x = torch.randn(4, 3, 8, 8)
    gradients = {}
    for device in (native, "flagos"):
        module = network().to(device)
        run = torch.compile(module) if device == "flagos" else module
        run(x.to(device)).pow(2).mean().backward()
        gradients[device] = [p.grad.cpu() for p in module.parameters()]
    torch.testing.assert_close(gradients["flagos"], gradients[native], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_dynamic_shapes():
    module = network().to("flagos").eval()
    compiled = torch.compile(module, dynamic=True)
    for size in (8, 9, 12):
        x = torch.randn(2, 3, size, size, device="flagos")
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_dynamic_batch_norm_in_training_mode():
    # Needs the C++ rules of type propagation: under those of another back end it does not compile.
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).to("flagos")
    x = torch.randn(2, 3, 8, 8, device="flagos")
    expected = copy.deepcopy(module)(x)
    compiled = torch.compile(module, dynamic=True)(x)
    torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-5)


def test_attention(native):
    def f(q):
        return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    q = torch.randn(1, 2, 8, 16)
    compiled = torch.compile(f)(q.to("flagos"))
    torch.testing.assert_close(compiled.cpu(), f(q.to(native)).cpu())


def test_an_encoder_in_evaluation(native):
    """Its fast path is one operator, of which torch learns the shapes by running it on real tensors."""
    layer = nn.TransformerEncoderLayer(
        32, 4, 64, dropout=0.0, batch_first=True, norm_first=True
    ).eval()
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(2, 6, 32)
    with torch.no_grad():
        expected = copy.deepcopy(module).to(native)(x.to(native)).cpu()
        compiled = torch.compile(module.to("flagos"))(x.to("flagos"))
    torch.testing.assert_close(compiled.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_what_is_made_by_the_shape_of_a_fake_tensor_is_real():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._mode_utils import no_dispatch

    fake = FakeTensorMode().from_tensor(torch.randn(2, 3, device="flagos"))
    with no_dispatch():
        made = [
            torch.zeros_like(fake),
            torch.ones_like(fake),
            torch.full_like(fake, 2.0),
            torch.randn_like(fake),
            fake.new_zeros(3),
            fake.new_full((2,), 5.0),
        ]
        with pytest.raises(RuntimeError, match="a tensor on meta was taken for one on flagos"):
            torch.ones(2, 3, device="flagos") + fake
    assert all(tensor.device.type == "flagos" for tensor in made)
    assert made[0].cpu().tolist() == [[0.0] * 3] * 2 and made[5].cpu().tolist() == [5.0] * 2
    assert made[3].cpu().abs().sum() > 0


def test_in_place_writes_to_inputs():
    def f(x):
        x.add_(1)
        return x * 2

    x = torch.zeros(4, device="flagos")
    assert torch.compile(f)(x).tolist() == [2] * 4 and x.tolist() == [1] * 4


@pytest.mark.needs("compiler")
def test_cpu_and_device_tensors_in_one_graph():
    def f(x, c):
        return (x + 1).cpu() * c, (x * c.to(x.device)).sum()

    on_cpu, on_device = torch.compile(f)(torch.ones(4, device="flagos"), torch.ones(4))
    assert on_cpu.device.type == "cpu" and on_cpu.tolist() == [2] * 4
    assert on_device.device.type == "flagos" and on_device.item() == 4


def test_random_numbers_of_a_graph_follow_the_seed():
    f = torch.compile(lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x))
    x = torch.ones(64, device="flagos")
    torch.manual_seed(0)
    first = f(x)
    torch.manual_seed(0)
    assert torch.equal(f(x), first) and not torch.equal(f(x), first)


def test_branches():
    def f(x):
        return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))

    compiled = torch.compile(f)
    assert compiled(torch.ones(2, device="flagos")).tolist() == [2, 2]
    assert compiled(-torch.ones(2, device="flagos")).tolist() == [-2, -2]


def test_graph_breaks():
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * x.sum().item()

    assert torch.compile(f)(torch.ones(2, device="flagos")).tolist() == [4, 4]


def test_autocast_inside_a_graph():
    def f(x):
        with torch.autocast("flagos", dtype=torch.bfloat16):
            return x @ x

    assert torch.compile(f)(torch.ones(4, 4, device="flagos")).dtype == torch.bfloat16


def test_asynchronous_copies_are_waited_for():
    def f(x):
        return x.to("flagos", non_blocking=True) * 2

    x = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    assert torch.equal(torch.compile(f)(x).cpu(), x * 2)


@pytest.mark.slow
@pytest.mark.needs("faults")
def test_kernels_wait_for_copies_that_are_late(run_python):
    script = """
    import torch
    f = torch.compile(lambda x: x.sin() + x)
    wrong = 0
    for i in range(10):
        source = torch.full((1000,), float(i)).pin_memory()
        y = f(source.to("flagos", non_blocking=True))
        wrong += not torch.allclose(y.cpu(), source.sin() + source)
    print("wrong", wrong)
    """
    out = run_python(script, FLAGOS_HOST_DELAY_US="30000", FLAGOS_HOST_SEED="1").stdout
    assert out.strip() == "wrong 0"


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "reduce-overhead"},
        {"mode": "max-autotune"},
        {"backend": "flagos"},
        {"backend": "flagos", "options": {"max_autotune": False}},
        {"backend": "aot_eager"},
        {"backend": "eager", "fullgraph": True},
    ],
    ids=str,
)
def test_modes_and_backends(options):
    module = nn.Linear(4, 2).to("flagos")
    x = torch.randn(3, 4, device="flagos")
    compiled = torch.compile(module, **options)(x)
    torch.testing.assert_close(compiled, module(x))


def test_a_custom_operator_in_a_graph():
    @torch.library.custom_op("flagos_compile_tests::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @double.register_fake
    def _(x):
        return torch.empty_like(x)

    compiled = torch.compile(lambda x: double(x) + 1, fullgraph=True)
    assert compiled(torch.ones(2, device="flagos")).tolist() == [3, 3]


@pytest.mark.host
def test_code_without_a_python_wrapper_is_refused():
    with torch._inductor.config.patch(cpp_wrapper=True):
        with pytest.raises(Exception, match="cpp_wrapper"):
            torch.compile(lambda x: x + 1)(torch.ones(2, device="flagos"))


def test_the_device_is_known_to_dynamo():
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("flagos")
    assert interface.is_available() and interface.device_count() == torch.flagos.device_count()
    assert get_interface_for_device("flagos:0") is interface
    assert interface.get_device_properties(0) == torch.flagos.get_device_properties(0)


@pytest.mark.slow
def test_the_device_is_known_to_a_dynamo_that_came_first(run_python):
    script = """
    import torch, torch._dynamo, torch._inductor
    import torch_fl
    print(torch.compile(lambda x: x + 1)(torch.ones(2, device="flagos")).tolist())
    """
    out = run_python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    assert out.strip() == "[2.0, 2.0]"


class TestExport:
    def test_a_program_runs_on_the_device(self):
        module = network().to("flagos").eval()
        x = torch.randn(2, 3, 8, 8, device="flagos")
        program = torch.export.export(module, (x,))
        torch.testing.assert_close(program.module()(x), module(x))

    def test_a_dynamic_batch(self):
        module = nn.Linear(4, 2).to("flagos")
        batch = torch.export.Dim("batch", min=2, max=64)
        x = torch.randn(8, 4, device="flagos")
        program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
        assert program.module()(torch.randn(5, 4, device="flagos")).shape == (5, 2)

    def test_saving_and_loading(self, tmp_path):
        module = nn.Linear(4, 2).to("flagos")
        x = torch.randn(3, 4, device="flagos")
        path = tmp_path / "program.pt2"
        torch.export.save(torch.export.export(module, (x,)), path)
        torch.testing.assert_close(torch.export.load(path).module()(x), module(x))

    def test_decompositions(self):
        program = torch.export.export(
            nn.LayerNorm(4).to("flagos"), (torch.randn(2, 4, device="flagos"),)
        ).run_decompositions()
        assert program.module()(torch.zeros(2, 4, device="flagos")).device.type == "flagos"


def test_fake_tensors_carry_the_device():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(2, 3, device="flagos")
        assert (x @ x.t()).device == torch.device("flagos", 0)


def test_tracing_with_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(lambda x: x.sin() + x.new_zeros(2))(torch.ones(2, device="flagos"))
    assert traced(torch.zeros(2, device="flagos")).tolist() == [0, 0]


@pytest.mark.host
def test_flex_attention_is_that_of_the_cpu():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def score(s, batch, head, i, j):
        return s * 0.5 + (i - j) * 0.01

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 2, 128, 32, generator=generator) for _ in range(3)]
    outputs = {}
    for device in ("cpu", "flagos"):
        mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 128, 128, device=device)
        moved = [x.to(device) for x in inputs]
        outputs[device] = flex_attention(*moved, score_mod=score, block_mask=mask)
    assert outputs["flagos"].device.type == "flagos"
    assert torch.equal(outputs["flagos"].cpu(), outputs["cpu"])

    ours = [x.to("flagos").requires_grad_() for x in inputs]
    theirs = [x.double().requires_grad_() for x in inputs]
    flex_attention(*ours, score_mod=score).square().sum().backward()
    i = torch.arange(128)
    scores = score(theirs[0] @ theirs[1].transpose(-1, -2) / 32**0.5, 0, 0, i[:, None], i[None])
    (scores.softmax(-1) @ theirs[2]).square().sum().backward()
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x.grad.cpu().double(), y.grad, rtol=1e-4, atol=1e-4)

    with pytest.raises(ValueError, match="only supported on"):
        flex_attention(*(x.to("meta") for x in inputs))


@pytest.mark.slow
def test_flex_attention_is_compiled():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    slopes = torch.tensor([0.5, 0.25], device="flagos")

    def score(s, batch, head, i, j):
        return s + (i - j) * slopes[head]

    q, k, v = (torch.randn(2, 2, 128, 32, device="flagos") for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, 2, 2, 128, 128, device="flagos")

    def attend(q, k, v):
        return flex_attention(q, k, v, score_mod=score, block_mask=mask) * 2

    compiled = torch.compile(attend, fullgraph=True)(q, k, v)
    assert compiled.device.type == "flagos"
    torch.testing.assert_close(compiled, attend(q, k, v), rtol=1e-5, atol=1e-5)


@pytest.mark.host
def test_flex_attention_without_a_kernel_of_the_cpu_is_computed_between_two_graphs():
    from torch.nn.attention.flex_attention import flex_attention

    def score(s, batch, head, i, j):
        return s + (i - j) * 0.25

    q, k, v = (torch.randn(2, 2, 128, 32, device="flagos") for _ in range(3))
    q.requires_grad_()
    with pytest.raises(Exception, match="with gradients has no compiled kernel on this device"):
        torch.compile(flex_attention, fullgraph=True)(q, k, v)
    apart, alone = (
        f(q, k, v, score_mod=score) for f in (torch.compile(flex_attention), flex_attention)
    )
    assert torch.equal(apart, alone)
    for grads in zip(*(torch.autograd.grad(x.sum(), q) for x in (apart, alone)), strict=True):
        assert torch.equal(*grads)
    q.requires_grad_(False)
    with pytest.raises(Exception, match="with auxiliary outputs has no compiled kernel"):
        torch.compile(flex_attention, fullgraph=True)(q, k, v, return_lse=True)


def _on_a_new_stream(x):
    side = torch.flagos.Stream()
    side.wait_stream(torch.flagos.current_stream())
    with torch.flagos.stream(side):
        y = x + 1
    torch.flagos.current_stream().wait_stream(side)
    return y


def _by_the_properties(x):
    assert torch.flagos.is_available() and torch.flagos.device_count() > 0
    return x + torch.flagos.get_device_properties(x.device.index).multi_processor_count


def _on_the_current_device(x):
    with torch.flagos.device(torch.flagos.current_device()):
        return x + 1


def _after_waiting(x):
    torch.flagos.current_stream().synchronize()
    return x + torch.flagos.current_device()


@pytest.mark.parametrize(
    "function", [_on_a_new_stream, _by_the_properties, _on_the_current_device, _after_waiting]
)
def test_the_devices_module_is_traced_in_one_graph(function):
    x = torch.arange(4.0, device="flagos")
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(x).tolist() == function(x).tolist()


@pytest.mark.usefixtures("two_devices")
def test_a_graph_is_of_the_current_device_that_it_was_traced_with():
    def numbered(x):
        return x + torch.flagos.current_device()

    x = torch.zeros(2)
    compiled = torch.compile(numbered, backend="eager", fullgraph=True)
    for index in (0, 1, 0):
        with torch.flagos.device(index):
            assert compiled(x).tolist() == [index, index]
