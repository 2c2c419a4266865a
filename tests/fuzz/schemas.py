"""Calls of any operator torch has, drawn from its schema."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from . import known
from .draw import Draw, literal

_ATTEMPTS = 12
_CONTEXT = {"torch": torch, "dev": torch.device("cpu"), "nan": math.nan, "inf": math.inf}
_CALLED = {
    "Device": "dev",
    "Generator": "None",
    "Layout": "torch.strided",
    "MemoryFormat": "torch.contiguous_format",
}
_STRINGS = {
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "rounding_mode": ("trunc", "floor"),
    "norm": ("ortho", "forward", "backward"),
    "mode": ("reduced", "complete", "constant", "reflect"),
    "indexing": ("ij", "xy"),
    "approximate": ("tanh", "none"),
    "ord": ("fro", "nuc"),
    "UPLO": ("L", "U"),
    "side": ("left", "right"),
    "padding": ("same", "valid"),
}


@cache
def schemas() -> list[Any]:
    """The schemas of torch's operators that take or give tensors and may be called."""
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        plain, _, overload = rest.partition(".")
        if namespace != "aten" or known.not_called(plain):
            continue
        schema = torch._C._get_schema(f"aten::{plain}", overload)
        types = [str(each.real_type) for each in (*schema.arguments, *schema.returns)]
        if any("Tensor" in text for text in types) and not any(
            word in text for text in types for word in ("Storage", "Stream", "__torch__", "Dimname")
        ):
            found.append(schema)
    return found


def any_operator(draw: Draw) -> tuple[str, str]:
    """A call of some operator: of a few attempts, mostly one that succeeds on copies of the tensors."""
    schema = draw.rng.choice(schemas())
    while schema.name.startswith("aten::_") and draw.chance(0.6):
        schema = draw.rng.choice(schemas())
    name = schema.name.removeprefix("aten::")
    report = f"aten.{name}.{schema.overload_name or 'default'}"
    for _ in range(1 if draw.chance(0.2) else _ATTEMPTS):
        call, used = _call(draw, schema, name)
        draw.note(f"{report}, tried: {call}")
        if _succeeds(draw, call, used):
            break
    if not schema.returns:
        return report, call
    if len(schema.returns) == 1:
        plain = str(schema.returns[0].real_type) == "Tensor"
        return report, f"{draw.new('t' if plain else 'r')} = {call}"
    tensors = [str(each.real_type) == "Tensor" for each in schema.returns]
    return report, ", ".join(draw.new("t" if plain else "r") for plain in tensors) + f" = {call}"


def _succeeds(draw: Draw, call: str, used: list[str]) -> bool:
    copies = {}
    for name in used:
        value = draw.names.get(name)
        if isinstance(value, torch.Tensor):
            copies[name] = value.detach().clone().requires_grad_(value.requires_grad)
    try:
        eval(call, {**_CONTEXT, **copies})
    except Exception:
        return False
    return True


def _call(draw: Draw, schema: Any, name: str) -> tuple[str, list[str]]:
    """The text of a call, and the live tensors it names."""
    positional: list[str] = []
    keywords: list[str] = []
    used: list[str] = []
    by_name = False  # whatever stands after an argument left out
    for argument in schema.arguments:
        by_name = by_name or argument.kwarg_only
        device = argument.name == "device"
        if argument.has_default_value() and not device and draw.chance(0.6):
            by_name = True
            continue
        text = "dev" if device else _argument(draw, argument.name, str(argument.real_type), used)
        if by_name:
            keywords.append(f"{argument.name}={text}")
        else:
            positional.append(text)
    arguments = ", ".join([*positional, *keywords])
    if draw.chance(0.4) and callable(getattr(torch, name, None)):
        return f"torch.{name}({arguments})", used
    method = positional and schema.arguments[0].name == "self" and hasattr(torch.Tensor, name)
    if method and draw.chance(0.4):
        return f"{positional[0]}.{name}({', '.join([*positional[1:], *keywords])})", used
    return f"torch.ops.aten.{name}.{schema.overload_name or 'default'}({arguments})", used


def _argument(draw: Draw, name: str, kind: str, used: list[str]) -> str:
    if kind.startswith("Optional["):
        if draw.chance(0.4):
            return "None"
        kind = kind[len("Optional[") : -1]
    if kind.startswith("List["):
        kind = kind[len("List[") : -1]
        if kind == "Tensor" and used and draw.chance(0.7):
            return f"[{', '.join(draw.like(used[0]) for _ in range(draw.rng.choice((1, 2, 3))))}]"
        count = draw.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        return f"[{', '.join(_argument(draw, name, kind, used) for _ in range(count))}]"
    if kind == "Tensor":
        text = _tensor(draw, name, used)
        used.append(text)
        return text
    if name == "pin_memory":
        return "False"
    return _value(draw, name, kind, used)


def _tensor(draw: Draw, name: str, used: list[str]) -> str:
    if any(word in name for word in ("index", "indices", "offsets", "lengths", "target")):
        return draw.tensor("int")
    if any(word in name for word in ("mask", "condition")):
        return draw.tensor("bool")
    if used and draw.chance(0.75):
        first = draw.names.get(used[0])
        if isinstance(first, torch.Tensor) and draw.chance(0.7):
            return draw.tensor(where=lambda t: t.dtype == first.dtype and t.dim() == first.dim())
        return draw.like(used[0])
    return draw.tensor("float") if draw.chance(0.6) else draw.tensor()


def _value(draw: Draw, name: str, kind: str, used: list[str]) -> str:
    if name in ("start", "end", "step", "steps"):  # of what may be as long as memory
        return str(draw.size())
    if kind in ("int", "SymInt"):
        if name.startswith("dim") and used:
            return str(draw.dim(used[0]))
        if any(
            word in name for word in ("size", "padding", "stride", "dilation", "groups", "kernel")
        ):
            return str(draw.rng.choice((1, 1, 2, 2, 3, draw.size())))
        return str(draw.integer())
    if kind == "bool":
        return str(draw.chance(0.5))
    if kind == "float":
        return literal(draw.rng.choice((0.0, 0.1, 0.5, 1.0, 1e-5, 2.0, -1.0)))
    if kind in ("number", "Scalar", "complex"):
        return draw.number()
    if kind in ("ScalarType", "dtype"):
        return str(draw.dtype())
    if kind == "str":
        return repr(draw.rng.choice(_STRINGS.get(name, ("mean", "sum", "none"))))
    return _CALLED.get(kind, "None")
