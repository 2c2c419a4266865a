"""torch on a vendor's library: the example chip, whose memory the host cannot touch.

Every test runs in a process of its own, because a process has one vendor. A host access to device memory would end it.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs("compiler")


def test_its_kernels_compute(on_chip):
    on_chip("""
x, y = torch.randn(3, 5), torch.randn(5)
close(device(x) + device(y), x + y)
close(device(x).add(device(y), alpha=3), x.add(y, alpha=3))
close(device(x) * 2.5, x * 2.5)
close(device(x).t() * device(x).t(), x.t() * x.t())
close(device(x) @ device(x).t(), x @ x.t())
close(device(x).relu(), x.relu())
close(torch.softmax(device(x), -1), torch.softmax(x, -1))
close(device(x).sum((0,)), x.sum((0,)))
close(torch.nn.functional.layer_norm(device(x), (5,)), torch.nn.functional.layer_norm(x, (5,)))
weight, index = torch.randn(7, 4), torch.tensor([[1, 6], [0, 1]])
close(torch.nn.functional.embedding(device(index), device(weight)), weight[index])
assert fallbacks() == {}, fallbacks()
""")


def test_in_place_and_out_forms_are_the_same_kernel(on_chip):
    on_chip("""
x, y = torch.randn(4, 6), torch.randn(6)
there = device(x)
assert there.add_(device(y)) is there
close(there, x + y)
there[:, ::2].mul_(2)                      # written through a view with holes
here = x + y; here[:, ::2].mul_(2)
close(there, here)
out = torch.empty(4, 6, device="flagos")
assert torch.add(device(x), device(y), out=out) is out
close(out, x + y)
assert fallbacks() == {}, fallbacks()
empty = torch.empty(0, device="flagos")    # torch resizes it: the CPU's kernel does
torch.add(device(x), device(y), out=empty)
close(empty, x + y)
there = device(x)
try:
    there[1:].add_(there[:-1])             # overlaps: the CPU's kernel refuses, as torch does
except RuntimeError as error:
    assert "single memory location" in str(error), error
else:
    raise AssertionError("computed")
""")


def test_shapes_and_strides_are_torchs(on_chip):
    on_chip("""
def each(*shapes):
    for shape in shapes:
        yield torch.randn(shape)
        if len(shape) > 1:
            yield torch.randn(shape).transpose(0, -1).contiguous().transpose(0, -1)
            yield torch.randn(shape)[..., ::2]
for a in each((1,), (3,), (2, 3), (2, 1), (4, 3, 2), (2, 3, 4, 5)):
    for b in each((1,), (2, 3), (2, 1), (4, 1, 2), (2, 3, 4, 5), ()):
        for dtype in (torch.float32, torch.float64, torch.int64):
            try:
                here = a + b.to(dtype)
            except RuntimeError:
                continue
            for _ in range(2):             # by torch's meta kernel, then by rule or from memory
                there = device(a) + device(b.to(dtype))
                assert there.stride() == here.stride(), (a.shape, a.stride(), b.shape, b.stride())
                close(there, here)
for a in each((2, 3), (4, 3, 2)):
    same(device(a) > 0, a > 0)
    same(device(a).sum(0, keepdim=True) > 0, a.sum(0, keepdim=True) > 0)
""")


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_all_that_has_no_kernel_is_computed_by_the_cpu(on_chip, kernels):
    on_chip(
        """
x = torch.randn(5, 7)
same(device(x).cos(), x.cos())
same(device(x).sort(dim=1).indices, x.sort(dim=1).indices)
same(device(x)[:, [1, 3]], x[:, [1, 3]])
same(device(x)[device(x) > 0], x[x > 0])
same(device(x)[1:, 2].exp(), x[1:, 2].exp())
here, there = x.clone(), device(x)
here[1:, 2].exp_(); there[1:, 2].exp_(); same(there, here)
here.unsqueeze_(0).transpose_(0, 1); there.unsqueeze_(0).transpose_(0, 1); same(there, here)
out_here, out_there = torch.empty(0), torch.empty(0, device="flagos")
torch.cos(x, out=out_here); torch.cos(device(x), out=out_there); same(out_there, out_here)
assert device(x)[2, 3].item() == x[2, 3].item()
assert "device='flagos:0'" in repr(device(x)) and repr(device(x)).split("device")[0].rstrip(", \\n") in repr(x)
mean, var = torch.zeros(7), torch.ones(7)
mean_there, var_there = device(mean), device(var)
torch.nn.functional.batch_norm(x, mean, var, training=True)
torch.nn.functional.batch_norm(device(x), mean_there, var_there, training=True)
same(mean_there, mean); same(var_there, var)
lists_here = torch._foreach_cos([x, x[0]]); lists_there = torch._foreach_cos([device(x), device(x)[0]])
for a, b in zip(lists_there, lists_here): same(a, b)
torch.manual_seed(3); here = torch.randn(9); torch.manual_seed(3); same(torch.randn(9, device="flagos"), here)
conv = torch.nn.Conv2d(2, 3, 3)
image = torch.randn(1, 2, 8, 8)
close(conv.to("flagos")(device(image)), conv.to("cpu")(image))
assert fallbacks()["aten::cos"] >= 1 and "aten::view" not in fallbacks()
""",
        EXAMPLE_CHIP_KERNELS=kernels,
    )


def test_without_kernels_training_gives_the_bits_of_the_cpu(on_chip):
    on_chip(TRAINING + "assert losses('flagos') == losses('cpu')", EXAMPLE_CHIP_KERNELS="0")


def test_with_kernels_training_comes_close(on_chip):
    on_chip(
        TRAINING
        + "torch.testing.assert_close(torch.tensor(losses('flagos')), torch.tensor(losses('cpu')))"
    )


TRAINING = """
def losses(device):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.ReLU(),
        torch.nn.Linear(16, 11),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.arange(24).remainder(11).reshape(4, 6).to(device)
    seen = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(1).flatten())
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen
"""


@pytest.mark.parametrize("variable", ["FLAGOS_STRICT=1", "FLAGOS_MAX_CPU_FALLBACK=0"])
def test_a_strict_program_names_the_operator_without_a_kernel(on_chip, variable):
    name, value = variable.split("=")
    on_chip(
        """
x = torch.ones(3, 3).to("flagos")
(x + x).relu_().sum().item()
try:
    x.cos()
except NotImplementedError as error:
    assert "aten::cos" in str(error) and "no kernel for aten::cos" in str(error), error
else:
    raise AssertionError("computed by the CPU")
""",
        **{name: value},
    )


def test_threads_compute_exactly(on_chip):
    on_chip("""
import threading
wrong = []
def work(number):
    stream = torch.Stream(device="flagos:0")
    with stream:
        x = torch.full((16,), float(number), device="flagos")
        one = torch.ones(16, device="flagos")
        for step in range(500):
            x = x + one
            if step % 50 == 0:
                x = x.cos().acos() * 0 + x         # to the CPU and back
        if not torch.equal(x.cpu(), torch.full((16,), number + 500.0)):
            wrong.append(number)
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
""")


def test_two_devices_and_random_numbers_of_kernels(on_chip):
    on_chip("""
x = torch.randn(4, 5)
near, far = device(x), x.to("flagos:1")
same(near.to("flagos:1") + far, x + x)
same(far.t().to("flagos:0"), x.t())
try:
    near + far
except RuntimeError as error:
    assert "same device" in str(error), error
else:
    raise AssertionError("mixed")
torch.manual_seed(5); a = torch.empty(100, device="flagos").uniform_().cpu()
torch.manual_seed(5); b = torch.empty(100, device="flagos").uniform_().cpu()
c = torch.empty(100, device="flagos").uniform_().cpu()
assert torch.equal(a, b) and not torch.equal(b, c) and 0 <= c.min() and c.max() <= 1
""")


def test_a_forked_child_is_told(on_chip):
    on_chip("""
import os
x = torch.ones(3, device="flagos")
child = os.fork()
if child == 0:
    try:
        (x + x).cpu()
    except RuntimeError as error:
        os._exit(0 if "fork" in str(error) else 2)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
""")


def test_explain_tells_who_serves_and_why_not_the_library(on_chip):
    on_chip("""
import flagos
torch.ones(1, device="flagos")
served = str(flagos.explain("aten::add.Tensor"))
assert "example.native" in served.splitlines()[0], served
unserved = str(flagos.explain("aten::cos"))
assert "cpu.fallback" in unserved.splitlines()[0] and "no kernel for aten::cos" in unserved, unserved
""")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("parameters", ["dtype", "torch.float32", "None"])
def test_statistics_of_a_kernel_fit_the_cpus_backward_kernel(dtype, parameters, on_chip):
    on_chip(f"""
dtype = torch.{dtype}
of = {parameters}
x = torch.randn(6, 8, dtype=dtype)
weight = None if of is None else torch.randn(8, dtype=of)

def run(x, weight):
    x = x.clone().requires_grad_()
    weight = None if weight is None else weight.clone().requires_grad_()
    y = torch.nn.functional.layer_norm(x, (8,), weight, weight)
    y.float().square().sum().backward()
    return [y.detach(), x.grad] + ([] if weight is None else [weight.grad])

here, there = run(x, weight), run(x.to("flagos"), None if weight is None else weight.to("flagos"))
assert counters()["aten::native_layer_norm"]["fallbacks"] == 0
assert counters()["aten::native_layer_norm_backward"]["fallbacks"] == 1
for a, b in zip(here, there, strict=True):
    assert a.dtype == b.dtype
    torch.testing.assert_close(b.cpu().float(), a.float(), rtol=0.05, atol=0.05)
""")


def test_a_library_without_native_tensors_registers_nothing_for_them(on_chip):
    on_chip("""
import flagos
for _ in range(2):  # the refused one leaves nothing behind
    try:
        flagos.register("aten::exp", torch.exp, impl_id="mine", native=True)
    except flagos.UnsupportedError as error:
        assert "mine of aten::exp" in str(error) and "native=True" in str(error), error
    else:
        raise AssertionError("it was registered")
assert "mine" not in str(torch_fl.explain("aten::exp"))
flagos.register("aten::exp", lambda x: x + 1, impl_id="mine")
assert torch.zeros(2, device="flagos").exp().tolist() == [1.0, 1.0]
""")


def test_a_kernel_writes_to_parts_and_over_what_it_reads(on_chip):
    on_chip("""
x = torch.randn(4, 6)
expected, got = x.clone(), device(x)
for t in (expected, got):
    torch.mul(t, 2, out=t)  # each element in its own place
    t[:, :3].copy_(t[:, 3:] * 1)  # to a part, from other memory
    t[:2].add_(t[2:])  # two parts of one tensor that lie apart
assert fallbacks() == {}, fallbacks()
close(got, expected)
for t in (expected, got):  # parts that overlap are the CPU kernel's affair, which refuses them
    try:
        t[1:].add_(t[:-1])
    except RuntimeError as error:
        assert "single memory location" in str(error), error
    else:
        raise AssertionError(t.device)
assert fallbacks() == {"aten::add_.Tensor": 1}, fallbacks()
close(got, expected)
""")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_counted_as_on_the_host(dtype, on_chip):
    on_chip(f"""
x = torch.tensor([0, 1, 1, 3], dtype=torch.{dtype})
assert torch.histc(device(x), bins=4, min=0, max=3).tolist() == [1, 2, 0, 1]
out = torch.empty(0, dtype=x.dtype, device="flagos")
assert torch.histc(device(x), bins=4, min=0, max=3, out=out) is out and out.tolist() == [1, 2, 0, 1]
assert fallbacks()["aten::histc"] == 1, fallbacks()
same(torch.histc(device(x.float()), bins=4), torch.histc(x.float(), bins=4))
""")
