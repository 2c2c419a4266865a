"""A program whose operators are served by Python kernels, some of which are wrong; run by `flagos bisect`.

`PLANTED` names the operators (all of `NAMES` otherwise), `WRONG` those whose kernels are wrong, and `HOW`:
value, nan, crash, hang, raise, lost, or both (wrong only once all of `WRONG` were called).
"""

import os
import re
import signal
import sys
import time
from pathlib import Path

import torch

from flagos import _core, plan_listeners

NAMES = re.findall(
    r"\S+",
    """abs acos acosh asinh atan atan2 ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac i0
lgamma log log10 log1p log2 logit neg rad2deg reciprocal relu round rsqrt sgn sigmoid sign silu sin sinc sinh
special_bessel_j0 special_bessel_j1 special_bessel_y0 special_entr special_i0e special_i1 special_log_ndtr special_ndtri
sqrt tan tanh trunc hardswish hardsigmoid mish softplus elu gelu hardtanh leaky_relu add.Tensor sub.Tensor mul.Tensor
div.Tensor fmax fmin hypot maximum minimum copysign.Tensor nextafter logaddexp logaddexp2 xlogy.Tensor fmod.Tensor
remainder.Tensor eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor mm sum mean amax amin cumsum cumprod flip
roll tril triu prod var.correction std.correction _softmax _log_softmax native_layer_norm index_select gather where.self
masked_fill.Scalar cat stack clamp""",
)
PLANTED = os.environ.get("PLANTED", "").split() or NAMES
WRONG = os.environ.get("WRONG", "").split()
HOW = os.environ.get("HOW", "value")
called = set()


def overload(name):
    base, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), which or "default")


def kernel_of(name):
    native = overload(name)

    def kernel(*args, **kwargs):
        called.add(name)
        if name not in WRONG:
            return native(*args, **kwargs)
        if HOW == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if HOW == "hang":
            time.sleep(3600)
        if HOW == "lost":
            torch.save = None  # as of a device that is lost, nothing can be saved any more
            raise RuntimeError("an illegal memory access was encountered")
        if HOW == "raise":
            raise RuntimeError("no such configuration")
        result = native(*args, **kwargs)
        first = result[0] if isinstance(result, tuple) else result
        if HOW == "both" and not called.issuperset(WRONG):
            return result
        if first.dtype == torch.bool:
            first.logical_not_()
        else:
            first.view(-1)[1] += float("nan") if HOW == "nan" else 3.0
        return result

    return kernel


def plant():
    """Register all kernels, and have the plan made once."""
    for name in PLANTED:
        op, made = f"aten::{name}", kernel_of(name)
        impl_id = f"planted.{name}"
        _core.register_impl(op, impl_id, "flagos", made, backend="planted")
        plan_listeners.registered(plan_listeners.Implementation(op, impl_id, made, "planted"))
    plan_listeners.published()


def calls():
    """A call of each operator."""
    torch.manual_seed(1)
    x = (torch.rand(6, 6) * 0.5 + 0.25).to("flagos")
    y = (torch.rand(6, 6) * 0.5 + 0.25).to("flagos")
    rows, mask = torch.arange(6).to("flagos"), x.cpu().gt(0.5).to("flagos")
    special = {
        "acosh": (x.cpu().add(1).to("flagos"),),
        "mm": (x, y.t()),
        "cumsum": (x, 0),
        "cumprod": (x, 0),
        "amax": (x, [0]),
        "amin": (x, [0]),
        "flip": (x, [0]),
        "roll": (x, [1]),
        "_softmax": (x, 1, False),
        "_log_softmax": (x, 1, False),
        "native_layer_norm": (x, [6], None, None, 1e-5),
        "index_select": (x, 0, rows),
        "gather": (x, 0, rows.expand(6, 6)),
        "where.self": (mask, x, y),
        "masked_fill.Scalar": (x, mask, 1.0),
        "cat": ([x, y],),
        "stack": ([x, y],),
        "clamp": (x, 0.3, 0.4),
    }
    for name in PLANTED:
        op = overload(name)
        tensors = sum(str(argument.type) == "Tensor" for argument in op._schema.arguments)
        result = op(*special.get(name, (x, y)[:tensors]))
        yield name, result[0] if isinstance(result, tuple) else result


def main():
    """Exits with 3 if the sum of all results is not that of `EXPECTED`, where this is set."""
    total = 0.0
    for name, result in calls():
        value = result.cpu().double()
        torch.flagos.mark(name, value if "MARK_ALL" in os.environ else 0)
        total += float(value.sum())
    torch.flagos.mark("total", torch.tensor(total))
    print(f"total {total!r}")
    if "EXPECTED" in os.environ and abs(total - float(os.environ["EXPECTED"])) > 1e-6:
        print("the total is wrong", file=sys.stderr)
        sys.exit(3)
    if "RUNS" in os.environ:  # every other run with these kernels fails
        path = Path(os.environ["RUNS"])
        count = len(path.read_text()) if path.exists() else 0
        if called:
            path.write_text("." * (count + 1))
            sys.exit(1 - count % 2)


plant()
main()
