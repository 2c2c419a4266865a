"""Routes: which implementation serves an operator, and how a program changes it."""

from __future__ import annotations

import pytest
import torch

import flagos
import torch_fl

PROGRAM = """
import torch, torch_fl
x = torch.ones(3, device="flagos")
y = x + x
"""

PLATFORM_BACKENDS = [
    pytest.param("cpu", id="cpu"),
    pytest.param("cuda", marks=pytest.mark.cuda, id="cuda"),
    pytest.param("metax", marks=pytest.mark.metax, id="metax"),
    pytest.param("ascend", marks=pytest.mark.ascend, id="ascend"),
    pytest.param("flaggems", marks=pytest.mark.flaggems, id="flaggems"),
    pytest.param("flagos_python", marks=pytest.mark.flaggems_python, id="flagos_python"),
]


@pytest.fixture
def absent() -> str:
    """A backend of a chip that does not serve here."""
    serving = flagos.devices()[0]["vendor"]
    return next(name for name in ("ascend", "metax") if name != serving)


def dispatches(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("[flagos dispatch]")]


def test_nothing_is_logged_by_default(run_python):
    assert dispatches(run_python(PROGRAM).stderr) == []


@pytest.mark.parametrize("backend", PLATFORM_BACKENDS)
def test_the_log_names_operator_and_backend(backend, run_python):
    done = run_python(PROGRAM, FLAGOS_LOG_DISPATCH="1", FLAGOS_OP_add__Tensor=backend)
    assert f"[flagos dispatch] add.Tensor -> {backend}" in dispatches(done.stderr)


@pytest.mark.parametrize("backend", PLATFORM_BACKENDS)
def test_a_file_routes(backend, run_python, tmp_path):
    conf = tmp_path / "backends.conf"
    conf.write_text(f"# routes\nadd.Tensor = {backend}  # one overload\n")
    done = run_python(PROGRAM, FLAGOS_LOG_DISPATCH="1", FLAGOS_BACKEND_CONFIG=str(conf))
    assert f"[flagos dispatch] add.Tensor -> {backend}" in dispatches(done.stderr)


def test_a_file_may_include_another(run_python, tmp_path):
    (tmp_path / "more.conf").write_text("mm = cpu\n")
    conf = tmp_path / "backends.conf"
    conf.write_text("include more.conf\n")
    script = PROGRAM + "print(torch_fl.explain('mm'))"
    out = run_python(script, FLAGOS_BACKEND_CONFIG=str(conf)).stdout
    assert "more.conf:1" in out


@pytest.mark.host
def test_the_environment_beats_the_file(run_python, tmp_path):
    conf = tmp_path / "backends.conf"
    conf.write_text("add.Tensor = ascend\n")
    script = PROGRAM + "print(torch_fl.explain('add.Tensor'))"
    out = run_python(script, FLAGOS_BACKEND_CONFIG=str(conf), FLAGOS_OP_add__Tensor="cpu").stdout
    assert "FLAGOS_OP_add__Tensor" in out and "cpu.native" in out


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("add.Tensor = cpuu", "cpu"),
        ("add.Tensr = cpu", "add.Tensor"),
        ("addd = cpu", "add"),
        ("add.Tensor cpu", "="),
    ],
)
def test_a_mistake_in_a_file_is_an_error_with_its_place(line, complaint, run_python, tmp_path):
    conf = tmp_path / "backends.conf"
    conf.write_text(f"# first line\n{line}\n")
    script = """
    import torch
    try:
        torch.flagos.init()
    except ValueError as error:
        print(type(error).__name__, error)
    print(torch.ones(2).sum().item())
    """
    out = run_python(script, FLAGOS_BACKEND_CONFIG=str(conf)).stdout
    assert out.startswith("ConfigError") and "backends.conf:2" in out and complaint in out
    assert out.endswith("2.0\n")


def test_an_operator_without_the_backend_asked_for_is_blocked(run_python, absent):
    script = PROGRAM.replace("y = x + x", "")
    script += """
try:
    x + x
except NotImplementedError as error:
    print("blocked", error)
print((x * 3).sum().item())
"""
    out = run_python(script, FLAGOS_OP_add__Tensor=absent).stdout
    assert "blocked" in out and absent in out and "FLAGOS_OP_add__Tensor" in out
    assert out.endswith("9.0\n")


def test_explain_says_who_and_why():
    text = str(torch_fl.explain("aten::mm"))
    assert "aten::mm" in text and "decided by" in text
    assert str(torch_fl.explain("mm")) == text


def test_explain_of_an_unknown_operator_suggests_one():
    with pytest.raises(ValueError, match="aten::mm"):
        torch_fl.explain("mmm")


def test_the_summary_counts_every_operator(native_implementations):
    assert sum(torch_fl.plan_summary().values()) == len(flagos.plan()["ops"])
    summary = torch_fl.plan_summary()
    assert sum(summary.get(name, 0) for name in native_implementations) > 1300


def test_counters_count_calls():
    x = torch.ones(2, device="flagos")
    torch_fl.reset_counters()
    x.tanh()
    x.tanh()
    assert torch_fl.counters()["aten::tanh"]["calls"] == 2


@pytest.mark.needs("kernels")
def test_counters_count_calls_of_python_too():
    x = torch.ones(2, device="flagos")
    flagos.register("aten::sinh", lambda x: (x.exp() - (-x).exp()) / 2, impl_id="test.sinh")
    try:
        flagos.reset_counters()
        x.sinh()
        with flagos.route({"aten::sinh": "vendor"}):
            x.sinh()
        assert flagos.counters()["aten::sinh"] == {"calls": 2, "fallbacks": 0}
        assert flagos.counters() == torch_fl.counters()
        flagos.reset_counters()
        assert "aten::sinh" not in flagos.counters()
    finally:
        flagos.unregister("aten::sinh", "test.sinh")


def test_a_route_that_cannot_be_served_blocks_inside_the_region_only(absent):
    x = torch.ones(2, device="flagos")
    with torch_fl.route({"tanh": absent}):
        with pytest.raises(NotImplementedError, match="tanh"):
            x.tanh()
    assert x.tanh().shape == (2,)


def test_a_route_for_an_unknown_operator_is_refused():
    with pytest.raises(ValueError, match="tanh"), torch_fl.route({"tanhh": "cpu"}):
        pass


@pytest.fixture
def offered():
    """Registers implementations and withdraws them afterwards."""
    made = []

    def offer(op, fn, impl_id="test.python", **options):
        torch_fl.register_impl(op, fn, impl_id=impl_id, **options)
        made.append((op, impl_id))

    yield offer
    for op, impl_id in made:
        torch_fl.unregister_impl(op, impl_id)


class TestPythonImplementations:
    def test_it_serves_the_operator(self, offered):
        x = torch.ones(2, device="flagos")
        offered("tanh", lambda a: torch.full_like(a, 7))
        assert x.tanh().tolist() == [7, 7]
        assert torch_fl.explain("tanh").data["winner"] == "test.python"

    def test_withdrawing_gives_the_native_kernel_back(self):
        x = torch.zeros(2, device="flagos")
        torch_fl.register_impl("tanh", lambda a: a + 7, impl_id="test.python")
        assert x.tanh().tolist() == [7, 7]
        torch_fl.unregister_impl("tanh", "test.python")
        assert x.tanh().tolist() == [0, 0]

    def test_a_route_goes_around_it(self, offered):
        x = torch.zeros(2, device="flagos")
        offered("tanh", lambda a: a + 7)
        with torch_fl.route({"aten::tanh": "cpu"}):
            assert x.tanh().tolist() == [0, 0]
        assert x.tanh().tolist() == [7, 7]

    def test_a_route_of_the_core_package_goes_around_it_too(self, offered):
        x = torch.zeros(2, device="flagos")
        offered("tanh", lambda a: a + 7)
        with flagos.route({"aten::tanh": "cpu"}):
            assert x.tanh().tolist() == [0, 0]
        assert x.tanh().tolist() == [7, 7]

    def test_one_registered_with_the_core_package_serves_torch(self):
        x = torch.zeros(2, device="flagos")
        flagos.register("aten::tanh", lambda a: a + 7, impl_id="test.core")
        try:
            assert x.tanh().tolist() == [7, 7]
        finally:
            flagos.unregister("aten::tanh", "test.core")
        assert x.tanh().tolist() == [0, 0]

    def test_one_for_an_operator_torch_lacks_is_refused_and_not_kept(self):
        with pytest.raises(ValueError, match="no operator"):
            flagos.register("aten::tanhh", lambda a: a, impl_id="test.core")
        assert "aten::tanhh" not in flagos.plan()["ops"]

    def test_a_route_can_ask_for_it_by_id(self, offered):
        x = torch.zeros(2, device="flagos")
        offered("tanh", lambda a: a + 7, kind="reference")
        assert x.tanh().tolist() == [0, 0]
        with torch_fl.route({"tanh": "impl:test.python"}):
            assert x.tanh().tolist() == [7, 7]

    def test_gradients_go_through_it(self, offered):
        offered("tanh", lambda a: torch.full_like(a, 0.5))
        x = torch.zeros(2, device="flagos", requires_grad=True)
        x.tanh().sum().backward()
        assert x.grad.tolist() == [0.75, 0.75]

    def test_inside_it_the_operator_is_the_native_one(self, offered):
        offered("add.Tensor", lambda a, b, *, alpha=1: torch.add(a, b, alpha=alpha) * 10)
        x = torch.ones(1, device="flagos")
        assert (x + x).tolist() == [20]

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bfloat16, torch.float64])
    @pytest.mark.parametrize("number", [3, 0.1, 2j, True])
    @pytest.mark.parametrize("shape", [(), (2,)])
    def test_numbers_promote_as_ever_when_it_declines(self, shape, number, dtype, offered):
        def declines(a, b, *, alpha=1):
            raise NotImplementedError

        offered("add.Tensor", declines)
        x = torch.ones(shape, dtype=dtype)
        try:
            here = x + number
        except NotImplementedError:  # bfloat16 with a complex number, since torch 2.14
            with pytest.raises(NotImplementedError, match="'BComplex32'"):
                x.to("flagos") + number
            return
        there = x.to("flagos") + number
        assert there.dtype == here.dtype and torch.equal(there.cpu(), here)

    @pytest.mark.parametrize("refusal", [flagos.UnsupportedError, NotImplementedError])
    def test_declining_falls_to_the_native_kernel_and_counts(
        self, refusal, offered, native_implementations
    ):
        def declines(a):
            raise refusal("only squares")

        offered("tanh", declines)
        torch_fl.reset_counters()
        assert torch.zeros(2, device="flagos").tanh().tolist() == [0, 0]
        # A library without a kernel falls back too.
        assert 1 <= torch_fl.counters()["aten::tanh"]["fallbacks"] <= len(native_implementations)

    def test_declining_is_an_error_in_strict_mode(self, offered):
        def declines(a):
            raise NotImplementedError("only squares")

        offered("tanh", declines)
        x = torch.zeros(2, device="flagos")
        with flagos.strict(), pytest.raises(flagos.FlagosError, match="only squares"):
            x.tanh()

    def test_declining_after_a_write_is_an_error(self, offered):
        def writes_first(a):
            a.add_(1)
            raise NotImplementedError("too late")

        offered("tanh_", writes_first)
        with pytest.raises(RuntimeError, match="after it had written"):
            torch.zeros(2, device="flagos").tanh_()

    def test_other_errors_are_the_callers(self, offered):
        def fails(a):
            raise KeyError("bug")

        offered("tanh", fails)
        with pytest.raises(KeyError, match="bug"):
            torch.zeros(2, device="flagos").tanh()

    def test_it_is_called_for_device_tensors_only(self, offered):
        offered("tanh", lambda a: a + 7)
        assert torch.zeros(2).tanh().tolist() == [0, 0]

    def test_the_same_id_twice_is_refused(self, offered):
        offered("tanh", lambda a: a)
        with pytest.raises(ValueError, match=r"test\.python"):
            torch_fl.register_impl("tanh", lambda a: a, impl_id="test.python")

    def test_an_operator_torch_does_not_have_is_refused(self):
        with pytest.raises(ValueError, match="no_such_operator"):
            torch_fl.register_impl("no_such_operator", abs, impl_id="test.python")

    def test_its_calls_are_counted(self, offered):
        offered("tanh", lambda a: a)
        torch_fl.reset_counters()
        torch.zeros(2, device="flagos").tanh()
        assert torch_fl.counters()["aten::tanh"]["calls"] == 1


CALLS_DURING_CHANGES = """
import threading
import torch, torch_fl, flagos

calls = {{
    "relu": lambda: torch.relu(x),
    "add.Tensor": lambda: x + x,
    "relu6": lambda: torch.ops.aten.relu6(x),  # torch's composite, with a gradient
}}
own = {{"relu": lambda a: a.clamp_min(0), "add.Tensor": lambda a, b, alpha=1: a * 2, "relu6": lambda a: a.clamp(0, 6)}}
x = torch.arange(-3.0, 9.0, device="flagos").requires_grad_()
expected = {{op: call().detach().cpu() for op, call in calls.items()}}
wrong, done = [], threading.Event()

def check_all():
    while not done.is_set():
        for op, call in calls.items():
            for _ in range(20):
                result = call()
            if not torch.equal(result.detach().cpu(), expected[op]):
                wrong.append((op, result))
            if result.grad_fn is None:
                wrong.append((op, "no gradient"))

def call_all():
    try:
        check_all()
    except BaseException as error:
        wrong.append(error)

threads = [threading.Thread(target=call_all) for _ in range(4)]
{before}
for thread in threads:
    thread.start()
for _ in range(500):
    {change}
done.set()
for thread in threads:
    thread.join()
assert not wrong, wrong[:3]
"""


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (
            "for op in calls: torch_fl.register_impl(op, own[op], impl_id='own')",
            "with torch_fl.route({'relu': 'cpu', 'add.Tensor': 'cpu'}): pass",
        ),
        (
            "",
            "for op in calls: torch_fl.register_impl(op, own[op], impl_id='own')\n"
            "    for op in calls: torch_fl.unregister_impl(op, 'own')",
        ),
    ],
    ids=["routes", "implementations"],
)
def test_what_serves_an_operator_may_change_while_threads_call_it(before, change, run_python):
    done = run_python(CALLS_DURING_CHANGES.format(before=before, change=change))
    assert done.returncode == 0, done.stderr


def test_a_composite_has_its_gradient_again_without_its_implementation():
    x = torch.tensor([-1.0, 3.0, 7.0], device="flagos", requires_grad=True)
    torch_fl.register_impl("relu6", lambda a: a * 100, impl_id="test.python")
    with torch.no_grad():
        assert torch.ops.aten.relu6(x).tolist() == [-100, 300, 700]
    torch_fl.unregister_impl("relu6", "test.python")
    y = torch.ops.aten.relu6(x)
    y.sum().backward()
    assert y.tolist() == [0, 3, 6] and x.grad.tolist() == [0, 1, 0]


def test_a_python_implementation_is_logged_under_its_backend(run_python):
    script = """
    import torch, torch_fl
    torch_fl.register_impl("tanh", lambda a: a, impl_id="mine")
    torch.zeros(2, device="flagos").tanh()
    """
    done = run_python(script, FLAGOS_LOG_DISPATCH="1")
    assert "[flagos dispatch] tanh -> flagos_python" in dispatches(done.stderr)


@pytest.mark.host
class TestCompositeOperators:
    """Torch decomposes these whatever a route says."""

    COMPOSITE = ("linear", "matmul", "_to_copy", "softmax.int", "permute", "reshape")

    @pytest.mark.parametrize("op", COMPOSITE)
    def test_they_say_so(self, op):
        explanation = torch_fl.explain(op)
        assert explanation.data["composite"] and explanation.data["winner"] is None
        assert "composite" in str(explanation) and "routed themselves" in str(explanation)

    def test_they_are_no_part_of_the_plan(self):
        operators = flagos.plan()["ops"]
        assert not operators.keys() & {f"aten::{op}" for op in self.COMPOSITE}
        assert {"aten::addmm", "aten::_softmax", "aten::_coalesce"} <= operators.keys()

    @pytest.mark.parametrize("op", COMPOSITE)
    def test_a_route_for_one_is_refused(self, op):
        with (
            pytest.raises(ValueError, match=rf"aten::{op}.*composite"),
            torch_fl.route({op: "cpu"}),
        ):
            pass

    def test_no_other_operator_runs_whatever_its_route_says(self):
        """Every operator of the plan has a kernel of ours, for one layout at least."""
        keys = ("", "Sparse", "SparseCsr", "Quantized", "NestedTensor")
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        ours = ("aten::", "quantized::")  # beside them, those of adapters this process has loaded
        operators = [op for op in flagos.plan()["ops"] if op.startswith(ours)]
        assert len(operators) > 2000
        for op in operators:
            assert any(has_kernel(op, f"{key}PrivateUse1") for key in keys), op

    @pytest.mark.parametrize("backend", ["cuda", "cpu"])
    def test_a_variable_for_one_is_refused(self, backend, run_python):
        script = """
        import torch
        try:
            torch.ones(2, device="flagos")
        except ValueError as error:
            print(type(error).__name__, error)
        """
        out = run_python(script, FLAGOS_OP_linear=backend).stdout
        assert out.startswith("ConfigError") and "FLAGOS_OP_linear" in out and "composite" in out

    @pytest.mark.parametrize("strict", ["0", "1"])
    def test_a_line_for_one_is_told_and_refused_in_strict_mode(self, strict, run_python, tmp_path):
        conf = tmp_path / "backends.conf"
        conf.write_text("mm = cpu\nlinear = cuda\n")
        script = """
        import torch
        try:
            torch.flagos.init()
        except ValueError as error:
            print(type(error).__name__, error)
        """
        ran = run_python(script, FLAGOS_BACKEND_CONFIG=str(conf), FLAGOS_STRICT=strict)
        said = ran.stdout if strict == "1" else ran.stderr
        assert "backends.conf:2" in said and "aten::linear" in said and "composite" in said
        assert ran.stdout.startswith("ConfigError") == (strict == "1")
        assert ("a line without effect" in ran.stderr) == (strict == "0")

    def test_a_route_for_a_part_is_enforced(self):
        x, weight = torch.ones(2, 3, device="flagos"), torch.ones(4, 3, device="flagos")
        with torch_fl.route({"mm": "cuda", "addmm": "cuda"}):
            with pytest.raises(NotImplementedError, match="mm"):
                torch.nn.functional.linear(x, weight)
        assert torch.nn.functional.linear(x, weight).shape == (2, 4)

    def test_an_implementation_of_one_serves_it(self, offered):
        x, weight = torch.ones(2, 3, device="flagos"), torch.ones(4, 3, device="flagos")
        offered("linear", lambda a, w, bias=None: torch.full((1,), 7.0, device="flagos"))
        assert not torch_fl.explain("linear").data["composite"]
        with torch.no_grad():
            assert torch.nn.functional.linear(x, weight).tolist() == [7]
            with torch_fl.route({"linear": "impl:test.python"}):
                assert torch.nn.functional.linear(x, weight).tolist() == [7]
