"""Programs around operators: lists, optimizers, transforms, modes, threads, streams."""

# ruff: noqa: E501 - the texts of steps stay whole

from __future__ import annotations

from ..draw import Draw

_FOREACH_UNARY = [
    "abs",
    "neg",
    "exp",
    "sqrt",
    "sin",
    "tanh",
    "sigmoid",
    "floor",
    "reciprocal",
    "sign",
    "frac",
    "lgamma",
    "erf",
    "trunc",
]
_FOREACH_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "pow",
    "clamp_max",
    "clamp_min",
]
_OPTIMIZERS = (
    "SGD(p, lr=0.1, momentum=0.9, foreach=F_)",
    "Adam(p, lr=0.1, foreach=F_)",
    "AdamW(p, lr=0.1, amsgrad=True, foreach=F_)",
    "RMSprop(p, lr=0.1, foreach=F_)",
    "Adagrad(p, lr=0.1, foreach=F_)",
    "Adadelta(p, lr=0.1, foreach=F_)",
    "Adamax(p, lr=0.1, foreach=F_)",
    "Rprop(p, lr=0.1, foreach=F_)",
    "NAdam(p, foreach=F_)",
    "RAdam(p, foreach=F_)",
    "ASGD(p, foreach=F_)",
    "SGD(p, lr=0.1, fused=True)",
    "Adam(p, fused=True)",
    "Adagrad(p, fused=True)",
    "LBFGS(p, max_iter=2)",
)


def foreach(draw: Draw) -> tuple[str, str]:
    """Lists, in which the third may not fit."""
    names = [draw.tensor("float") for _ in range(3)]
    if draw.chance(0.6):
        names = [names[0], draw.like(names[0]), draw.like(names[0])]
    mine = f"[{', '.join(names)}]"
    others = f"[{', '.join(draw.like(name) for name in names)}]"
    wrong = f"[{names[0]}, {names[1]}, {draw.tensor()}]"
    r, number = draw.new("r"), draw.number()
    one, two = draw.rng.choice(_FOREACH_UNARY), draw.rng.choice(_FOREACH_BINARY)
    calls = (
        f"{r} = torch._foreach_{one}({mine})",
        f"torch._foreach_{one}_({mine})",
        f"{r} = torch._foreach_{two}({mine}, {others})",
        f"torch._foreach_{two}_({mine}, {wrong})",
        f"torch._foreach_{two}_({mine}, {number})",
        f"torch._foreach_{two}_({mine}, [1.0, 2.0, {number}])",
        f"torch._foreach_{two}_({mine}, [1.0, 2.0])",
        f"torch._foreach_addcmul_({mine}, {mine}, {wrong}, value={number})",
        f"torch._foreach_addcdiv_({mine}, {others}, {others}, [1.0, 2.0, 3.0])",
        f"torch._foreach_lerp_({mine}, {others}, 0.25)",
        f"torch._foreach_copy_({mine}, {others})",
        f"torch._foreach_copy_({mine}, {wrong})",
        f"torch._foreach_zero_({mine})",
        f"{r} = torch._foreach_norm({mine}, 2)",
        f"torch._foreach_mul_({mine}, torch.tensor(2.0, device=dev))",
        f"torch._foreach_add_({mine}, {names[0]})",
        f"torch._foreach_mul_({mine}, torch.tensor(2.0))",
        f"{r} = torch._foreach_max({mine})",
        f"{r} = torch.nn.utils.clip_grad_norm_({mine}, 1.0, foreach=True)",
        f"{r} = torch.nn.utils.clip_grad_norm_({mine}, 1.0, foreach=False)",
        f"torch._amp_foreach_non_finite_check_and_unscale_({mine}, torch.zeros(1, device=dev), torch.full((1,), 0.5, device=dev))",
        f"{r} = torch.nn.utils.parameters_to_vector({mine})",
    )
    call = draw.rng.choice(calls)
    return "foreach." + call.partition("(")[0].rpartition(".")[2], call


def optimizer(draw: Draw) -> tuple[str, str]:
    p, q = draw.new(), draw.new()
    source = draw.tensor("float")
    made = draw.rng.choice(_OPTIMIZERS).replace("F_", str(draw.chance(0.5)))
    wrong = "q.grad = None\n" if draw.chance(0.2) else ""
    return f"optimizer.{made.partition('(')[0]}", (
        f"{p} = torch.nn.Parameter({source}.detach().clone())\n{q} = torch.nn.Parameter(torch.ones(3, device=dev))\n"
        f"p, q = [{p}, {q}], {q}\no = torch.optim.{made}\n"
        f"def closure():\n    o.zero_grad()\n    y = ({p} * {p}).sum() + {q}.sum()\n    y.backward()\n    {wrong.strip() or 'pass'}\n    return y\n"
        f"for _ in range({draw.rng.choice((1, 3))}):\n    o.step(closure)\n"
        f"o.load_state_dict(copy.deepcopy(o.state_dict()))\no.step(closure)"
    )


def transform(draw: Draw) -> tuple[str, str]:
    x, y, t = draw.tensor("float"), draw.tensor("float"), draw.new()
    f = draw.rng.choice(
        (
            "x.sin().sum()",
            "(x * x).sum()",
            "(x @ x.mT).sum()",
            "x.softmax(-1).sum()",
            "x[0].sum()",
            "x.sort(-1)[0].sum()",
            "x.view(-1).cumsum(0).sum()",
            "x.mul_(2).sum()",
        )
    )
    x, y = f"{x}.detach()", f"{y}.detach()"
    call = draw.rng.choice(
        (
            f"torch.func.vmap(lambda x: {f})({x})",
            f"torch.func.vmap(lambda x: x * 2 + 1, in_dims={draw.integer()})({x})",
            f"torch.func.vmap(torch.mm, in_dims=(0, None))({x}, {y})",
            f"torch.func.vmap(lambda x: F.dropout(x, 0.5), randomness='{draw.rng.choice(('same', 'different', 'error'))}')({x})",
            f"torch.func.grad(lambda x: {f})({x})",
            f"torch.func.vmap(torch.func.grad(lambda x: {f}))({x})",
            f"torch.func.jvp(lambda x: {f}, ({x},), (torch.ones_like({x}),))[1]",
            f"torch.func.vjp(lambda x: {f}, {x})[1](torch.tensor(1.0, device=dev))[0]",
            f"torch.func.jacrev(lambda x: x * x)({x})",
            f"torch.func.jacfwd(lambda x: x.sin())({x})",
            f"torch.func.functionalize(lambda x: {f})({x})",
            f"torch.func.vmap(lambda x, y: x + y)({x}, {y})",
            f"torch.func.vmap(lambda x: x[x > 0])({x})",
            f"torch.func.vmap(lambda x: x.item())({x})",
            f"torch.func.linearize(lambda x: x.exp(), {x})[1](torch.ones_like({x}))",
        )
    )
    name = "vmap_dropout" if "dropout" in call else call.partition("(")[0].rpartition(".")[2]
    return f"func.{name}", f"{t} = {call}"


def mode(draw: Draw) -> tuple[str, str]:
    """Contexts around a short body that may raise in them."""
    x, y, t, u = draw.tensor("float"), draw.tensor(), draw.new(), draw.new()
    body = draw.rng.choice(
        (
            f"{t} = {x} @ {x}.mT",
            f"{t} = {x} + {y}",
            f"{t} = {x}.view(-1)",
            f"{x}.mul_(2)",
            f"{t} = F.softmax({x}, -1)",
            f"{t} = {x}.expand(2, *{x}.shape)[0]\n    {u} = {t} * 2",
            f"{t} = {x}.clone()\n    raise KeyError(1)",
            f"{t} = torch.ones(3, device=dev)\n    {t} += 1",
            f"{t} = {x}.sum()\n    {t}.backward()",
            f"{t} = torch.cat([{x}, {y}])",
            f"{t} = {x}[{x} > 0]",
            f"{t} = torch.ones(3)\n    {t} = {t}.to(dev)",
        )
    )
    dtype = draw.rng.choice(("torch.bfloat16", "torch.float16"))
    passing = (
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "class Pass(TorchDispatchMode):\n    def __torch_dispatch__(self, f, types, args=(), kwargs=None):\n        return f(*args, **(kwargs or {}))\n"
    )
    function = (
        "from torch.overrides import TorchFunctionMode\n"
        "class Pass(TorchFunctionMode):\n    def __torch_function__(self, f, types, args=(), kwargs=None):\n        return f(*args, **(kwargs or {}))\n"
    )
    name, before, context = draw.rng.choice(
        (
            ("no_grad", "", "torch.no_grad()"),
            ("enable_grad", "", "torch.no_grad(), torch.enable_grad()"),
            ("inference_mode", "", "torch.inference_mode()"),
            ("autocast", "", f"torch.autocast(dev.type, {dtype})"),
            (
                "autocast.off",
                "",
                f"torch.autocast(dev.type, {dtype}), torch.autocast(dev.type, enabled=False)",
            ),
            ("dispatch_mode", passing, "Pass()"),
            ("dispatch_mode.two", passing, "Pass(), Pass()"),
            ("function_mode", function, "Pass()"),
            ("default_device", "", "torch.device(dev)"),
            ("deterministic", "", "torch.autograd.set_multithreading_enabled(False)"),
            ("anomaly", "", "torch.autograd.detect_anomaly()"),
            ("fork_rng", "", "torch.random.fork_rng(devices=[])"),
            ("profile", "", "torch.autograd.profiler.profile()"),
            ("saved", "", "torch.autograd.graph.allow_mutation_on_saved_tensors()"),
        )
    )
    if name == "autocast":  # each device has its own list of operators
        body = f"{t} = {x} @ {x}.mT"
    return f"mode.{name}", f"{before}with {context}:\n    {body}"


def thread(draw: Draw) -> tuple[str, str]:
    """A second thread that works on tensors of its own while this one goes on."""
    x, y, t, u, r = draw.tensor("float"), draw.tensor(), draw.new(), draw.new(), draw.new("r")
    return "thread", (
        f"{r} = []\na = {x}.detach().clone()\n"
        f"def work():\n    try:\n        a.mul_(2)\n        b = a.clone().requires_grad_()\n        (b * b).sum().backward()\n        {r}.append(b.grad)\n"
        f"        {r}.append(a @ a.mT)\n    except Exception as error:\n        {r}.append(type(error).__name__)\n"
        f"other = threading.Thread(target=work)\nother.start()\ntry:\n    {t} = {y} + 1\n    {u} = {y}.sum()\nfinally:\n    other.join()"
    )


def stream(draw: Draw) -> tuple[str, str]:
    """Streams and events, which the CPU has in torch.cpu."""
    x, t = draw.tensor(), draw.new()
    return "stream", (
        "m = torch.get_device_module(dev)\ns = m.Stream()\n"
        f"with m.stream(s):\n    {t} = {x} * 2\ns.synchronize() if hasattr(s, 'synchronize') else None\nm.synchronize()"
    )


def module(draw: Draw) -> tuple[str, str]:
    x, t, r = draw.tensor("float", dims=(2, 3, 4)), draw.new(), draw.new("r")
    shape = draw.shape_of(x) or (1,)
    n, c = shape[-1], shape[1] if len(shape) > 1 else 1
    made = draw.rng.choice(
        (
            f"nn.Linear({n}, 3)",
            f"nn.Conv1d({c}, 2, 1)",
            f"nn.LSTM({n}, 3)",
            f"nn.GRU({n}, 2, batch_first=True)",
            f"nn.LayerNorm({n})",
            f"nn.BatchNorm1d({c})",
            f"nn.Sequential(nn.Linear({n}, 4), nn.GELU(), nn.Dropout(0.5))",
            f"nn.MultiheadAttention({n}, 1)",
            f"nn.TransformerEncoderLayer({n}, 1, 4)",
            f"nn.Embedding(4, {n})",
            f"nn.BatchNorm2d({c})",
            f"nn.Bilinear({n}, {n}, 2)",
            f"nn.RNN({n}, 3, bidirectional=True)",
            f"nn.utils.parametrizations.weight_norm(nn.Linear({n}, 3))",
            f"nn.utils.parametrizations.orthogonal(nn.Linear({n}, 3))",
        )
    )
    args = "x, x, x" if "Multihead" in made else "x, x" if "Bilinear" in made else "x"
    after = draw.rng.choice(
        (
            "",
            "m.half()\n",
            "m.double()\n",
            "m.eval()\n",
            "m.to(memory_format=torch.channels_last)\n",
            "m = copy.deepcopy(m)\n",
            "m.zero_grad(set_to_none=False)\n",
        )
    )
    return f"module.{made.partition('(')[0]}", (
        f"x = {x}.detach().to(torch.float32)\nm = torch.{made.replace('nn.', 'nn.', 1)}.to(dev)\n".replace(
            "(nn.", "(torch.nn."
        ).replace(", nn.", ", torch.nn.")
        + f"{after}y = m({args})\ny = y[0] if isinstance(y, tuple) else y\n{t} = y.detach()\ny.sum().backward()\n{r} = [p.grad for p in m.parameters()]"
    )
