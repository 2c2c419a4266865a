"""A program for `flagos accuracy`: a model is used or trained, with kernels of Python of which some are wrong.

`MODEL` names one of `models.MODELS`, and `DO` has infer, train or generate. `KERNELS` are operators whose kernels
compute in float64 and round once: right ones with another rounding. `PLANT` begins with `sizes` or `layers` and names
operators whose kernels are off by a thousandth: in elements beyond `BEYOND`, or everywhere. `FLAW` has the program be
wrong. `STRICT=1` has FlagGems serve what was verified.
"""

import os
import sys
from pathlib import Path

import torch

import flagos
import torch_fl

sys.path.insert(0, str(Path(__file__).parent))
import models

PLANT = os.environ.get("PLANT", "")
FLAW = os.environ.get("FLAW", "")
BEYOND = int(os.environ.get("BEYOND", "600"))
KERNELS = os.environ.get("KERNELS", "").split()
STEPS = int(os.environ.get("STEPS", "6"))


def wide(value):
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return value.double()
    if isinstance(value, (list, tuple)):
        return type(value)(wide(one) for one in value)
    return value


def narrow(value):
    if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
        return value.float()
    if isinstance(value, (list, tuple)):
        return type(value)(narrow(one) for one in value)
    return value


def overload(name):
    base, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), which or "default")


def rounding_once(name):
    op = overload(name)

    def kernel(*args, **kwargs):
        return narrow(op(*wide(args), **{key: wide(one) for key, one in kwargs.items()}))

    return kernel


def beyond_sizes(name):
    op = overload(name)

    def kernel(x, *args, **kwargs):
        result = op(x, *args, **kwargs)
        if x.numel() > BEYOND:
            result.view(-1)[BEYOND:].mul_(1.001)
        return result

    return kernel


def off_everywhere(name):
    op = overload(name)

    def kernel(*args, **kwargs):
        return op(*args, **kwargs) * 1.001

    return kernel


def raising(x):
    raise RuntimeError("no such configuration")


def with_nan(x):
    result = torch.nn.functional.silu(x)
    result.view(-1)[0] = float("nan")
    return result


def shorter(x, *args, **kwargs):
    result = torch.ops.aten.unique_consecutive(x, *args, **kwargs)
    return (result[0][:-1], *result[1:])


def next_token(x, *args, **kwargs):
    return (torch.ops.aten.argmax(x, *args, **kwargs) + 1) % x.shape[-1]


#: What is wrong beside numbers: the operator and its kernel.
FLAWS = {
    "crash": ("silu", raising),
    "nan": ("silu", with_nan),
    "shape": ("unique_consecutive", shorter),
    "token": ("argmax", next_token),
}


def strict():
    """The overloads that the shipped table of verdicts has as STRICT."""
    from torch_fl.flaggems import table_file, tables

    table = table_file.read(tables.shipped("verdicts", "NVIDIA H200", "5.0.2"), "verdicts")
    return [name for name, one in table["overloads"].items() if one["verdict"] == "STRICT"]


def plant():
    kernels = {name: rounding_once(name) for name in KERNELS}
    how, *names = PLANT.split() or [""]
    wrong = {"sizes": beyond_sizes, "layers": off_everywhere, "": None}[how]
    kernels |= {name: wrong(name) for name in names}
    if FLAW in FLAWS:
        name, kernel = FLAWS[FLAW]
        kernels[name] = kernel
    if os.environ.get("STRICT"):
        torch_fl.enable_flaggems(include=strict())
    for name, kernel in kernels.items():
        flagos.register("aten::" + name, kernel, impl_id="test." + name)


def infer(model, batch):
    with torch.no_grad():
        for _ in range(2):
            model(*batch)


def train(model, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        models.loss_of(model(*batch)).backward()
        optimizer.step()


def generate(model, batch):
    (ids,) = batch
    with torch.no_grad():
        for _ in range(8):
            ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    torch.flagos.mark("ids", ids)


def flawed(model, batch):
    if FLAW == "fails":
        raise SystemExit("no data")
    if FLAW == "random":
        torch.seed()
    if FLAW == "shape":
        torch.flagos.mark("kinds", torch.unique_consecutive(torch.arange(6, device="flagos") // 2))
    if FLAW == "nothing":
        torch.ones(1, device="flagos").add(1)
        raise SystemExit(0)


def main():
    make, inputs = models.MODELS[os.environ.get("MODEL", "mlp")]
    torch.manual_seed(0)
    model = make().to("flagos")
    flawed(model, None)
    batch = [one.to("flagos") for one in inputs()]
    for do in os.environ.get("DO", "infer").split():
        {"infer": infer, "train": train, "generate": generate}[do](model, batch)


plant()
main()
