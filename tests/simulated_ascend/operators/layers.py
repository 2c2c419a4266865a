"""Layers of networks: activations, normalisation, convolution, pooling, losses, attention."""

from __future__ import annotations

from tests.simulated_ascend.operators import operator

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

BATCH_STATISTICS = {
    name: "1 optional convertible"
    for name in ("weight", "bias", "runningMean", "runningVar", "saveMean", "saveInvstd")
}
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
    "dxOut = @cast((@wide(dy) * @wide(gamma) - scaled * mean.dim(@wide(dy) * @wide(gamma) * scaled, @last(gamma), True))"
    " * reshape(rstd, @ones_after(x, gamma)), @dtype(x));"
    "dgammaOut = @sum_to(@wide(dy) * scaled, gamma)",
    "floats 1-8",
    rstd="f32",
    dgammaOut="f32",
)

operator(
    "Convolution",
    "output = convolution(input, weight, bias, stride, padding, dilation, transposed, outputPadding, groups)",
    "floats 3-5 image",
    bias="1-5 optional -image",
    output="convertible",
)
operator(
    "ConvolutionBackward",
    "gradInput, gradWeight, gradBias = convolution_backward(gradOutput, input, weight, biasSizes, stride, padding,"
    " dilation, transposed, outputPadding, groups, outputMask)",
    "floats 3-5 image",
    biasSizes="optional",
    gradInput="optional",
    gradWeight="optional",
    gradBias="1 optional -image",
)

SIZES = "kernelSize, stride, padding, dilation, ceilMode"
operator(
    "MaxPool2dWithIndices",
    f"out, indices = max_pool2d_with_indices(self, {SIZES})",
    "floats 3-4",
    indices="i32 convertible",
)
operator(
    "MaxPool2dWithIndicesBackward",
    f"gradInput = max_pool2d_with_indices_backward(gradOutput, self, {SIZES}, @cast(indices, long))",
    "f32 3-4",
    indices="i32",
)
operator(
    "MaxPool2dWithMask",
    f"found = max_pool2d_with_indices(self, {SIZES});"
    "out = found[0]; indices = @pool_bits(self, kernelSize, stride, padding, found[0], found[1])",
    "floats 3-4",
    indices="i8 contiguous",
)
operator(
    "MaxPool2dWithMaskBackward",
    f"gradInput = max_pool2d_with_indices_backward(gradOutput, self, {SIZES},"
    " @pool_indices(gradOutput, self, indices, kernelSize, stride, padding))",
    "floats 4 image",
    indices="i8 4",
)
operator("AdaptiveAvgPool2d", "out = _adaptive_avg_pool2d(self, outputSize)", "floats 3-4 image")
operator(
    "AdaptiveAvgPool2dBackward", "out = _adaptive_avg_pool2d_backward(gradOutput, self)", "floats 3-4"
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

QUANTIZED = "deqScale1 quantScale1 deqScale2 quantScale2 quantOffset2".split()
DEQUANTIZED = (
    "dequantScale1 quantScale1 dequantScale2 quantScale2 quantOffset2 antiquantScale antiquantOffset blocktable"
    " kvPaddingSize"
).split()
_OPTIONALS = (
    "deqScale1 quantScale1 deqScale2 quantScale2 quantOffset2 antiquantScale antiquantOffset blockTable"
    " queryPaddingSize kvPaddingSize keyAntiquantScale keyAntiquantOffset valueAntiquantScale valueAntiquantOffset"
    " keySharedPrefix valueSharedPrefix actualSharedPrefixLen queryRope keyRope keyRopeAntiquantScale"
).split()
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
    **{name: "absent" for name in QUANTIZED},
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
    **{name: "absent" for name in DEQUANTIZED},
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
    "queryRef = queryRef * cos + @rotated(queryRef) * sin; keyRef = keyRef * cos + @rotated(keyRef) * sin",
    "floats 4",
)
