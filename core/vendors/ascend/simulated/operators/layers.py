"""Layers of networks: activations, normalisation, convolution, pooling, losses, attention."""

from __future__ import annotations

from core.vendors.ascend.simulated.operators import operator, prototypes

operator("Softmax", "out = softmax.int(@wide(self), dim)", "reals convertible")
operator("LogSoftmax", "out = log_softmax.int(@wide(self), dim)", "reals convertible")
operator(
    "SoftmaxBackward",
    "out = _softmax_backward_data(@wide(gradOutput), @wide(output), dim, @dtype(@wide(output)))",
    "floats convertible",
)
operator(
    "LogSoftmaxBackward",
    "out = _log_softmax_backward_data(@wide(gradOutput), @wide(output), dim, @dtype(@wide(output)))",
    "floats convertible",
)
operator(
    "NLLLoss",
    "out, totalWeightOut = nll_loss_forward(self, @cast(target, long), weight, reduction, ignoreIndex)",
    "floats",
    self="1-2",
    target="i64 u8 i32 0-1",
    weight="1",
    totalWeightOut="shape",
)
operator(
    "NLLLossBackward",
    "out = nll_loss_backward(gradOutput if reduction == 0 else reshape(gradOutput, []), self, @cast(target, long),"
    " weight, reduction, ignoreIndex, reshape(totalWeight, []))",
    "floats",
    self="1-2",
    target="i64 u8 i32 0-1",
    weight="1",
)

BATCH_STATISTICS = dict.fromkeys(
    ("weight", "bias", "runningMean", "runningVar", "saveMean", "saveInvstd"),
    "1 optional convertible",
)
operator(
    "BatchNorm",
    "output, saveMean, saveInvstd, runningMean, runningVar ="
    " @batch_norm(input, weight, bias, runningMean, runningVar, training, momentum, eps)",
    "floats 2-8",
    input="image",
    output="image",
    **BATCH_STATISTICS,
)
operator(
    "BatchNormBackward",
    "gradInput, gradWeight, gradBias = @batch_norm_grad(gradOut, input, weight, runningMean, runningVar,"
    " saveMean, saveInvstd, training, eps, outputMask)",
    "floats 2-8",
    gradOut="image",
    input="image",
    gradInput="image optional",
    gradWeight="1 optional convertible",
    gradBias="1 optional convertible",
    **{name: words for name, words in BATCH_STATISTICS.items() if name != "bias"},
)
operator(
    "RmsNorm",
    "rstd = rsqrt(mean.dim(@wide(x) * @wide(x), @last(gamma), True) + epsilon);"
    "yOut = @cast(@wide(x) * rstd * @wide(gamma), @dtype(x)); rstdOut = rstd",
    "floats 1-8",
    rstdOut="f32",
)
operator(
    "RmsNormGrad",
    "scaled = @wide(x) * reshape(rstd, @ones_after(x, gamma));"
    "slope = @wide(dy) * @wide(gamma);"
    "dxOut = @cast((slope - scaled * mean.dim(slope * scaled, @last(gamma), True))"
    " * reshape(rstd, @ones_after(x, gamma)), @dtype(x));"
    "dgammaOut = @sum_to(@wide(dy) * scaled, gamma)",
    "floats 1-8",
    rstd="f32",
    dgammaOut="f32",
)

operator(
    "Convolution",
    "output = convolution(@cube(input, cubeMathType), @cube(weight, cubeMathType), bias, stride, padding, dilation,"
    " transposed, outputPadding, groups)",
    "floats 3-5 image",
    bias="1-5 optional -image",
    output="convertible",
)
operator(
    "ConvolutionBackward",
    "gradInput, gradWeight, gradBias = convolution_backward(@cube(gradOutput, cubeMathType),"
    " @cube(input, cubeMathType), @cube(weight, cubeMathType), biasSizes, stride, padding, dilation,"
    " transposed, outputPadding, groups, outputMask)",
    "floats 3-5 image",
    biasSizes="optional",
    gradInput="optional",
    gradWeight="optional",
    gradBias="1 optional -image",
)

UNDILATED = "ok = @require(@all_ones(dilation), 'dilation must be 1');"
SIZES = "kernelSize, stride, padding, dilation, ceilMode"
operator(
    "MaxPool2dWithIndices",
    f"{UNDILATED}out, indices = max_pool2d_with_indices(self, {SIZES})",
    "floats 3-4",
    indices="i32 convertible",
)
operator(
    "MaxPool2dWithIndicesBackward",
    f"{UNDILATED}gradInput = max_pool2d_with_indices_backward(gradOutput, self, {SIZES}, @cast(indices, long))",
    "f32 3-4",
    indices="i32",
)
operator(
    "MaxPool2dWithMask",
    f"{UNDILATED}found = max_pool2d_with_indices(self, {SIZES});"
    "out = found[0]; indices = @pool_bits(self, kernelSize, stride, padding, found[0], found[1])",
    "floats 3-4",
    indices="i8 contiguous",
)
operator(
    "MaxPool2dWithMaskBackward",
    f"{UNDILATED}gradInput = max_pool2d_with_indices_backward(gradOutput, self, {SIZES},"
    " @pool_indices(gradOutput, self, indices, kernelSize, stride, padding))",
    "floats 4 image",
    indices="i8 4",
)
operator("AdaptiveAvgPool2d", "out = _adaptive_avg_pool2d(self, outputSize)", "floats 3-4 image")
operator(
    "AdaptiveAvgPool2dBackward",
    "out = _adaptive_avg_pool2d_backward(gradOutput, self)",
    "floats 3-4",
)

MASK = "bool u8 2-4 optional"
operator(
    "FlashAttentionScore",
    "softmaxMaxOut, softmaxSumOut, attentionOutOut = @attention(query, key, value, realShiftOptional,"
    " dropMaskOptional, attenMaskOptional, scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout,"
    " innerPrecise, sparseMode)",
    "floats 3-4",
    realShiftOptional="4 optional",
    dropMaskOptional="u8 1 optional",
    paddingMaskOptional="absent",
    attenMaskOptional=MASK,
    prefixOptional="absent",
    softmaxMaxOut="f32 4",
    softmaxSumOut="f32 4",
    softmaxOutOut="optional 0-8",
)
operator(
    "FlashAttentionScoreGrad",
    "dqOut, dkOut, dvOut, dpseOut = @attention_grad(query, keyIn, value, dy, pseShiftOptional, dropMaskOptional,"
    " attenMaskOptional, softmaxMaxOptional, softmaxSumOptional, attentionInOptional, scaleValue, keepProb,"
    " preTokens, nextTokens, headNum, inputLayout, sparseMode)",
    "floats 3-4",
    pseShiftOptional="4 optional",
    dropMaskOptional="u8 1 optional",
    paddingMaskOptional="absent",
    attenMaskOptional=MASK,
    softmaxMaxOptional="f32 4",
    softmaxSumOptional="f32 4",
    softmaxInOptional="optional 0-8",
    prefixOptional="absent",
    dpseOut="optional 0-8",
)

QUANTIZED = ["deqScale1", "quantScale1", "deqScale2", "quantScale2", "quantOffset2"]
DEQUANTIZED = [
    "dequantScale1",
    "quantScale1",
    "dequantScale2",
    "quantScale2",
    "quantOffset2",
    "antiquantScale",
    "antiquantOffset",
    "blocktable",
    "kvPaddingSize",
]
_OPTIONALS = [
    "deqScale1",
    "quantScale1",
    "deqScale2",
    "quantScale2",
    "quantOffset2",
    "antiquantScale",
    "antiquantOffset",
    "blockTable",
    "queryPaddingSize",
    "kvPaddingSize",
    "keyAntiquantScale",
    "keyAntiquantOffset",
    "valueAntiquantScale",
    "valueAntiquantOffset",
    "keySharedPrefix",
    "valueSharedPrefix",
    "actualSharedPrefixLen",
    "queryRope",
    "keyRope",
    "keyRopeAntiquantScale",
]
INFER_MASK = "bool i8 u8 2-4 optional contiguous"
operator(
    "PromptFlashAttentionV3",
    "parts = @infer_attention(query, key, value, pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv, numHeads,"
    " numKeyValueHeads, scaleValue, preTokens, nextTokens, inputLayout, sparseMode, False);"
    "attentionOut = parts[0]",
    "halves 3-4 contiguous",
    pseShift="4 optional",
    attenMask=INFER_MASK,
    actualSeqLengths="optional",
    actualSeqLengthsKv="optional",
    **dict.fromkeys(QUANTIZED, "absent"),
)
operator(
    "IncreFlashAttentionV4",
    "parts = @infer_attention(query, key, value, pseShift, attenMask, None, actualSeqLengths, numHeads,"
    " numKeyValueHeads, scaleValue, 2147483647, 2147483647, inputLayout, 0, True);"
    "attentionOut = parts[0]",
    "halves 3-4 contiguous",
    pseShift="4 optional",
    attenMask=INFER_MASK,
    actualSeqLengths="optional",
    **dict.fromkeys(DEQUANTIZED, "absent"),
)
operator(
    "FusedInferAttentionScoreV3",
    "parts = @infer_attention(query, key, value, pseShiftOptional, attenMaskOptional, actualSeqLengthsOptional,"
    " actualSeqLengthsKvOptional, numHeads, numKeyValueHeads, scaleValue, preTokens, nextTokens, inputLayout,"
    " sparseMode, False);"
    "attentionOut = parts[0]; softmaxLse = parts[1] if softmaxLseFlag else None",
    "halves 3-4 contiguous",
    pseShiftOptional="4 optional",
    attenMaskOptional=INFER_MASK,
    actualSeqLengthsOptional="optional",
    actualSeqLengthsKvOptional="optional",
    softmaxLse="f32 0-4 optional",
    **{f"{name}Optional": "absent" for name in _OPTIONALS},
)
operator(
    "ApplyRotaryPosEmb",
    "ok = @require(layout == 1 and @size(queryRef, 3) == 128, 'only BSND with heads of 128');"
    "queryRef = queryRef * cos + @rotated(queryRef) * sin; keyRef = keyRef * cos + @rotated(keyRef) * sin",
    "floats 4",
)

# Statistics of batches over several devices.
operator(
    "BatchNormStats",
    "mean, invstd = @batch_stats(input, eps)",
    "floats 2-8",
    mean="f32 1",
    invstd="f32 1",
)
operator(
    "BatchNormElemt",
    "output = @cast((@wide(input) - @channel(mean, input)) * @channel(invstd, input) * @channel(weight, input)"
    " + @channel(bias, input), @dtype(input))",
    "floats 1",
    input="2-8",
    output="2-8",
    weight="optional",
    bias="optional",
)
operator(
    "BatchNormGatherStatsWithCounts",
    "meanAll, invstdAll, runningMean, runningVar ="
    " @gathered_stats(mean, invstd, runningMean, runningVar, momentum, eps, counts)",
    "floats 1 convertible",
    input="2-8",
    mean="2",
    invstd="2",
    runningMean="optional",
    runningVar="optional",
)
operator(
    "BatchNormReduceBackward",
    "sumDy, sumDyXmu, gradWeight, gradBias = @batch_sums(gradOut, input, mean, invstd)",
    "floats 1 convertible",
    gradOut="2-8",
    input="2-8",
    weight="optional",
    sumDy="optional",
    sumDyXmu="optional",
    gradWeight="optional",
    gradBias="optional",
)
operator(
    "BatchNormElemtBackward",
    "n = sum(@cast(counter, float));"
    "centred = @wide(input) - @channel(mean, input);"
    "gradInput = @cast((@wide(gradOut) - @channel(sumDy, input) / n - centred * @channel(invstd, input)"
    " * @channel(invstd, input) * @channel(sumDyXmu, input) / n) * @channel(invstd, input)"
    " * @channel(weight, input), @dtype(input))",
    "floats 1",
    gradOut="2-8",
    input="2-8",
    gradInput="2-8",
    weight="optional",
    counter="i32 f16 f32 1",
)

operator(
    "GroupNorm",
    "out, meanOut, rstdOut ="
    " native_group_norm(@wide(self), @wide(gamma), @wide(beta), N, C, HxW, group, eps)",
    "floats 2-8 convertible",
    gamma="1 optional",
    beta="1 optional",
)
operator(
    "GroupNormBackward",
    "gradInput, gradGammaOut, gradBetaOut = native_group_norm_backward(@wide(gradOut), @wide(input), @wide(mean),"
    " @wide(rstd), @wide(gamma), N, C, HxW, group, outputMask)",
    "floats 2-8 convertible",
    gamma="1 optional",
    gradInput="optional",
    gradGammaOut="1 optional",
    gradBetaOut="1 optional",
)
_NORMAL = (
    "parts = native_group_norm(@wide({0}), @wide({1}), @wide({2}), @size({0}, 0), @size({0}, 1),"
    " @numel({0}) / @size({0}, 0) / @size({0}, 1), {3}, eps); meanOut = parts[1]; rstdOut = parts[2];"
)
_STATISTICS = {
    "gamma": "1 optional",
    "beta": "1 optional",
    "meanOut": "2 contiguous",
    "rstdOut": "2 contiguous",
}
operator(
    "GroupNormSilu",
    _NORMAL.replace("{3}", "group") + "out = silu(parts[0])",
    "floats 2-8 convertible",
    **_STATISTICS,
)
operator(
    "GroupNormSiluV2",
    _NORMAL.replace("{3}", "group") + "out = silu(parts[0]) if activateSilu else parts[0]",
    "floats 2-8 convertible",
    **_STATISTICS,
)
operator(
    "GroupNormSwish",
    _NORMAL.replace("{3}", "numGroups")
    + "yOut = parts[0] * sigmoid(parts[0] * swishScale) if activateSwish else parts[0]",
    "floats 2-8 convertible",
    **_STATISTICS,
)
_LAYER = "@wide(input), normalizedShape, @wide(weightOptional), @wide(biasOptional), eps"
for _name in ("LayerNorm", "LayerNormWithImplMode"):
    operator(
        _name,
        f"out, meanOutOptional, rstdOutOptional = native_layer_norm({_LAYER})",
        "floats 1-8 convertible",
        weightOptional="optional",
        biasOptional="optional",
        meanOutOptional="optional",
        rstdOutOptional="optional",
    )
operator(
    "LayerNormBackward",
    "gradInputOut, gradWeightOut, gradBiasOut = native_layer_norm_backward(@wide(gradOut), @wide(input),"
    " normalizedShape, @wide(mean), @wide(rstd), @wide(weightOptional), @wide(biasOptional), outputMask)",
    "floats 1-8 convertible",
    weightOptional="optional",
    biasOptional="optional",
    gradInputOut="optional",
    gradWeightOut="optional",
    gradBiasOut="optional",
)

# Pools.
_AVERAGE = "{}, {}, ceilMode, countIncludePad, None if divisorOverride == 0 else divisorOverride"
operator(
    "AvgPool2d",
    "ok = @require(cubeMathType == 0 or cubeMathType == 2, 'cubeMathType must be 0 or 2');"
    "out = avg_pool2d(self, kernelSize, " + _AVERAGE.format("strides", "paddings") + ")",
    "floats 3-4 image",
)
operator(
    "AvgPool2dBackward",
    "gradInput = avg_pool2d_backward(gradOutput, self, kernelSize, "
    + _AVERAGE.format("stride", "padding")
    + ")",
    "floats 3-4 image",
)
operator(
    "AvgPool3d",
    "out = avg_pool3d(self, kernelSize, " + _AVERAGE.format("stride", "padding") + ")",
    "floats 4-5",
)
operator(
    "AvgPool3dBackward",
    "output = avg_pool3d_backward(gradOutput, self, kernelSize, "
    + _AVERAGE.format("stride", "padding")
    + ")",
    "floats 4-5",
)
operator("AdaptiveAvgPool3d", "out = _adaptive_avg_pool3d(self, outputSize)", "floats 4-5")
operator(
    "AdaptiveAvgPool3dBackward",
    "out = _adaptive_avg_pool3d_backward(gradOutput, self)",
    "floats 4-5",
)
operator(
    "AdaptiveMaxPool2d",
    "outputOut, indicesOut = adaptive_max_pool2d(self, outputSize)",
    "reals 3-4 image",
    indicesOut="i64",
)
operator(
    "AdaptiveMaxPool3d",
    "outputOut, indicesOut = adaptive_max_pool3d(self, outputSize)",
    "floats 4-5 image",
    indicesOut="i32 convertible",
)
operator(
    "AdaptiveMaxPool3dBackward",
    "gradInput = adaptive_max_pool3d_backward(gradOutput, self, @cast(indices, long))",
    "floats 4-5",
    indices="i32",
)
operator(
    "MaxPool3dWithArgmax",
    f"{UNDILATED}out, indices = max_pool3d_with_indices(self, {SIZES})",
    "floats 4-5",
    indices="i32 convertible",
)
operator(
    "MaxPool3dWithArgmaxBackward",
    f"gradInput = max_pool3d_with_indices_backward(gradOutput, self, {SIZES}, @cast(indices, long))",
    "floats 4-5",
    indices="i32",
)
operator(
    "MaxUnpool2d",
    "out = max_unpool2d(self, @cast(indices, long), outputSize)",
    "f32 f16 f64 ints 3-4",
    indices="index",
)
operator(
    "MaxUnpool3d",
    "outRef = max_unpool3d(self, @cast(indices, long), outputSize, stride, padding)",
    "f32 f16 f64 ints 4-5",
    indices="index",
)
for _name, _first in (("MaxUnpool2dBackward", -2), ("MaxUnpool3dBackward", -3)):
    operator(
        _name,
        f"out = reshape(gather(flatten.using_ints(gradOutput, {_first}, -1), -1,"
        f" flatten.using_ints(@cast(indices, long), {_first}, -1)), @sizes(self))",
        "f32 f16 ints bool 3-4" if _first == -2 else "f32 f16 f64 ints 4-5",
        indices="index" if _first == -2 else "i64",
    )

# Resampling: a scale of 0 is that of the sizes.
# Name, whose backward has another ending or none, aten's, dimensions, dtypes, and whether the format matters.
_RESAMPLED = (
    ("Nearest1d", "Backward", "upsample_nearest1d", 1, "reals u8", True),
    ("Nearest1dV2", "", "upsample_nearest1d", 1, "reals u8", True),
    ("Nearest2d", "Backward", "upsample_nearest2d", 2, "reals u8", True),
    ("Nearest2dV2", "", "upsample_nearest2d", 2, "reals u8", True),
    ("Nearest3d", "Backward", "upsample_nearest3d", 3, "reals u8", False),
    ("NearestExact1d", "Backward", "_upsample_nearest_exact1d", 1, "floats u8", False),
    ("NearestExact2d", "Backward", "_upsample_nearest_exact2d", 2, "floats u8", False),
    ("NearestExact3d", "Backward", "_upsample_nearest_exact3d", 3, "floats", False),
    ("Linear1d", "Backward", "upsample_linear1d", 1, "floats", False),
    ("Bilinear2d", "Backward BackwardV2", "upsample_bilinear2d", 2, "floats", True),
    ("Bilinear2dAA", "Backward", "_upsample_bilinear2d_aa", 2, "floats", False),
    ("Bicubic2d", "Backward", "upsample_bicubic2d", 2, "floats", False),
    ("Bicubic2dAA", "Grad", "_upsample_bicubic2d_aa", 2, "floats", False),
    ("Trilinear3d", "Backward", "upsample_trilinear3d", 3, "reals", False),
)
# Of these only the backward asks for a format, or does not.
_OTHER_FORMAT = {
    "Nearest1dBackward": False,
    "Nearest3dBackward": True,
    "NearestExact3dBackward": True,
}
for _name, _endings, _aten, _rank, _dtypes, _image in _RESAMPLED:
    _words = f"{_dtypes} {_rank + 2}"
    _names = [name for _, name in prototypes()[f"Upsample{_name}"]]
    operator(
        f"Upsample{_name}",
        f"out = {_aten}({', '.join(_names[:-1])})",
        f"{_words}{' image' if _image else ''}",
    )
    for _ending in _endings.split():
        _back = f"{_name}{_ending}"
        _names = [name for _, name in prototypes()[f"Upsample{_back}"]]
        operator(
            f"Upsample{_back}",
            f"{_names[-1]} = @cast({_aten}_backward(@wide({_names[0]}), {', '.join(_names[1:-1])}),"
            f" @dtype({_names[0]}))",
            f"{_words} -u8{' image' if _OTHER_FORMAT.get(_back, _image) else ''}",
        )
for _sides, _ranks in (("2", "4"), ("3", "5")):
    _call = "interpolationMode, paddingMode, alignCorners"
    operator(
        f"GridSampler{_sides}D",
        f"out = grid_sampler_{_sides}d(input, grid, {_call})",
        f"reals {_ranks}",
    )
    operator(
        f"GridSampler{_sides}DBackward",
        f"inputGrad, gridGrad = grid_sampler_{_sides}d_backward(gradOutput, input, grid, {_call}, outputMask)",
        f"reals {_ranks}",
        inputGrad="optional",
    )
operator(
    "AffineGrid", "out = affine_grid_generator(theta, size, alignCorners)", "floats 3", out="4-5"
)

# Losses: reduction 0 is none, 1 the mean, 2 the sum; one number is a tensor of no dimension or of one.
_ONE_NUMBER = {"out": "shape"}
operator(
    "BinaryCrossEntropy",
    "out = @cast(binary_cross_entropy(@wide(self), @wide(target), @wide(weight), reduction),"
    " @dtype(self))",
    "floats",
    weight="optional",
    **_ONE_NUMBER,
)
operator(
    "BinaryCrossEntropyBackward",
    "out = @cast(binary_cross_entropy_backward(@wide(gradOutput), @wide(self), @wide(target),"
    " @wide(weightOptional), reduction), @dtype(self))",
    "floats",
    weightOptional="optional",
)
_WEIGHTS = {"weightOptional": "optional", "posWeightOptional": "optional"}
operator(
    "BinaryCrossEntropyWithLogits",
    "out = binary_cross_entropy_with_logits(self, target, weightOptional, posWeightOptional, reduction)",
    "floats convertible",
    **_WEIGHTS,
    **_ONE_NUMBER,
)
_LOGITS = "* {0} / (@numel(self) if reduction == 1 else 1)"
_TIMES = "(ones_like(self) if weightOptional == None else weightOptional) * gradOutput"
operator(
    "BinaryCrossEntropyWithLogitsBackward",
    "p = ones_like(self) if posWeightOptional == None else posWeightOptional;"
    "out = ((target * (p - 1) + 1) * sigmoid(self) - p * target) " + _LOGITS.format(_TIMES),
    "floats convertible",
    **_WEIGHTS,
)
operator(
    "BinaryCrossEntropyWithLogitsTargetBackward",
    "p = ones_like(self) if posWeightOptional == None else posWeightOptional;"
    "gradTarget = (log_sigmoid(-self) - p * log_sigmoid(self)) " + _LOGITS.format(_TIMES),
    "floats convertible",
    **_WEIGHTS,
)
_LOSSES = (
    # name, aten, more arguments, dtypes, names of the gradient, of the result, and of that of the backward
    ("MseLoss", "mse_loss", "", "floats", "gradOutput", "out", "out"),
    ("SmoothL1Loss", "smooth_l1_loss", ", beta", "floats", "gradOut", "result", "gradInput"),
    ("SoftMarginLoss", "soft_margin_loss", "", "floats", "gradOutput", "out", "out"),
)
for _name, _aten, _more, _dtypes, _grad, _result, _back in _LOSSES:
    operator(
        _name,
        f"{_result} = {_aten}(self, target, reduction{_more})",
        f"{_dtypes} convertible",
        **{_result: "shape"},
    )
    operator(
        f"{_name}Backward",
        f"{_back} = {_aten}_backward(@as_loss({_grad}, reduction), self, target, reduction{_more})",
        f"{_dtypes} convertible",
    )
operator("MseLossOut", "out = mse_loss(self, target, reduction)", "floats convertible", out="shape")
operator("L1Loss", "out = l1_loss(self, target, reduction)", "floats i64 convertible", out="shape")
operator(
    "L1LossBackward",
    "gradInput = sgn(self - target) * @as_loss(gradOutput, reduction) / (@numel(self) if reduction == 1 else 1)",
    "floats convertible",
)
operator(
    "KlDiv",
    "all = kl_div(self, target, 0, log_target=logTarget);"
    "out = all if reduction == 0 else mean(all) if reduction == 1 else sum(all) if reduction == 2 else"
    " sum(all) / @size(self, 0)",
    "floats convertible",
    out="shape",
)
operator(
    "KlDivBackward",
    "out = -(exp(target) if logTarget else target) * @as_loss(gradOutput, reduction)"
    " / (@numel(self) if reduction == 1 else @size(self, 0) if reduction == 3 else 1)",
    "floats convertible",
)
operator(
    "NLLLoss2d",
    "out, totalWeightOut = nll_loss2d_forward(self, @cast(target, long), weight, reduction, ignoreIndex)",
    "floats",
    self="4",
    target="i64 u8 i32 3",
    weight="1",
    out="shape",
    totalWeightOut="shape",
)
operator(
    "NLLLoss2dBackward",
    "out = nll_loss2d_backward(@as_loss(gradOutput, reduction), self, @cast(target, long), weight, reduction,"
    " ignoreIndex, reshape(totalWeight, []))",
    "floats",
    self="4",
    target="i64 u8 i32 3",
    weight="1",
)
_REDUCTION = "(0 if reductionOptional == 'none' else 2 if reductionOptional == 'sum' else 1)"
operator(
    "CrossEntropyLoss",
    "logProbOut = log_softmax.int(@wide(input), 1);"
    f"lossOut = cross_entropy_loss(@wide(input), @cast(target, long), weightOptional, {_REDUCTION}, ignoreIndex,"
    " labelSmoothing)",
    "floats 1-2 convertible",
    input="2",
    target="index 1",
    weightOptional="f32 1 optional",
    lossOut="0-1 shape",
    zlossOut="0-2 optional",
    lseForZlossOut="0-2 optional",
    reductionOptional="optional",
)
operator(
    "CrossEntropyLossGrad",
    f"total = nll_loss_forward(@wide(logProb), @cast(target, long), weightOptional, {_REDUCTION}, ignoreIndex);"
    f"slope = nll_loss_backward(@as_loss(@wide(gradLoss), {_REDUCTION}), @wide(logProb), @cast(target, long),"
    f" weightOptional, {_REDUCTION}, ignoreIndex, total[1]);"
    "out = _log_softmax_backward_data(slope, @wide(logProb), 1, float)",
    "floats 0-2 convertible",
    logProb="2",
    target="i64 1",
    weightOptional="f32 1 optional",
    gradZlossOptional="absent",
    lseForZlossOptional="absent",
    reductionOptional="optional",
)
# Rows of the table of alphas are padded to 8.
operator(
    "CtcLoss",
    "parts = _ctc_loss(@wide(logProbs), targets, inputLengths, targetlengths, blank, zeroInfinity);"
    "length = 2 * @greatest(targetlengths) + 8; negLogLikelihoodOut = parts[0];"
    "logAlphaOut = constant_pad_nd(parts[1], [0, length - length % 8 - @size(parts[1], 2)], 0)",
    "reals convertible",
    targets="index",
)
operator(
    "CtcLossBackward",
    "out = _ctc_loss_backward(@wide(gradOut), @wide(logProbs), targets, inputLengths, targetLengths,"
    " @wide(negLogLikelihood), slice_copy.Tensor(@wide(logAlpha), 2, 0, 2 * @greatest(targetLengths) + 1),"
    " blank, zeroInfinity)",
    "reals convertible",
    targets="index",
)

operator(
    "GroupNormSwishGrad",
    "groups = @numel(x) / @size(x, 0) / @size(x, 1);"
    "mid = @channel(gamma, x) * @normalised(x, mean, rstd, numGroups) + @channel(beta, x);"
    "part = sigmoid(mid * swishScale);"
    "slope = @wide(dy) * (part + mid * swishScale * part * (1.0 - part));"
    "dxOut, dgammaOut, dbetaOut = native_group_norm_backward(slope, @wide(x), @wide(mean), @wide(rstd),"
    " @wide(gamma), @size(x, 0), @size(x, 1), groups, numGroups, [True, True, True])",
    "floats 2-8 convertible",
    gamma="1",
    beta="1",
    mean="2",
    rstd="2",
    dxOut="contiguous",
    dgammaOut="1 contiguous",
    dbetaOut="1 contiguous",
)
operator(
    "MaskedSoftmaxWithRelPosBias",
    "scores = x * scaleValue + relativePosBias;"
    "out = softmax.int(scores if attenMaskOptional == None else scores + attenMaskOptional, -1)",
    "floats 2-6",
    attenMaskOptional="optional",
)
operator(
    "MaxPool",
    "out = max_pool2d(self, kernelShape, strides, @pads(pads, autoPad), dilations, ceilMode)",
    "f32 f16 3-4",
    dilations="optional",
)
