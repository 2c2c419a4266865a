"""Random numbers, which the seed and the offset decide."""

from __future__ import annotations

from tests.simulated_ascend.operators import operator

GENERATOR = "@generator(seed, offset)"

operator(
    "InplaceUniform",
    f"selfRef = @cast(uniform(@cast(empty_like(selfRef), float), from, to, generator={GENERATOR}), @dtype(selfRef))",
    "reals ints",
)
operator(
    "InplaceNormal",
    f"selfRef = @cast(normal_functional(@cast(empty_like(selfRef), float), mean, std, generator={GENERATOR}),"
    " @dtype(selfRef))",
    "reals",
)
operator(
    "InplaceRandom",
    f"selfRef = @cast(random.from(@cast(empty_like(selfRef), long), from, to, generator={GENERATOR}),"
    " @dtype(selfRef))",
    "numbers bool",
)
operator(
    "InplaceBernoulli",
    f"selfRef = @cast(bernoulli.p(@cast(empty_like(selfRef), float), prob, generator={GENERATOR}), @dtype(selfRef))",
    "numbers bool",
    prob="reals",
)
operator(
    "Multinomial",
    f"out = multinomial(self, numsamples, replacement, generator={GENERATOR})",
    "reals 1-2",
    out="i64",
)
operator(
    "DropoutGenMaskV2",
    f"out = @dropout_bits(shape, prob, {GENERATOR})",
    "u8 1",
    probDataType="floats",
)
operator(
    "DropoutDoMask",
    "out = zeros_like(self) if prob == 1 else where.self(@kept(self, mask), self * (1 / (1 - prob)), 0 * self)",
    "floats convertible",
    mask="u8",
)
