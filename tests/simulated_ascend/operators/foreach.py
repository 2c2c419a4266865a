"""Lists of tensors, and optimizers."""

from __future__ import annotations

from tests.simulated_ascend.operators import operator

FLOATS = "floats contiguous"
SOME = "floats i32 contiguous"

for _name in ("Abs Acos Asin Atan Cos Cosh Erf Erfc Exp Expm1 Log Log10 Log1p Log2 Neg Reciprocal Sigmoid Sign Sin"
              " Sinh Sqrt Tan Tanh").split():  # fmt: skip
    _dtypes = {"Neg": "floats i32 contiguous", "Sign": "floats i8 i32 i64 contiguous"}.get(_name, FLOATS)
    operator(f"Foreach{_name}", f"out = _foreach_{_name.lower()}(x)", _dtypes)
operator("ForeachCopy", "out = @each('clone', x)", "floats i8 u8 i16 u16 i32 u32 i64 f64 bool contiguous convertible")
operator("ForeachZeroInplace", "x = @each('zeros_like', x)", "floats i16 i32 contiguous")

# Scalars come in a tensor, in a scalar (V2), or in a list of scalars.
_ONE = {"scalar": "0-1"}
for _name, _aten, _dtypes in (("Add", "add", SOME), ("Sub", "sub", SOME), ("Mul", "mul", SOME), ("Div", "div", FLOATS)):
    operator(f"Foreach{_name}Scalar", f"out = _foreach_{_aten}.Scalar(x, scalar)", _dtypes, **_ONE)
    operator(f"Foreach{_name}ScalarV2", f"out = _foreach_{_aten}.Scalar(x, scalar)", _dtypes)
    operator(f"Foreach{_name}ScalarList", f"out = _foreach_{_aten}.ScalarList(x, scalars)", _dtypes)
for _name, _aten in (("Maximum", "maximum"), ("Minimum", "minimum"), ("Pow", "pow")):
    _dtypes = FLOATS if _name == "Pow" else SOME
    operator(f"Foreach{_name}Scalar", f"out = _foreach_{_aten}.Scalar(x, scalar)", SOME, **_ONE)
    operator(f"Foreach{_name}ScalarV2", f"out = _foreach_{_aten}.Scalar(x, scalar)", _dtypes)
    operator(f"Foreach{_name}ScalarList", f"out = _foreach_{_aten}.ScalarList(x, scalars)", SOME)
    operator(f"Foreach{_name}List", f"out = _foreach_{_aten}.List(x1, x2)", SOME)
operator("ForeachPowScalarAndTensor", "out = _foreach_pow.ScalarAndTensor(scalar, x)", SOME)
for _name, _aten in (("Add", "add"), ("Sub", "sub")):
    operator(f"Foreach{_name}List", f"out = _foreach_{_aten}.List(x1, x2, alpha=alpha)", SOME, alpha="0-1")
    operator(f"Foreach{_name}ListV2", f"out = _foreach_{_aten}.List(x1, x2, alpha=alpha)", SOME)
operator("ForeachMulList", "out = _foreach_mul.List(x1, x2)", SOME)
operator("ForeachDivList", "out = _foreach_div.List(x1, x2)", FLOATS)
operator("ForeachLerpList", "out = _foreach_lerp.List(x1, x2, weight)", FLOATS)
operator("ForeachLerpScalar", "out = _foreach_lerp.Scalar(x1, x2, weight)", FLOATS)
for _name, _aten, _dtypes in (("Addcmul", "addcmul", SOME), ("Addcdiv", "addcdiv", FLOATS)):
    _lists = f"out = _foreach_{_aten}.{{}}(x1, x2, x3, {{}})"
    operator(f"Foreach{_name}Scalar", _lists.format("Scalar", "scalar"), _dtypes, **_ONE)
    operator(f"Foreach{_name}ScalarV2", _lists.format("Scalar", "scalar"), _dtypes)
    operator(f"Foreach{_name}ScalarList", _lists.format("ScalarList", "@numbers(scalars)"), _dtypes, scalars="1")
    operator(f"Foreach{_name}List", _lists.format("ScalarList", "@numbers(scalars)"), _dtypes, scalars="1")
operator("ForeachNorm", "out = _foreach_norm.Scalar(x, scalar)", FLOATS, out="shape")
# 1 is to the nearest even, as 6 is; 2 down, 3 up, 4 to the nearest away from zero, 5 towards zero.
_ROUND = (
    "@each('floor', x) if {0} == 2 else @each('ceil', x) if {0} == 3 else @each('trunc', x) if {0} == 5 else"
    " @each('round', x)"
)
operator("ForeachRoundOffNumber", "out = " + _ROUND.format("@first(roundMode)"), "floats contiguous", roundMode="i8 0-1")
operator("ForeachRoundOffNumberV2", "out = " + _ROUND.format("roundMode"), "floats contiguous", roundMode="i8 i64")

operator("ApplyAdamWV2",
         "varRef, mRef, vRef, maxGradNormOptionalRef = @adamw(varRef, mRef, vRef, maxGradNormOptionalRef,"
         " grad, step, lr, beta1, beta2, weightDecay, eps, amsgrad, maximize)",
         "floats 1-8", maxGradNormOptionalRef="optional", step="i64 f32 0-8 contiguous")  # fmt: skip
operator("FusedAdamw",
         "paramsRef, expAvgsRef, expAvgSqsRef, maxExpAvgSqsRef = @adamw_lists(paramsRef, grads, expAvgsRef,"
         " expAvgSqsRef, maxExpAvgSqsRef, stateSteps, gradScaleOptional, foundInfOptional, lr, beta1, beta2,"
         " weightDecay, eps, amsgrad, maximize)",
         "floats 1-8", maxExpAvgSqsRef="optional", stateSteps="i64 f32 0-8 contiguous",
         gradScaleOptional="f32 0-8 optional contiguous",
         foundInfOptional="f32 0-8 optional contiguous")  # fmt: skip
