"""Graphs: backward and its errors, hooks, functions of the program, in-place writes that need gradients."""

# ruff: noqa: E501 - the texts of steps stay whole

from __future__ import annotations

from ..draw import Draw


def backward(draw: Draw) -> tuple[str, str]:
    y = draw.tensor("float", where=lambda t: t.requires_grad and not t.is_leaf)
    leaf = draw.tensor("float", where=lambda t: t.requires_grad and t.is_leaf)
    r = draw.new("r")
    retain = draw.chance(0.6)
    return draw.rng.choice(
        (
            ("backward", f"{y}.sum().backward(retain_graph={retain})"),
            ("backward", f"{y}.sum().backward(retain_graph={retain})"),
            ("backward", f"{y}.backward(torch.ones_like({y}), retain_graph={retain})"),
            ("backward.inputs", f"{y}.sum().backward(inputs=[{leaf}], retain_graph=True)"),
            (
                "backward.wrong_gradient",
                f"{y}.backward(torch.ones(2, 9, device=dev), retain_graph=True)",
            ),
            (
                "grad",
                f"{r} = torch.autograd.grad({y}.sum(), {leaf}, retain_graph={retain}, allow_unused=True)",
            ),
            ("grad.unused", f"{r} = torch.autograd.grad({y}.sum(), {leaf})"),
            (
                "grad.two",
                f"{r} = torch.autograd.grad([{y}.sum(), {leaf}.sum()], [{leaf}], retain_graph=True)",
            ),
            (
                "grad.batched",
                f"{r} = torch.autograd.grad({y}, {leaf}, torch.ones(2, *{y}.shape, device=dev), is_grads_batched=True, retain_graph=True)",
            ),
            ("grad.host", f"{y}.sum().backward(torch.tensor(1.0), retain_graph=True)"),
        )
    )


def double_backward(draw: Draw) -> tuple[str, str]:
    """The order of its terms differs, see tests/conformance/expected.toml: nothing but the shape stays."""
    x, r = draw.tensor("float"), draw.new("r")
    expression = draw.rng.choice(
        ("x.sin()", "x * x", "x.exp()", "x.tanh()", "(x @ x.mT)", "x.softmax(-1)", "F.gelu(x)")
    )
    return "double_backward", (
        f"x = {x}.detach().requires_grad_()\n"
        f"y = {expression}\n"
        f"g, = torch.autograd.grad(y.sum(), x, create_graph=True)\n"
        f"{r} = [g.shape for g in torch.autograd.grad(g.sum(), x)]"
    )


def hooks(draw: Draw) -> tuple[str, str]:
    y, t, r = draw.tensor("float", where=lambda t: t.requires_grad), draw.new(), draw.new("r")
    return draw.rng.choice(
        (
            ("hook", f"{y}.register_hook(lambda g: g * 2)"),
            (
                "hook.raises",
                f"def fail(g):\n    raise ValueError('hook')\n{t} = {y} * 2\n{t}.register_hook(fail)\n{t}.sum().backward()",
            ),
            (
                "hook.wrong",
                f"{t} = {y} * 2\n{t}.register_hook(lambda g: g[None].expand(2, *g.shape))\n{t}.sum().backward()",
            ),
            ("hook.remove", f"handle = {y}.register_hook(lambda g: g * 3)\nhandle.remove()"),
            ("hook.retain_grad", f"{y}.retain_grad()"),
            ("hook.post", f"{y}.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))"),
            (
                "hook.node",
                f"{r} = []\n{t} = {y}.exp()\n{t}.grad_fn.register_hook(lambda gi, go: {r}.append(go[0].sum().item()))\n{t}.sum().backward()",
            ),
            (
                "hook.saved",
                f"with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x * 1):\n    {t} = {y} * {y}",
            ),
            (
                "hook.save_on_cpu",
                f"with torch.autograd.graph.save_on_cpu():\n    {t} = {y} * {y}\n{t}.sum().backward()",
            ),
            (
                "hook.in_backward",
                f"{t} = {y} * 1\n{t}.register_hook(lambda g: g.add_(1))\n{t}.sum().backward()",
            ),
        )
    )


def function(draw: Draw) -> tuple[str, str]:
    """An autograd.Function of the program: right, in place, of other devices, and raising."""
    x, t = draw.tensor("float"), draw.new()
    body, name = draw.rng.choice(
        (
            (("return x.exp()", "return g * 2"), "plain"),
            (("ctx.mark_dirty(x); x.mul_(2); return x", "return g * 2"), "dirty"),
            (
                (
                    "ctx.save_for_backward(x); return x * x",
                    "x, = ctx.saved_tensors; return g * 2 * x",
                ),
                "saved",
            ),
            (("return x.view_as(x)", "return g"), "view"),
            (("return x + 1", "return g.sum()"), "wrong_shape"),
            (("return x + 1", "raise ValueError('backward')"), "raises"),
            (("raise KeyError('forward')", "return g"), "raises_forward"),
            (("return x + 1", "return None"), "none"),
            (("return x.to('cpu', copy=True).to(dev, copy=True)", "return g"), "through_host"),
            (("ctx.mark_non_differentiable(x); return x * 1", "return g"), "non_differentiable"),
            (("ctx.set_materialize_grads(False); return x * 1", "return g"), "unmaterialized"),
            (("return x.double()", "return g"), "wrong_dtype"),
        )
    )
    if name == "through_host":
        x = f"{x}.detach().requires_grad_()"
    call = draw.rng.choice((x, f"({x} * 1)", f"{x}[:]"))
    return f"function.{name}", (
        "class Custom(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        " + body[0] + "\n"
        "    @staticmethod\n    def backward(ctx, g):\n        " + body[1] + "\n"
        f"{t} = Custom.apply({call})\n" + (f"{t}.sum().backward()" if draw.chance(0.6) else "")
    )


def checkpointed(draw: Draw) -> tuple[str, str]:
    x, t = draw.tensor("float", where=lambda t: t.requires_grad), draw.new()
    reentrant = draw.chance(0.5)
    inside = draw.rng.choice(
        (
            "x.sin().exp()",
            "F.dropout(x, 0.5) * x",
            "x @ x.mT",
            "x.view(3, -1)",
            "x.sigmoid_()",
            "x.mul(x).relu_()",
        )
    )
    return "checkpoint", (
        f"{t} = checkpoint(lambda x: {inside}, {x}, use_reentrant={reentrant})\n{t}.sum().backward()"
    )


def flags(draw: Draw) -> tuple[str, str]:
    x, other = draw.tensor(), draw.tensor()
    return draw.rng.choice(
        (
            ("requires_grad_", f"{x}.requires_grad_()"),
            ("requires_grad_", f"{x}.requires_grad_(False)"),
            ("requires_grad", f"{x}.requires_grad = True"),
            ("detach_", f"{x}.detach_()"),
            ("grad=", f"{x}.grad = {other}"),
            ("grad=", f"{x}.grad = torch.ones_like({x})"),
            ("grad=", f"{x}.grad = None"),
            ("grad=", f"{x}.grad = {x}.detach()"),
            ("data=", f"{x}.data = {other}"),
            ("data=", f"{x}.data = {other}.detach().clone()"),
            ("data=", f"{x}.data = {x}.data.t()"),
            ("version", f"torch.autograd.graph.increment_version({x})"),
            ("parameter", f"{draw.new()} = torch.nn.Parameter({x}.detach())"),
            ("swap", f"torch.utils.swap_tensors({x}, {other})")
            if draw.chance(0.3)
            else ("detach", f"{draw.new()} = {x}.detach()"),
            ("leaf_view", f"with torch.no_grad():\n    {x}.view(-1)[:1].fill_(2)"),
        )
    )


def inplace_graph(draw: Draw) -> tuple[str, str]:
    """Writes to what a graph saved or to views of what needs gradients."""
    x, t, u = draw.tensor("float", where=lambda t: t.requires_grad), draw.new(), draw.new()
    return draw.rng.choice(
        (
            (
                "graph.saved_overwritten",
                f"{t} = {x} * 1\n{u} = {t}.exp()\n{u}.add_(1)\n{u}.sum().backward()",
            ),
            (
                "graph.view_overwritten",
                f"{t} = {x} * 1\n{u} = {t}.view(-1)\n{u}.mul_(2)\n{t}.sum().backward()",
            ),
            ("graph.view_of_leaf", f"{u} = {x}.view(-1)\n{u}.mul_(2)"),
            (
                "graph.base_overwritten",
                f"{t} = {x} * 1\n{u} = {t}[..., :1]\n{t}.mul_(3)\n{u}.sum().backward()",
            ),
            ("graph.multiview", f"{t} = {x} * 1\n{u}, *_ = {t}.unbind(0)\n{u}.mul_(2)"),
            ("graph.no_grad_view", f"with torch.no_grad():\n    {u} = {x}.view(-1)\n{u}.mul_(2)"),
            ("graph.setitem", f"{t} = {x} * 1\n{t}[0] = {t}.sum()\n{t}.sum().backward()"),
            ("graph.copy", f"{t} = torch.zeros_like({x})\n{t}.copy_({x})\n{t}.sum().backward()"),
            (
                "graph.detached_view",
                f"{t} = {x} * 1\n{u} = {t}.detach()\n{u}.zero_()\n({t} * {t}).sum().backward()",
            ),
            ("graph.data", f"{t} = {x} * {x}\n{x}.data.add_(1)\n{t}.sum().backward()"),
        )
    )
