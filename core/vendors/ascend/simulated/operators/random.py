"""Random numbers, which the seed and the offset decide."""

from __future__ import annotations

from core.vendors.ascend.simulated.operators import operator

GENERATOR = "@generator(seed, offset)"

operator(
    "InplaceUniform",
    f"selfRef = @cast(uniform(@cast(empty_like(selfRef), float), from, to, generator={GENERATOR}),"
    " @dtype(selfRef))",
    "reals ints",
)
operator(
    "InplaceNormal",
    f"selfRef = @cast(normal_functional(@cast(empty_like(selfRef), float), mean, std, generator={GENERATOR}),"
    " @dtype(selfRef))",
    "reals",
)
for _name, _mean, _std in (
    ("FloatFloat", "full_like(out, mean)", "full_like(out, std)"),
    ("FloatTensor", "full_like(std, mean)", "std"),
    ("TensorFloat", "mean", "full_like(mean, std)"),
    ("TensorTensor", "mean", "std"),
):
    operator(
        f"Normal{_name}",
        f"out = @cast(normal.Tensor_Tensor(@cast({_mean}, float), @cast({_std}, float), generator={GENERATOR}),"
        " @dtype(out))",
        "reals",
    )
operator(
    "InplaceRandom",
    f"selfRef = @cast(random.from(@cast(empty_like(selfRef), long), from, to, generator={GENERATOR}),"
    " @dtype(selfRef))",
    "numbers bool",
)
for _name, _of in (("Bernoulli", "self"), ("InplaceBernoulli", "selfRef")):
    _out = "out" if _of == "self" else "selfRef"
    _call = f"@cast(bernoulli.{{}}(@cast(empty_like({_of}), float), {{}}, generator={GENERATOR}), @dtype({_out}))"
    operator(_name, f"{_out} = " + _call.format("p", "prob"), "numbers bool", prob="reals")
    operator(
        f"{_name}Tensor",
        f"{_out} = " + _call.format("Tensor", "@cast(prob, float)"),
        "f32 f16 f64",
        prob="f32 f16 f64",
    )
operator(
    "Multinomial",
    f"out = multinomial(self, numsamples, replacement, generator={GENERATOR})",
    "reals 1-2",
    out="i64",
)
operator(
    "Randperm",
    f"out = @cast(randperm.generator(n, generator={GENERATOR}), @dtype(out))",
    "reals ints 1",
)
operator("DropoutGenMask", f"out = @dropout_bits(shape, prob, {GENERATOR})", "u8 1")
operator(
    "DropoutGenMaskV2",
    f"out = @dropout_bits(shape, prob, {GENERATOR})",
    "u8 1",
    probDataType="floats",
)
_DROP = "where.self(@kept({0}, {1}), {0} * {2}, 0 * {0})"
operator(
    "DropoutDoMask",
    "out = zeros_like(self) if prob == 1 else " + _DROP.format("self", "mask", "(1 / (1 - prob))"),
    "floats convertible",
    mask="u8",
)
operator(
    "Dropout",
    f"bits = @dropout_bits(@sizes(input), p if train else 0, {GENERATOR}); maskOut = bits;"
    "out = zeros_like(input) if p == 1 and train else "
    + _DROP.format("input", "bits", "(1 / (1 - (p if train else 0)))"),
    "floats convertible",
    maskOut="u8 1",
)
operator(
    "DropoutBackward",
    "out = " + _DROP.format("gradOutput", "mask", "scale"),
    "floats convertible",
    mask="u8",
)
