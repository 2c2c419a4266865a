"""Writes: in place, into `out`, through indices; also with arguments that do not fit."""

from __future__ import annotations

from ..draw import Draw

_UNARY = [
    "abs",
    "neg",
    "exp",
    "log",
    "sqrt",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "floor",
    "round",
    "reciprocal",
    "square",
    "erf",
    "sign",
    "logical_not",
    "bitwise_not",
    "frac",
    "rsqrt",
    "expm1",
    "log1p",
    "trunc",
    "asin",
    "digamma",
    "lgamma",
    "i0",
    "sinc",
    "nan_to_num",
    "deg2rad",
]
_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "remainder",
    "fmod",
    "floor_divide",
    "atan2",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "ge",
    "logical_and",
    "bitwise_or",
    "bitwise_xor",
    "copysign",
    "hypot",
    "nextafter",
    "gcd",
    "lcm",
    "xlogy",
    "heaviside",
    "float_power",
    "ldexp",
    "bitwise_left_shift",
    "logaddexp",
    "fmax",
    "true_divide",
]


def unary(draw: Draw) -> tuple[str, str]:
    source, name = draw.tensor(), draw.rng.choice(_UNARY)
    form = draw.rng.choice(("plain", "plain", "inplace", "out"))
    return f"{name}.{form}", _form(draw, form, name, source, "")


def binary(draw: Draw) -> tuple[str, str]:
    name = draw.rng.choice(_BINARY)
    source = draw.tensor()
    other = draw.like(source) if draw.chance(0.7) else draw.number()
    if draw.chance(0.05):
        other = draw.tensor()
    if draw.chance(0.06):
        other = f"torch.tensor({draw.number()})"  # a number on the host, which mixes
    form = draw.rng.choice(("plain", "plain", "inplace", "inplace", "out"))
    return f"{name}.{form}", _form(draw, form, name, source, other)


def _form(draw: Draw, form: str, name: str, source: str, other: str) -> str:
    rest = f", {other}" if other else ""
    if form == "plain":
        return f"{draw.new()} = torch.{name}({source}{rest})"
    if form == "inplace":
        return f"{source}.{name}_({other})"
    return f"{draw.new()} = torch.{name}({source}{rest}, out={out(draw, source)})"


def out(draw: Draw, source: str) -> str:
    """Somewhere to write to: live, of another size or dtype, or part of the input."""
    return draw.rng.choice(
        (
            draw.tensor(),
            source,
            draw.like(source),
            f"torch.zeros(0, dtype={draw.dtype()}, device=dev)",
            f"torch.zeros_like({source})",
            f"{source}[1:]",
            f"torch.zeros({draw.shape()}, device=dev).t()",
        )
    )


def inplace(draw: Draw) -> tuple[str, str]:
    target, other, third = draw.tensor(), draw.tensor(), draw.tensor()
    mask = draw.tensor("bool")
    number, dim = draw.number(), draw.dim(target)
    call = draw.rng.choice(
        (
            f"copy_({draw.like(target)})",
            f"copy_({target}.flip(0))",
            f"copy_({other})",
            f"fill_({number})",
            "zero_()",
            f"masked_fill_({mask}, {number})",
            f"masked_fill_({target} > 0, {number})",
            f"masked_scatter_({mask}, {other})",
            f"addcmul_({draw.like(target)}, {draw.like(target)}, value={number})",
            f"addcdiv_({draw.like(target)}, {third})",
            f"lerp_({draw.like(target)}, 0.5)",
            f"clamp_({number}, {draw.number()})",
            f"clamp_(min={draw.like(target)})",
            f"cumsum_({dim})",
            f"tril_({draw.integer()})",
            "t_()",
            f"transpose_({dim}, {draw.dim(target)})",
            f"squeeze_({dim})",
            f"unsqueeze_({dim})",
            f"swapdims_({dim}, {draw.dim(target)})",
            f"as_strided_({draw.shape(1, 1)}, (1,), {draw.integer()})",
            f"addmm_({draw.tensor(dims=(2,))}, {draw.tensor(dims=(2,))})",
            "relu_()",
            f"put_({draw.tensor('int')}, {other})",
            f"renorm_(2, {dim}, 1.0)",
            f"fill_diagonal_({number})",
            f"__iadd__({draw.like(target)})",
            f"__imul__({target})",
            f"add_({target}.mT)",
            f"sub_({draw.like(target)}, alpha={number})",
            f"mul_({target}[..., :1])",
            f"index_add_({dim}, torch.zeros(1, dtype=torch.long, device=dev), {other})",
            "bernoulli_(0.5)",
            "conj_physical_()",
            "sgn_()",
            "erfinv_()",
            "T.add_(1)",
            "view(-1).mul_(2)",
            "detach().add_(1)",
        )
    )
    return f"inplace.{call.partition('(')[0]}", f"{target}.{call}"


def write_index(draw: Draw) -> tuple[str, str]:
    target = draw.tensor()
    index = draw.index(target)
    value = draw.rng.choice(
        (draw.number(), draw.tensor(), draw.like(target), f"{target}[{index}] * 2")
    )
    if draw.chance(0.2):
        index = draw.rng.choice((f"{target} > 0", f"{target}.isnan()", f"{target} == {target}"))
    return draw.rng.choice(
        (
            ("setitem", f"{target}[{index}] = {value}"),
            ("setitem", f"{target}[{index}] += {value}"),
            (
                "index_put_",
                f"{target}.index_put_((torch.tensor([0, 0, 1], device=dev),), {value}, accumulate=True)"
                if not value.replace(".", "").lstrip("-").isdigit()
                else f"{target}.index_put_((torch.tensor([0, 0], device=dev),), torch.tensor({value}, device=dev))",
            ),
        )
    )


def indexed(draw: Draw) -> tuple[str, str]:
    """scatter, gather and their kin, with indices that are often valid."""
    source, other = draw.tensor(dims=(1, 2, 3)), draw.tensor()
    dim = draw.dim(source)
    shape = draw.shape_of(source)
    size = shape[dim] if -len(shape) <= dim < len(shape) else 1
    high = max(1, size + draw.chance(0.06))
    index = f"torch.randint({-draw.chance(0.05)}, {high}, {list(shape)}, device=dev)"
    row = f"torch.randint(0, {high}, ({draw.size()},), device=dev)"
    number = draw.number()
    reduce = draw.rng.choice(("sum", "prod", "mean", "amax", "amin"))
    call = draw.rng.choice(
        (
            f"gather({dim}, {index})",
            f"scatter({dim}, {index}, {source})",
            f"scatter_({dim}, {index}, {number})",
            f"scatter_add_({dim}, {index}, {source})",
            f"scatter_add({dim}, {index}, {draw.like(source)})",
            f"scatter_reduce({dim}, {index}, {source}, '{reduce}', include_self={draw.chance(0.5)})",
            f"scatter_reduce_({dim}, {index}, {other}, '{reduce}')",
            f"index_select({dim}, {row})",
            f"index_fill_({dim}, {row}, {number})",
            f"index_fill({dim}, {row}, {number})",
            f"index_add({dim}, {row}, {other})",
            f"index_add_({dim}, torch.arange({size}, device=dev), {source})",
            f"index_copy_({dim}, torch.arange({size}, device=dev), {source})",
            f"index_copy({dim}, {row}, {other})",
            f"index_reduce_({dim}, torch.arange({size}, device=dev), {source}, '{reduce}')",
            f"take({row})",
            f"take_along_dim({index}, {dim})",
            f"masked_select({draw.tensor('bool')})",
            f"masked_scatter({source} > 0, {other})",
            f"put({row}, {row}.to({source}.dtype), accumulate=True)",
            f"repeat_interleave({draw.size()}, {dim})",
            f"repeat({draw.shape(1, 3)})",
            f"roll({draw.integer()}, {dim})",
            f"flip({dim})",
            f"where({source} > 0, {draw.like(source)})",
            f"where({draw.tensor('bool')}, {number})",
        )
    )
    return f"index.{call.partition('(')[0]}", f"{draw.new()} = {source}.{call}"
