"""Steps of a loop: what makes one turn another than the turn before, and what a program does once a turn.

Their texts may use ``turn``, the number of the turn, and ``kept``, a list that lives through all turns.
"""

# ruff: noqa: E501 - the texts of steps stay whole

from __future__ import annotations

from ..draw import Draw

_LAYERS = (
    "torch.nn.Linear(8, 8)",
    "torch.nn.LayerNorm(8)",
    "torch.nn.GELU()",
    "torch.nn.ReLU(inplace=True)",
    "torch.nn.Tanh()",
    "torch.nn.Softmax(-1)",
    "torch.nn.Linear(8, 8, bias=False)",
    "torch.nn.Unflatten(1, (2, 4))",
    "torch.nn.Flatten()",
    "torch.nn.Dropout(0.25)",
)
_OPTIMIZERS = (
    "SGD({p}, lr=0.01, momentum=0.9, foreach={f})",
    "AdamW({p}, lr=0.01, foreach={f})",
    "AdamW({p}, lr=0.01, fused=True)",
    "Adam({p}, lr=0.01, foreach={f}, amsgrad=True)",
    "RMSprop({p}, lr=0.01, foreach={f})",
)


def changes(draw: Draw) -> tuple[str, str]:
    """A turn of several does something else."""
    x, y, t = draw.tensor("float"), draw.tensor(), draw.new()
    every, when = draw.rng.choice((2, 3, 5, 9)), draw.rng.choice((0, 1))
    name, then, otherwise = draw.rng.choice(
        (
            ("write", f"{x}.detach().mul_(0.5)", "pass"),
            ("value", f"{t} = {x} * 2", f"{t} = {x} * 3"),
            ("operator", f"{t} = {x} + {y}", f"{t} = {x} - {y}"),
            ("shape", f"{t} = {x}.flatten()[1:] + 1", f"{t} = {x}.flatten() + 1"),
            ("raise", "raise KeyError(turn)", f"{t} = {y}.clone()"),
            ("read", f"{t} = {x}.sum() + {x}.sum().item()", f"{t} = {x}.sum()"),
            ("keep", f"kept.append({x} + 1)", f"kept.append({y}.detach())"),
            ("drop", "kept.clear()", f"kept.append({x}.detach() * 2)"),
            ("synchronize", "torch.get_device_module(dev).synchronize()", "pass"),
            ("deterministic", f"torch.use_deterministic_algorithms(True)\n    {t} = {x} + 1\n    torch.use_deterministic_algorithms(False)", f"{t} = {x} + 1"),
            ("inference", f"with torch.inference_mode():\n        {t} = {x}.detach() + 1", f"{t} = {x}.detach() + 1"),
            ("no_grad", f"with torch.no_grad():\n        {t} = {x} * 2", f"{t} = {x} * 2"),
        )
    )  # fmt: skip
    return f"changes.{name}", f"if turn % {every} == {when}:\n    {then}\nelse:\n    {otherwise}"


def depends(draw: Draw) -> tuple[str, str]:
    """A branch that depends on data."""
    x, y, t = draw.tensor("float"), draw.tensor("float"), draw.new()
    return "depends", (
        f"{t} = {x}.detach() * 0.5\nif bool({y}.detach().sum() + turn % 3 > 1):\n    {t} += 1\nelse:\n    {t} = {t}.neg()"
    )


def arrives(draw: Draw) -> tuple[str, str]:
    """Data from the host, another each turn."""
    t, shape = draw.new(), draw.shape(1, 3)
    size = 1
    for each in shape:
        size *= each
    data = f"torch.arange(float({size})).reshape({shape}) * (turn % 7)"
    how = draw.rng.choice(
        (
            f"({data}).to(dev)",
            f"({data}).to(dev, non_blocking=True)",
            f"torch.zeros({shape}, device=dev).copy_({data})",
            f"torch.tensor({data}.tolist(), device=dev)",
        )
    )
    return "arrives", f"{t} = {how}"


def leaves(draw: Draw) -> tuple[str, str]:
    """What goes to the host, or to others."""
    x, r, t = draw.tensor("float"), draw.new("r"), draw.new()
    how = draw.rng.choice(
        (
            f"{r} = {x}.detach().sum().item()",
            f"{r} = {x}.tolist()",
            f"{r} = {x}.detach().cpu().numpy().tobytes()",
            f"{t} = torch.from_dlpack({x}.detach()) * 2",
            f"{r} = repr({x}.detach())",
            f"{t} = {x}.detach() + 1\ntorch.get_device_module(dev).synchronize()\nimport ctypes\n{r} = ctypes.string_at({t}.data_ptr(), {t}.numel() * {t}.element_size()) if {t}.numel() and {t}.is_contiguous() else b''",
            f"{t} = copy.deepcopy({x}.detach())",
            f"{r} = pickle.dumps({x}.detach().cpu())",
        )
    )
    return "leaves", how


def grows(draw: Draw) -> tuple[str, str]:
    """A cache that grows for some turns, as a decoder's."""
    x, t = draw.tensor("float"), draw.new()
    return "grows", (
        f"{t} = {x}.detach().reshape(-1)[:2] * 0.5\n"
        f"cache = [c for c in kept if isinstance(c, tuple) and c[0] == '{t}']\n"
        f"old = cache[-1][1] if cache and turn % 6 else {t}[:0]\n"
        f"kept[:] = [c for c in kept if not (isinstance(c, tuple) and c[0] == '{t}')] + [('{t}', torch.cat([old, {t}]))]\n"
        f"{t} = kept[-1][1].cumsum(0)"
    )


def trains(draw: Draw) -> tuple[str, str]:
    """A step of a small model, which lives through all turns."""
    t, r = draw.new(), draw.new("r")
    layers = ", ".join(
        [
            "torch.nn.Linear(8, 8)",
            *(draw.rng.choice(_LAYERS) for _ in range(draw.rng.randrange(1, 5))),
        ]
    )
    optimizer = draw.rng.choice(_OPTIMIZERS).format(p="m.parameters()", f=draw.chance(0.5))
    accumulates = draw.rng.choice((1, 1, 2))
    backward = draw.rng.choice(
        (
            "{t}.backward()",
            "{t}.backward(retain_graph=True)\n{t}.backward()",
            "torch.autograd.backward([{t}])",
        )
    ).format(t=t)
    forward = draw.rng.choice(
        ("m(x)", "m(x)", "checkpoint(m, x, use_reentrant=False)", "m(x.clone().requires_grad_())")
    )
    clip = draw.rng.choice(("", "torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n"))
    return "trains", (
        f"state = [k for k in kept if isinstance(k, tuple) and k[0] == '{r}']\n"
        f"if not state:\n    torch.manual_seed(3)\n    m = torch.nn.Sequential({layers}).to(dev)\n"
        f"    o = torch.optim.{optimizer}\n    kept.append(('{r}', m, o))\nelse:\n    _, m, o = state[0]\n"
        f"x = ((torch.arange(32.0) - turn % 5) / 16).reshape(4, 8).to(dev)\n"
        f"{t} = ({forward}.flatten(1).float() ** 2).mean()\n{backward}\n{clip}"
        f"if turn % {accumulates} == 0:\n    o.step()\n    o.zero_grad(set_to_none={draw.chance(0.7)})\n"
        f"{t} = {t}.detach()"
    )
