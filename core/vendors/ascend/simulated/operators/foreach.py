"""Lists of tensors, and optimizers."""

from __future__ import annotations

from core.vendors.ascend.simulated.operators import operator

FLOATS = "floats short"
SOME = "floats i32 short"
MORE = "floats i32 i16 i8 u8 short"
# Results that may be no views, and inputs that may be none either.
OUT = {"out": "contiguous"}
BOTH = {"x": "contiguous", **OUT}

for _name in [
    "Abs",
    "Acos",
    "Asin",
    "Atan",
    "Cos",
    "Cosh",
    "Erf",
    "Erfc",
    "Exp",
    "Expm1",
    "Log",
    "Log10",
    "Log1p",
    "Log2",
    "Neg",
    "Reciprocal",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Sqrt",
    "Tan",
    "Tanh",
]:
    _dtypes = {"Neg": SOME, "Sign": "floats i8 i32 i64 short"}.get(_name, FLOATS)
    _out = {} if _name in ("Exp", "Expm1", "Sqrt") else OUT
    operator(f"Foreach{_name}", f"out = _foreach_{_name.lower()}(x)", _dtypes, **_out)
operator(
    "ForeachCopy",
    "out = @each('clone', x)",
    "floats i8 u8 i16 u16 i32 u32 i64 f64 bool short convertible",
)
operator("ForeachZeroInplace", "x = @each('zeros_like', x)", "floats i16 i32 contiguous short")

# Scalars come in a tensor, in a scalar (V2), or in a list of scalars.
_TENSOR = "f32 f16 i32 0-1 of_tensor -short"
for _name, _aten, _dtypes in (
    ("Add", "add", SOME),
    ("Sub", "sub", SOME),
    ("Mul", "mul", SOME),
    ("Div", "div", FLOATS),
):
    _first = MORE if _name == "Add" else _dtypes
    _out = {} if _name == "Div" else OUT
    _both = {} if _name == "Div" else BOTH
    operator(
        f"Foreach{_name}Scalar",
        f"out = _foreach_{_aten}.Scalar(x, scalar)",
        _first,
        scalar=_TENSOR,
        **_out,
    )
    operator(
        f"Foreach{_name}ScalarV2",
        f"out = _foreach_{_aten}.Scalar(x, scalar)",
        _first,
        scalar="of_scalar",
        **_both,
    )
    operator(
        f"Foreach{_name}ScalarList",
        f"out = _foreach_{_aten}.ScalarList(x, scalars)",
        _dtypes,
        scalars="f32 i64 of_scalars",
        **OUT,
    )
for _name, _aten in (("Maximum", "maximum"), ("Minimum", "minimum"), ("Pow", "pow")):
    _dtypes = FLOATS if _name == "Pow" else SOME
    _scalars = "f32 i64 of_scalars" if _name == "Pow" else "f32 i64 f64 of_scalars"
    operator(
        f"Foreach{_name}Scalar",
        f"out = _foreach_{_aten}.Scalar(x, scalar)",
        SOME,
        scalar=_TENSOR,
        **OUT,
    )
    operator(
        f"Foreach{_name}ScalarV2",
        f"out = _foreach_{_aten}.Scalar(x, scalar)",
        _dtypes,
        scalar="of_scalar",
        **BOTH,
    )
    operator(
        f"Foreach{_name}ScalarList",
        f"out = _foreach_{_aten}.ScalarList(x, scalars)",
        SOME,
        scalars=_scalars,
        **OUT,
    )
    operator(f"Foreach{_name}List", f"out = _foreach_{_aten}.List(x1, x2)", SOME, **OUT)
operator(
    "ForeachPowScalarAndTensor",
    "out = _foreach_pow.ScalarAndTensor(scalar, x)",
    SOME,
    scalar="f32 f64 i64 of_scalars",
    **OUT,
)
operator("ForeachAddList", "out = _foreach_add.List(x1, x2, alpha=alpha)", MORE, alpha=_TENSOR)
operator(
    "ForeachAddListV2", "out = _foreach_add.List(x1, x2, alpha=alpha)", MORE, alpha="of_scalar"
)
operator(
    "ForeachSubList", "out = _foreach_sub.List(x1, x2, alpha=alpha)", MORE, alpha=_TENSOR, **OUT
)
operator(
    "ForeachSubListV2",
    "out = _foreach_sub.List(x1, x2, alpha=alpha)",
    MORE,
    alpha="of_scalar",
    x1="contiguous",
    x2="contiguous",
    **OUT,
)
operator("ForeachMulList", "out = _foreach_mul.List(x1, x2)", MORE)
operator("ForeachDivList", "out = _foreach_div.List(x1, x2)", FLOATS)
operator("ForeachLerpList", "out = _foreach_lerp.List(x1, x2, weight)", FLOATS)
operator(
    "ForeachLerpScalar", "out = _foreach_lerp.Scalar(x1, x2, weight)", FLOATS, weight="f32 f64"
)
_THREE = {"x1": "contiguous", "x2": "contiguous", "x3": "contiguous", **OUT}
for _name, _aten, _dtypes in (("Addcmul", "addcmul", SOME), ("Addcdiv", "addcdiv", FLOATS)):
    _lists = f"out = _foreach_{_aten}.{{}}(x1, x2, x3, {{}})"
    _out = {} if _name == "Addcdiv" else OUT
    operator(
        f"Foreach{_name}Scalar", _lists.format("Scalar", "scalar"), _dtypes, scalar=_TENSOR, **_out
    )
    operator(
        f"Foreach{_name}ScalarV2",
        _lists.format("Scalar", "scalar"),
        _dtypes,
        scalar="of_scalar",
        **_THREE,
    )
    operator(
        f"Foreach{_name}ScalarList",
        _lists.format("ScalarList", "@numbers(scalars)"),
        _dtypes,
        scalars="1 same -short",
        **_out,
    )
    operator(
        f"Foreach{_name}List",
        _lists.format("ScalarList", "@numbers(scalars)"),
        _dtypes,
        scalars="1 same -short",
        **OUT,
    )
operator(
    "ForeachNorm",
    "out = _foreach_norm.Scalar(x, scalar)",
    FLOATS,
    scalar="f32 f64 i64",
    out="shape contiguous",
)
# 1 is to the nearest even, as 6 is; 2 down, 3 up, 4 to the nearest away from zero, 5 towards zero.
_ROUND = (
    "@each('floor', x) if {0} == 2 else @each('ceil', x) if {0} == 3 else @each('trunc', x) if {0} == 5 else"
    " @each('round', x)"
)
operator(
    "ForeachRoundOffNumber",
    "out = " + _ROUND.format("@first(roundMode)"),
    FLOATS,
    roundMode="i8 0-1 -short",
    **OUT,
)
operator(
    "ForeachRoundOffNumberV2",
    "out = " + _ROUND.format("roundMode"),
    FLOATS,
    roundMode="i8 i64",
    **BOTH,
)

operator(
    "ApplyAdamWV2",
    "varRef, mRef, vRef, maxGradNormOptionalRef = @adamw(varRef, mRef, vRef, maxGradNormOptionalRef,"
    " grad, step, lr, beta1, beta2, weightDecay, eps, amsgrad, maximize)",
    "floats 1-8",
    maxGradNormOptionalRef="optional",
    step="i64 f32 0-8 contiguous",
)
operator(
    "FusedAdamw",
    "paramsRef, expAvgsRef, expAvgSqsRef, maxExpAvgSqsRef = @adamw_lists(paramsRef, grads, expAvgsRef,"
    " expAvgSqsRef, maxExpAvgSqsRef, stateSteps, gradScaleOptional, foundInfOptional, lr, beta1, beta2,"
    " weightDecay, eps, amsgrad, maximize)",
    "floats 1-8",
    maxExpAvgSqsRef="optional",
    stateSteps="i64 f32 0-8 contiguous",
    gradScaleOptional="f32 0-8 optional contiguous",
    foundInfOptional="f32 0-8 optional contiguous",
)
