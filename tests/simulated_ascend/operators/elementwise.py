"""Operators that work element by element."""

from __future__ import annotations

from tests.simulated_ascend.operators import operator

# Two tensors, or a tensor and a scalar, whose dtypes are promoted; the result is converted to `out`.
WIDE = "all convertible"
REAL = "numbers bool convertible"

for _name, _aten in (("Add", "add"), ("Sub", "sub")):
    operator(_name, f"out = {_aten}.Tensor(self, other, alpha=alpha)", WIDE)
    operator(f"{_name}s", f"out = {_aten}.Tensor(self, other, alpha=alpha)", WIDE)
    operator(f"Inplace{_name}", f"selfRef = {_aten}.Tensor(selfRef, other, alpha=alpha)", WIDE)
    operator(f"Inplace{_name}s", f"selfRef = {_aten}.Tensor(selfRef, other, alpha=alpha)", WIDE)
for _name, _aten in (("Mul", "mul"), ("Div", "div")):
    operator(_name, f"out = {_aten}.Tensor(self, other)", WIDE)
    operator(f"{_name}s", f"out = {_aten}.Tensor(self, other)", WIDE)
    operator(f"Inplace{_name}", f"selfRef = {_aten}.Tensor(selfRef, other)", WIDE)
    operator(f"Inplace{_name}s", f"selfRef = {_aten}.Tensor(selfRef, other)", WIDE)
operator(
    "DivMod",
    "out = div.Tensor_mode(self, other, rounding_mode=None if mode == 0 else 'trunc' if mode == 1 else 'floor')",
    WIDE,
)

# Of one tensor: name of aten, dtypes, and those of the result.
UNARY = {
    "Neg": ("neg", "f32 f16 bf16 f64 i8 i32 i64 complex", ""),
    "Sqrt": ("sqrt", "all", "reals complex"),
    "Rsqrt": ("rsqrt", "all", "reals complex"),
    "Reciprocal": ("reciprocal", "all", "reals complex"),
    "Cos": ("cos", "all", "reals complex"),
    "Sin": ("sin", "all", "reals complex"),
    "Silu": ("silu", "floats", ""),
    "Relu": ("relu", "floats i8 i32 i64", ""),
    "LogicalNot": ("logical_not", "numbers bool", ""),
    "BitwiseNot": ("bitwise_not", "ints bool", ""),
}
for _name, (_aten, _dtypes, _results) in UNARY.items():
    operator(_name, "{1} = " + _aten + "({0})", f"{_dtypes} convertible", out=_results)
operator("InplaceRelu", "selfRef = relu(selfRef)", "floats i8 i32 i64 u8")
operator("Gelu", "out = gelu(self, approximate='tanh')", "floats")
operator("SiluBackward", "gradInput = silu_backward(gradOutput, self)", "floats")
operator(
    "ThresholdBackward", "out = threshold_backward(gradOutput, self, threshold)", "floats i32 i8 u8"
)
operator("SwiGlu", "halves = chunk(x, 2, dim); out = silu(halves[0]) * halves[1]", "floats contiguous 1-8")

operator("PowTensorScalar", "out = pow.Tensor_Scalar(self, exponent)", WIDE)

# Comparisons; the result is often bool, and may be anything that bool becomes.
for _name in ("Eq", "Ne", "Lt", "Le", "Gt", "Ge"):
    _dtypes = "all" if _name in ("Eq", "Ne") else "numbers bool"
    for _kind in ("Tensor", "Scalar"):
        operator(
            f"{_name}{_kind}",
            f"out = {_name.lower()}.{_kind}(self, other)",
            f"{_dtypes} convertible",
            out="all",
        )
for _name, _aten in (("LogicalAnd", "logical_and"), ("LogicalOr", "logical_or"), ("LogicalXor", "logical_xor")):
    operator(_name, f"out = {_aten}(self, other)", WIDE)
for _name, _aten in (("And", "and"), ("Or", "or"), ("Xor", "xor")):
    operator(f"Bitwise{_name}Tensor", f"out = bitwise_{_aten}.Tensor(self, other)", "ints bool convertible")

operator("SWhere", "out = where.self(condition, self, other)", "any convertible", condition="u8 bool")
operator("Clamp", "out = clamp(self, clipValueMin, clipValueMax)", "numbers convertible",
         clipValueMin="optional", clipValueMax="optional")  # fmt: skip
operator("Cast", "out = @cast(self, dtype)", "any")
operator("InplaceCopy", "selfRef = @cast(expand_copy(src, @sizes(selfRef)), @dtype(selfRef))", "any")
operator("InplaceFillScalar", "selfRef = full_like(selfRef, value)", "any")
operator("InplaceFillTensor", "selfRef = fill.Tensor(selfRef, reshape(value, []))",
         "floats ints bool unsigned", value="0-1")  # fmt: skip
operator("InplaceZero", "selfRef = zeros_like(selfRef)", "all u16")
operator("InplaceOne", "selfRef = ones_like(selfRef)", "numbers bool u16")
operator(
    "InplaceMaskedFillScalar",
    "selfRef = masked_fill.Scalar(selfRef, mask, value)",
    "floats bool i8 i32 i64",
    mask="bool",
)
operator("InplaceLerps", "selfRef = lerp.Scalar(selfRef, end, weight)", "floats")
operator(
    "InplaceAddcmul",
    "selfRef = addcmul(selfRef, tensor1, tensor2, value=value)",
    "reals i32 i64 i8 u8 convertible",
)
operator(
    "InplaceAddcdiv",
    "selfRef = addcdiv(selfRef, tensor1, tensor2, value=value)",
    "reals i64 convertible",
)
operator("Arange", "out = @cast(arange.start_step(start, end, step), @dtype(out))", "reals i32 i64")
