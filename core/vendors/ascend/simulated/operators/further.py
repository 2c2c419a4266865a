"""Operators that came after CANN 8.1, and rarer ones."""

from __future__ import annotations

from core.vendors.ascend.simulated.operators import operator

FLOATS = "floats convertible"
SHIFTED = "ints convertible"

# Mixed precision, optimizers.
operator(
    "ForeachNonFiniteCheckAndUnscale",
    "scaledGrads, foundInf = _amp_foreach_non_finite_check_and_unscale(scaledGrads, foundInf, invScale)",
    "floats contiguous",
    foundInf="f32 shape",
    invScale="f32 -contiguous",
)
operator(
    "AmpUpdateScale",
    "updatedScale, updatedGrowthTracker = _amp_update_scale(currentScale, growthTracker, foundInf, growthFactor,"
    " backoffFactor, growthInterval)",
    "f32 1 contiguous",
    growthTracker="i32",
    updatedGrowthTracker="i32",
)
operator(
    "FusedSgd",
    "paramsRef, gradsRef, momentumBufferListOptionalRef = _fused_sgd(paramsRef, gradsRef,"
    " [] if momentumBufferListOptionalRef == None else momentumBufferListOptionalRef, weight_decay=weightDecay,"
    " momentum=momentum, lr=lr, dampening=dampening, nesterov=nesterov, maximize=maximize,"
    " is_first_step=isFirstStep, grad_scale=gradScaleOptional)",
    "floats",
    momentumBufferListOptionalRef="optional",
    gradScaleOptional="optional",
)

# Numbers that a graph draws anew each time: seed and offset are on the device.
_SEED = {"seedTensor": "i64 1", "offsetTensor": "i64 1"}
_DRAWN = "@generator(seedTensor, offsetTensor, offset)"
operator(
    "InplaceUniformTensor",
    f"selfRef = @cast(uniform(@cast(empty_like(selfRef), float), from, to, generator={_DRAWN}), @dtype(selfRef))",
    "reals ints",
    seedTensor="u64 i64 1 contiguous",
    offsetTensor="u64 i64 1 contiguous",
)
operator(
    "InplaceNormalTensor",
    f"selfRef = @cast(normal_functional(@cast(empty_like(selfRef), float), mean, std, generator={_DRAWN}),"
    " @dtype(selfRef))",
    "reals",
    **_SEED,
)
operator(
    "InplaceRandomTensor",
    f"selfRef = @cast(random.from(@cast(empty_like(selfRef), long), from, to, generator={_DRAWN}), @dtype(selfRef))",
    "numbers bool",
    **_SEED,
)
operator(
    "InplaceRandomWithoutFromTo",
    "selfRef = random(selfRef, generator=@generator(seed, offset))",
    "floats ints bool",
)
operator(
    "InplaceRandomWithoutFromToTensor",
    f"selfRef = random(selfRef, generator={_DRAWN})",
    "floats ints bool",
    **_SEED,
)
operator(
    "MultinomialTensor",
    f"out = multinomial(self, numsamples, replacement, generator={_DRAWN})",
    "reals 1-2",
    out="i64",
    **_SEED,
)
operator(
    "DropoutGenMaskV2Tensor",
    f"out = @dropout_bits(shape, prob, {_DRAWN})",
    "u8 1",
    probDataType="floats",
    **_SEED,
)
operator(
    "SimThreadExponential",
    "selfRef = @cast(exponential(@cast(empty_like(selfRef), float), lambda,"
    " generator=@generator(seed, offset)), @dtype(selfRef))",
    "floats",
)

# One element at a time.
operator("AngleV2", "{1} = angle({0})", "floats ints bool c64 convertible", out="floats")
operator("Square", "out = square(self)", "floats i32 i64")
operator("Heaviside", "out = heaviside(input, values)", "floats")
operator("Xlog1py", "z = special_xlog1py(x, y)", FLOATS)
operator("Lgamma", "out = lgamma(self)", "f32 f16 f64 convertible")
operator("Digamma", "out = digamma(self)", "f32 f16 f64 convertible")
operator("LeftShift", "out = bitwise_left_shift.Tensor(self, shiftBits)", SHIFTED)
operator("LeftShifts", "out = bitwise_left_shift.Tensor(self, shiftBits)", SHIFTED)
operator("RightShift", "out = bitwise_right_shift.Tensor(input, shiftBits)", SHIFTED)
operator(
    "BitwiseAndTensorOut",
    "out = bitwise_and.Tensor(self, other)",
    "i8 i16 i32 i64 u8 bool convertible",
)
operator(
    "InplaceBitwiseAndTensorOut", "self = bitwise_and.Tensor(self, other)", "ints bool convertible"
)
operator("AddV3", "out = add.Tensor(other * alpha, self)", "floats i32 i8 convertible")
operator(
    "DivMods",
    "out = div.Tensor_mode(self, other, rounding_mode=None if mode == 0 else 'trunc' if mode == 1 else 'floor')",
    "all convertible",
)
operator("HardswishBackwardV2", "out = hardswish_backward(gradOutput, self)", "floats")
operator(
    "GeluBackward", "gradInput = gelu_backward(gradOutput, self, approximate='tanh')", "floats"
)
operator(
    "MaskedScale",
    "y = @cast(self * @cast(mask, float) * scale, @dtype(self))",
    "floats",
    mask="u8 i8 f16 f32",
)
_GELU = "gelu(halves[{0}], approximate='tanh' if approximate == 1 else 'none')"
operator(
    "GeGlu",
    f"halves = chunk(self, 2, dim); outGelu = {_GELU.format(1)}; out = halves[0] * {_GELU.format(1)}",
    "floats 1-8",
)
operator("LogSpace", "result = @cast(logspace(start, end, steps, base), @dtype(result))", "floats")

# Reductions.
operator("AddN", "out = @sum_of(tensors)", "floats i32 i64")
operator("MinN", "out = @least_of(tensors)", "floats i8 i32 i64")
operator("ReduceNansum", "out = nansum(self, dim, keepDim, dtype=dtype)", "floats ints bool")
operator("ReduceLogSum", "reduce = log(sum.dim_IntList(data, axes, keepDims))", "f32 f16")
operator(
    "Bincount",
    "out = bincount(@late(self), weights, minlength)",
    "ints 1",
    weights="f32 f16 f64 ints bool optional",
    out="i32 i64 f32 f64 convertible",
)
operator(
    "Bucketize",
    "out = bucketize.Tensor(self, boundaries, out_int32=outInt32, right=right)",
    "floats ints",
    boundaries="1",
    out="index",
)
operator("Cdist", "out = cdist(x1, x2, p, compute_mode)", "f32 2-8")
operator("CdistBackward", "out = _cdist_backward(grad, x1, x2, p, cdist)", "f32 2-8")
operator("PdistForward", "out = _pdist_forward(self, pScalar)", "f32 2", out="1")

# Matrices.
operator(
    "Gemm",
    "out = alpha * mm(t_copy(A) if transA else A, t_copy(B) if transB else B) + beta * C",
    "floats 2 convertible",
)
operator(
    "Ger",
    "out = outer(self, vec2)",
    "numbers bool complex convertible",
    self="1",
    vec2="1",
    out="2",
)
operator("Einsum", "output = einsum(equation, tensors)", "f32 f16 i16 i32 i64")
operator("Diag", "out = clone(diag(self, diagonal))", "numbers bool c64 1-2")
operator("DiagFlat", "out = diagflat(self, diagonal)", "numbers bool c64")
operator("LinalgCholesky", "out = linalg_cholesky(@late(self), upper=upper)", "f32 2-8")
operator(
    "Svd",
    "u, sigma, vh = linalg_svd(input, fullMatrices); v = transpose_copy.int(vh, -2, -1)",
    "f32 f64 complex",
    input="2-8",
    u="optional",
    v="optional",
)

# Elements that move.
operator("Flatten", "out = flatten.using_ints(flatten.using_ints(unsqueeze_copy(self, 0), 0, axis), 1, -1)"
         " if axis > 0 else reshape(self, [1, -1])",
         "floats ints bool unsigned 2-8", out="2")  # fmt: skip
operator("ChunkCat", "out = _chunk_cat(tensors, dim, numChunks)", "floats convertible")
operator(
    "OneHot",
    "hot = eq.Tensor(unsqueeze_copy(self, axis), @classes(self, axis, numClasses));"
    "out = where.self(hot, @first_of(onValue), @first_of(offValue))",
    "f32 f16 i32 i64",
    self="u8 i32 i64 0-7",
)
operator("IndexFill", "out = index_fill.int_Scalar(self, dim, @cast(index, long), value)",
         "floats i32 i64 bool", index="index 0-1")  # fmt: skip
operator("InplaceIndexFill", "selfRef = index_fill.int_Scalar(selfRef, dim, @cast(index, long), value)",
         "floats i32 i64 bool", index="index 0-1")  # fmt: skip
_REDUCE = (
    "scatter.src({0}, dim, @cast(index, long), src) if reduce == 0 else scatter_reduce.two({0}, dim,"
    " @cast(index, long), src, 'sum' if reduce == 1 else 'prod' if reduce == 2 else 'amax' if reduce == 3 else"
    " 'amin' if reduce == 4 else 'mean', include_self=includeSelf)"
)
operator("ScatterReduce", f"out = {_REDUCE}", "all", index="index")
operator("InplaceScatterReduce", f"selfRef = {_REDUCE}", "all", index="index")
operator(
    "RepeatInterleaveGrad",
    "out = index_add(zeros_like(out), axis, @repeated(repeats), yGrad)",
    "floats",
    repeats="index 0-1",
)
for _rank, _ranks in (("2", "3-4"), ("3", "4-5")):
    operator(
        f"CircularPad{_rank}d", "out = pad(self, padding, 'circular')", f"floats i8 i32 {_ranks}"
    )

# Layers.
operator(
    "AdaptiveMaxPool2dBackward",
    "gradInput = adaptive_max_pool2d_backward(gradOutput, self, @cast(indices, long))",
    "floats 3-4",
    indices="index",
)
operator("GlobalMaxPool", "out = amax(self, @all_after(self), True)", "f32 f16 f64 4-8")
operator("GlobalAveragePool", "out = mean.dim(self, @all_after(self), True)", "reals 4-8")
operator(
    "ConvDepthwise2d",
    "out = convolution(self, weight, bias, stride, padding, dilation, False, [0, 0], @size(self, 1))",
    "floats 4 image",
    bias="1 optional -image",
    out="convertible",
)
operator(
    "ConvTbcBackward",
    "gradInput, gradWeight, gradBias = conv_tbc_backward(self, input, weight, bias, pad)",
    "floats 3",
    bias="1",
    gradBias="1",
)
_NORMED = "rstd = rsqrt(mean.dim(@wide(x) * @wide(x), @last(gamma), True) + epsilon);"
operator(
    "AddRmsNorm",
    "x = x1 + x2;"
    + _NORMED
    + "yOut = @cast(@wide(x) * rstd * @wide(gamma), @dtype(x1)); rstdOut = rstd; xOut = x",
    "floats 1-8",
    rstdOut="f32 optional",
    xOut="optional",
)
operator(
    "GemmaRmsNorm",
    _NORMED + "yOut = @cast(@wide(x) * rstd * (1.0 + @wide(gamma)), @dtype(x)); rstdOut = rstd",
    "floats 1-8",
    rstdOut="f32",
)
operator(
    "AddLayerNorm",
    "x = @wide(x1) + @wide(x2) + (0.0 if biasOptional == None else @wide(biasOptional));"
    "parts = native_layer_norm(x, @sizes(gamma), @wide(gamma), @wide(beta), epsilon);"
    "yOut = @cast(parts[0], @dtype(x1)); meanOut = parts[1]; rstdOut = parts[2];"
    "xOut = @cast(x, @dtype(x1)) if additionalOutput else None",
    "floats 1-8 contiguous",
    x1="-contiguous",
    x2="-contiguous",
    gamma="-contiguous",
    beta="-contiguous",
    biasOptional="optional -contiguous",
    meanOut="f32",
    rstdOut="f32",
    xOut="optional",
)
operator(
    "BatchNormReduce",
    "sum = sum.dim_IntList(@wide(x), @all_but_channels(x)); squareSum = sum.dim_IntList(@wide(x) * @wide(x),"
    " @all_but_channels(x))",
    "floats 4 image",
    sum="f32 1 -image",
    squareSum="f32 1 -image",
)
operator(
    "MultilabelMarginLoss",
    "out, isTarget = multilabel_margin_loss_forward(@wide(self), @cast(target, long), reduction)",
    "floats 1-2 convertible",
    target="index",
    out="0-1 shape",
)
operator(
    "KlDivTargetBackward",
    "slope = @as_loss(gradOutput, reduction)"
    " / (@numel(target) if reduction == 1 else @size(target, 0) if reduction == 3 else 1);"
    "gradTarget = slope * (exp(target) * (target + 1 - self) if logTarget else log(target) + 1 - self)",
    FLOATS,
)
operator(
    "ScaledMaskedSoftmax",
    "y = @cast(softmax.int(masked_fill.Scalar(@wide(x) * scale, mask, -10000.0), -1), @dtype(x))",
    "floats 4",
    mask="bool",
    y="contiguous",
)
operator(
    "ScaledMaskedSoftmaxBackward",
    "out = @cast(masked_fill.Scalar(_softmax_backward_data(@wide(gradOutput), @wide(y), -1, float), mask, 0.0)"
    " * scale, @dtype(y))",
    "floats 4",
    mask="bool",
    out="contiguous",
)
operator(
    "RotaryPositionEmbedding",
    "out = x * cos + (@rotated(x) if mode == 0 else @turned(x)) * sin",
    "floats 4",
    out="contiguous",
)
