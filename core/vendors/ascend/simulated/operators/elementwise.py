"""Operators that work element by element."""

from __future__ import annotations

from core.vendors.ascend.simulated.operators import operator

# Two tensors, or a tensor and a scalar, whose dtypes are promoted; the result is converted to `out`.
WIDE = "all convertible"
REAL = "numbers bool convertible"


def both(
    name: str,
    call: str,
    tensors: str,
    /,
    inplace: str | None = None,
    results: str = "",
    **parameters: str,
) -> None:
    """An operator and its in-place form; the call's first argument is written `{0}`."""
    operator(name, f"out = {call}", tensors, **parameters, **({"out": results} if results else {}))
    if inplace is not None:
        operator(f"Inplace{name}", "{0} = " + call, inplace or tensors, **parameters)


for _name, _aten in (("Add", "add"), ("Sub", "sub")):
    both(_name, _aten + ".Tensor({0}, other, alpha=alpha)", WIDE, "")
    _real = "numbers bool convertible" if _name == "Add" else ""
    both(f"{_name}s", _aten + ".Tensor({0}, other, alpha=alpha)", WIDE, _real)
for _name, _aten in (("Mul", "mul"), ("Div", "div")):
    both(_name, _aten + ".Tensor({0}, other)", WIDE, "")
    both(f"{_name}s", _aten + ".Tensor({0}, other)", WIDE, "")
_MODE = "rounding_mode=None if mode == 0 else 'trunc' if mode == 1 else 'floor'"
both("DivMod", "div.Tensor_mode({0}, other, " + _MODE + ")", WIDE, "all -bf16 convertible")
operator("InplaceDivMods", "{0} = div.Tensor_mode({0}, other, " + _MODE + ")", WIDE)
operator("Rsub", "out = rsub.Tensor(self, other, alpha=alpha)", "numbers complex convertible")
operator("Rsubs", "out = rsub.Tensor(self, other, alpha=alpha)", "numbers complex convertible")
both("AddRelu", "relu(add.Tensor({0}, other, alpha=alpha))", "floats ints convertible", "")

# Of one tensor: name of aten, dtypes, those of the result, and those in place if it has that form.
UNARY: dict[str, tuple[str, str, str, str | None]] = {
    "Abs": ("abs", "numbers c64", "numbers", None),
    "Acos": ("acos", "numbers bool", "reals", "reals"),
    "Acosh": ("acosh", "reals", "", "reals complex"),
    "Asin": ("asin", "numbers bool", "reals", "reals"),
    "Asinh": ("asinh", "all", "reals complex", "reals complex"),
    "Atan": ("atan", "numbers bool", "reals", "reals"),
    "Atanh": ("atanh", "all", "reals complex", "reals complex"),
    "BitwiseNot": ("bitwise_not", "ints bool", "", None),
    "Ceil": ("ceil", "reals", "", "reals"),
    "Cos": ("cos", "all", "reals complex", "reals complex"),
    "Cosh": ("cosh", "reals complex", "", "reals complex"),
    "Erf": ("erf", "reals bool i64", "reals", "reals"),
    "Erfc": ("erfc", "reals bool i64", "reals", "reals"),
    "Erfinv": ("erfinv", "floats ints bool", "floats", "floats"),
    "Exp": ("exp", "reals complex bool i64", "reals complex", "reals complex"),
    "Exp2": ("exp2", "numbers bool", "reals", "reals"),
    "Expm1": ("expm1", "floats bool i64", "reals", "floats"),
    "Floor": ("floor", "numbers", "", "numbers"),
    "Frac": ("frac", "floats", "", "floats"),
    "Hardsigmoid": ("hardsigmoid", "floats", "", "floats"),
    "Hardswish": ("hardswish", "floats", "", "floats"),
    "IsFinite": ("isfinite", "reals", "bool", None),
    "IsInf": ("isinf", "numbers bool", "bool contiguous", None),
    "IsNegInf": ("isneginf", "reals", "bool", None),
    "IsPosInf": ("isposinf", "reals", "bool", None),
    "Log": ("log", "all", "reals complex", "reals complex"),
    "Log10": ("log10", "all", "floats complex", "reals complex"),
    "Log1p": ("log1p", "numbers bool", "reals", "reals"),
    "Log2": ("log2", "all", "reals complex", "reals complex"),
    "LogSigmoid": ("log_sigmoid", "floats", "", None),
    "LogicalNot": ("logical_not", "numbers bool", "", "numbers bool"),
    "Mish": ("mish", "floats", "", "floats"),
    "Neg": ("neg", "f32 f16 bf16 f64 i8 i32 i64 complex", "", "reals i8 i32 i64 complex"),
    "Real": ("real", "f32 f16 complex", "f32 f16 f64", None),
    "Reciprocal": ("reciprocal", "all", "reals complex", "reals complex"),
    "Relu": ("relu", "floats i8 i32 i64", "", "floats i8 i32 i64 u8"),
    "Round": ("round", "reals i32 i64", "", "reals i32 i64"),
    "Rsqrt": ("rsqrt", "all", "reals complex", "reals complex"),
    "Selu": ("selu", "floats", "", "floats"),
    "Sigmoid": ("sigmoid", "floats", "", "reals complex"),
    "Sign": ("sgn", "reals i32 i64 complex bool", "", None),
    "Signbit": ("signbit", "numbers bool", "bool", None),
    "Silu": ("silu", "floats", "", None),
    "Sin": ("sin", "all", "reals complex", "floats"),
    "Sinc": ("sinc", "numbers bool", "reals", "reals"),
    "Sinh": ("sinh", "all", "reals complex", "reals complex"),
    "Sqrt": ("sqrt", "all", "reals complex", "reals complex"),
    "Tan": ("tan", "all", "reals complex", "reals complex"),
    "Tanh": ("tanh", "floats ints bool", "floats", "floats"),
    "Trunc": ("trunc", "floats", "", "floats"),
}
for _name, (_aten, _dtypes, _results, _inplace) in UNARY.items():
    _out = {"result" if _name == "Sign" else "out": _results} if _results else {}
    operator(_name, "{1} = " + _aten + "({0})", f"{_dtypes} convertible", **_out)
    if _inplace is not None:
        operator(f"Inplace{_name}", "{0} = " + _aten + "({0})", f"{_inplace} convertible")
both("RoundDecimals", "round.decimals({0}, decimals=decimals)", "reals", "")
both("NanToNum", "nan_to_num({0}, nan, posinf, neginf)", "floats ints bool", "")
operator("Logit", "out = logit(@wide(input), eps if eps >= 0 else None)", "floats convertible")
operator(
    "LogitGrad",
    "out = logit_backward(@wide(dy), @wide(x), eps if eps >= 0 else None)",
    "floats convertible",
)

both("PowTensorScalar", "pow.Tensor_Scalar({0}, exponent)", WIDE, "all -bool convertible")
both("PowTensorTensor", "pow.Tensor_Tensor({0}, exponent)", WIDE, "all -bool convertible")
operator("PowScalarTensor", "out = pow.Scalar(self, exponent)", "all -bool convertible")

# Comparisons; the result is often bool, and may be anything that bool becomes.
for _name in ("Eq", "Ne", "Lt", "Le", "Gt", "Ge"):
    _dtypes = "all" if _name in ("Eq", "Ne") else "numbers bool"
    for _kind in ("Tensor", "Scalar"):
        _call = f"{_name.lower()}.{_kind}({{0}}, other)"
        both(f"{_name}{_kind}", _call, f"{_dtypes} convertible", "", "all")
for _name, _aten in (("LogicalAnd", "logical_and"), ("LogicalOr", "logical_or")):
    both(_name, _aten + "({0}, other)", WIDE, "")
operator("LogicalXor", "out = logical_xor(self, other)", WIDE)
for _name, _aten in (("And", "and"), ("Or", "or"), ("Xor", "xor")):
    for _kind in ("Tensor", "Scalar"):
        _call = f"bitwise_{_aten}.Tensor({{0}}, other)"
        _results = "numbers bool" if _kind == "Scalar" or _name == "Xor" else ""
        both(f"Bitwise{_name}{_kind}", _call, "ints bool convertible", "", _results)
operator(
    "IsClose",
    "out = isclose(self, other, rtol, atol, equalNan)",
    "floats f64 ints bool",
    out="bool",
)
operator("Equal", "out = equal(@late(self), other)", "numbers bool", out="bool shape")
operator(
    "IsInScalarTensor",
    "out = isin.Scalar_Tensor(element, testElements, invert=invert)",
    "numbers bool",
    out="bool shape",
)
operator(
    "IsInTensorScalar",
    "out = isin.Tensor_Scalar(element, testElement, invert=invert)",
    "numbers bool",
    out="bool",
)

both("Atan2", "atan2({0}, other)", REAL, "", "reals")
both("FloorDivide", "floor_divide({0}, other)", REAL, "", "numbers complex")
both("FloorDivides", "floor_divide({0}, other)", REAL, "")
for _kind in ("Tensor", "Scalar"):
    both(f"Fmod{_kind}", "fmod.Tensor({0}, other)", "reals i32 i64 i8 u8 convertible", "")
for _kind in ("TensorTensor", "TensorScalar"):
    _call = "remainder.Tensor({0}, other)"
    both(f"Remainder{_kind}", _call, "reals i32 i64 convertible", "", "numbers complex")
operator(
    "RemainderScalarTensor",
    "out = remainder.Scalar_Tensor(self, other)",
    "reals i32 i64 convertible",
)
operator("Gcd", "out = gcd(self, other)", "i16 i32 i64 convertible")
operator("LogAddExp", "out = logaddexp(self, other)", "reals convertible", out="floats")
operator("LogAddExp2", "out = logaddexp2(self, other)", "reals convertible", out="floats")
operator("Maximum", "out = maximum(self, other)", REAL)
operator("Minimum", "out = minimum(self, other)", REAL)
both("XLogYTensor", "xlogy.Tensor({0}, other)", REAL, "", "reals")
both("XLogYScalarOther", "xlogy.Scalar_Other({0}, other)", REAL, "", "reals")
operator("XLogYScalarSelf", "out = xlogy.Scalar_Self(self, other)", REAL, out="reals")
operator("Complex", "out = complex(real, imag)", "f32 f64", out="complex")
operator("Polar", "out = polar(input, angle)", "f32", out="c64")

both(
    "Addcmul", "addcmul({0}, tensor1, tensor2, value=value)", "reals i32 i64 i8 u8 convertible", ""
)
both("Addcdiv", "addcdiv({0}, tensor1, tensor2, value=value)", "reals convertible", "")
both("Lerp", "lerp.Tensor({0}, end, weight)", "floats", "")
both("Lerps", "lerp.Scalar({0}, end, weight)", "floats convertible", "", "reals")

CLAMPED = "reals ints convertible"
operator(
    "Clamp",
    "out = clamp(self, clipValueMin, clipValueMax)",
    CLAMPED,
    clipValueMin="optional",
    clipValueMax="optional",
)
operator("ClampMin", "out = clamp_min(self, clipValueMin)", CLAMPED)
both("ClampMax", "clamp_max({0}, clipValueMax)", CLAMPED, "")
both(
    "ClampMinTensor",
    "clamp_min.Tensor({0}, clipValueMin)",
    CLAMPED,
    "",
    clipValueMin="numbers bool",
)
both("ClampMaxTensor", "clamp_max.Tensor({0}, max)", CLAMPED, "", max="numbers bool")
operator(
    "ClampTensor",
    "out = clamp.Tensor(self, clipValueMin, clipValueMax)",
    CLAMPED,
    clipValueMin="numbers bool optional",
    clipValueMax="numbers bool optional",
)

operator(
    "SWhere", "out = where.self(condition, self, other)", "any convertible", condition="u8 bool"
)
operator("Cast", "out = @cast(self, dtype)", "any")
operator(
    "InplaceCopy", "selfRef = @cast(expand_copy(src, @sizes(selfRef)), @dtype(selfRef))", "any"
)
operator("InplaceFillScalar", "selfRef = full_like(selfRef, value)", "any")
operator(
    "InplaceFillTensor",
    "selfRef = fill.Tensor(selfRef, reshape(value, []))",
    "floats ints bool unsigned",
    value="0-1",
)
operator(
    "InplaceFillDiagonal",
    "selfRef = fill_diagonal_(clone(selfRef), fillValue, wrap)",
    "numbers bool c64 2-8",
)
operator("InplaceZero", "selfRef = zeros_like(selfRef)", "all u16")
operator("InplaceOne", "selfRef = ones_like(selfRef)", "numbers bool u16")
operator(
    "InplaceMaskedFillScalar",
    "selfRef = masked_fill.Scalar(selfRef, mask, value)",
    "floats bool i8 i32 i64",
    mask="bool",
)
operator(
    "InplaceMaskedFillTensor",
    "selfRef = masked_fill.Tensor(selfRef, mask, reshape(value, []))",
    "floats bool i8 i32 i64",
    mask="bool",
    value="0-1",
)
operator("Arange", "out = @cast(arange.start_step(start, end, step), @dtype(out))", "reals i32 i64")
operator("Range", "out = @cast(range.step(start, end, step), @dtype(out))", "reals i32 i64")
operator("Linspace", "out = @cast(linspace(start, end, steps), @dtype(out))", "reals i8 i16 i32 u8")
operator("Eye", "out = @cast(eye.m(n, m), @dtype(out))", "floats ints bool 2")

# Activations.
operator("Gelu", "out = gelu(self, approximate='tanh')", "floats")
operator("GeluV2", "y = gelu(x, approximate='tanh' if approximate == 1 else 'none')", "floats")
operator(
    "GeluBackwardV2",
    "gradInput = gelu_backward(gradOutput, self, approximate=approximate)",
    "floats",
)
both("Celu", "celu({0}, alpha)", "floats", "")
both("Elu", "elu({0}, alpha, scale, inputScale)", "floats", "reals")
operator(
    "EluBackward",
    "gradInput = elu_backward(gradOutput, alpha, scale, inputScale, isResult, selfOrResult)",
    "floats",
)
both("LeakyRelu", "leaky_relu({0}, negativeSlope)", "floats", "reals")
operator(
    "LeakyReluBackward",
    "out = leaky_relu_backward(gradOutput, self, negativeSlope, selfIsResult)",
    "reals",
)
operator("Hardshrink", "out = hardshrink(self, lambd)", "floats")
operator("HardshrinkBackward", "gradInput = hardshrink_backward(gradOutput, self, lambd)", "floats")
operator("HardsigmoidBackward", "out = hardsigmoid_backward(gradOutput, self)", "floats")
operator("HardswishBackward", "out = hardswish_backward(gradOutput, self)", "floats")
both("Hardtanh", "hardtanh({0}, clipValueMin, clipValueMax)", "reals ints", "")
operator("HardtanhBackward", "out = hardtanh_backward(gradOutput, self, min, max)", "floats")
operator(
    "LogSigmoidForward",
    "out = log_sigmoid(self); buffer = exp(-abs(self))",
    "floats",
    buffer="optional shape",
)
operator("LogSigmoidBackward", "gradInput = gradOutput * sigmoid(-self)", "floats")
operator("MishBackward", "gradInput = mish_backward(gradOutput, self)", "floats")
operator("Prelu", "out = prelu(self, weight)", "floats")
operator(
    "PreluBackward",
    "gradInput = where.self(self > 0, gradOutput, @channel(weight, self) * gradOutput);"
    "gradWeight = @sum_channel(where.self(self > 0, 0 * self, self * gradOutput), weight)",
    "floats",
    gradWeight="shape",
)
both(
    "RReluWithNoise",
    "where.self({0} >= 0, {0}, {0} * (noise if training else full_like({0}, (lower + upper) / 2)))",
    "floats",
    "",
)
operator(
    "SeluBackward",
    "gradInput = elu_backward(gradOutput, 1.6732632423543772, 1.0507009873554805, 1, True, result)",
    "floats",
)
operator(
    "SigmoidBackward",
    "gradInput = sigmoid_backward(gradOutput, output)",
    "reals complex convertible",
)
operator("SiluBackward", "gradInput = silu_backward(gradOutput, self)", "floats")
operator("Softplus", "out = softplus(self, beta, threshold)", "floats")
operator(
    "SoftplusBackward", "gradInput = softplus_backward(gradOutput, self, beta, threshold)", "reals"
)
operator("Softshrink", "out = softshrink(self, lambd)", "floats")
operator(
    "SoftshrinkBackward", "gradInput = softshrink_backward(gradOutput, self, lambda)", "floats"
)
operator(
    "Swish",
    "out = self * sigmoid(self * (1.0 if betaOptional == None else betaOptional))",
    "floats",
    betaOptional="optional",
)
operator(
    "SwishBackward",
    "beta = 1.0 if betaOptional == None else betaOptional; part = sigmoid(self * beta);"
    "gradInput = gradOutput * (part + self * beta * part * (1.0 - part))",
    "floats",
    betaOptional="optional",
)
operator("TanhBackward", "gradInput = tanh_backward(gradOutput, output)", "reals")
both("Threshold", "threshold({0}, threshold, value)", "floats ints", "")
operator(
    "ThresholdBackward", "out = threshold_backward(gradOutput, self, threshold)", "floats i32 i8 u8"
)
operator(
    "SwiGlu",
    "halves = chunk(x, 2, dim); out = silu(halves[0]) * halves[1]",
    "floats contiguous 1-8",
)
operator(
    "SwiGluGrad",
    "halves = chunk(x, 2, dim);"
    "out = cat([silu_backward(yGrad * halves[1], halves[0]), yGrad * silu(halves[0])], dim)",
    "floats contiguous 1-8",
    x="-contiguous",
)
operator("Glu", "out = glu(self, dim)", "reals")
operator("GluBackward", "out = glu_backward(gradOut, self, dim)", "reals")
both("Renorm", "renorm({0}, p, dim, maxNorm)", "floats 2-8", "")
