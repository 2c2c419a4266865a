"""Operators that move elements: joining, padding, indexing."""

from __future__ import annotations

from core.vendors.ascend.simulated.operators import operator

operator("Cat", "out = cat(tensors, dim)", "numbers bool c64 convertible 1-8")
operator("Stack", "out = stack(tensors, dim)", "any convertible", tensors="0-7")
operator("SplitTensor", "out = split_copy.Tensor(self, splitSections, dim)", "any 1-8")
operator("SplitWithSize", "out = split_with_sizes_copy(self, splitSize, dim)", "any 1-8")
operator("ConstantPadNd", "out = constant_pad_nd(self, pad, value)", "any")
for _kind, _dtypes in (("Reflection", "numbers bool complex"), ("Replication", "any")):
    for _rank in (1, 2, 3):
        _aten = f"{_kind.lower()}_pad{_rank}d"
        _ranks = f"{_rank + 1}-{_rank + 2}"
        operator(f"{_kind}Pad{_rank}d", f"out = {_aten}(self, padding)", f"{_dtypes} {_ranks}")
        operator(
            f"{_kind}Pad{_rank}dBackward",
            f"gradInput = {_aten}_backward(gradOutput, self, padding)",
            f"reals complex {_ranks}",
        )
operator("Expand", "out = expand_copy(self, size)", "f16 bf16 f32 u8 i8 i32 i64 bool")
operator("Permute", "out = permute_copy(self, dims)", "any")
operator("Repeat", "out = repeat(self, repeats)", "any")
operator("Flip", "out = flip(self, dims)", "all 1-8")
operator("Roll", "out = roll(x, shifts, dims)", "floats i8 u8 i16 i32 i64 u32 bool")
operator("ChannelShuffle", "out = channel_shuffle(self, groups)", "all -bf16 3-7")
operator(
    "Slice", "out = slice_copy.Tensor(self, dim, start, end, step)", "floats i32 i64 i8 u8 bool 1-8"
)
operator(
    "SliceV2", "out = @slices(self, starts, ends, axes, steps)", "floats i32 i64 i8 u8 bool 1-8"
)
_REPEATED = "u8 i8 i16 i32 i64 bool floats"
operator(
    "RepeatInterleave",
    "out = repeat_interleave.self_Tensor(self, @late(repeats))",
    _REPEATED,
    repeats="index 0-1",
    out="1",
)
operator(
    "RepeatInterleaveInt", "out = repeat_interleave.self_int(self, repeats)", _REPEATED, out="1"
)
operator(
    "RepeatInterleaveWithDim",
    "out = repeat_interleave.self_Tensor(self, @late(repeats), dim)",
    _REPEATED,
    repeats="index 0-1",
)
operator(
    "RepeatInterleaveIntWithDim", "out = repeat_interleave.self_int(self, repeats, dim)", _REPEATED
)
operator(
    "RepeatInterleaveTensor",
    "out = repeat_interleave.Tensor(@late(repeats))",
    "index 1 convertible",
)

operator("Embedding", "out = embedding(weight, indices)", "all", weight="2", indices="index")
operator(
    "EmbeddingDenseBackward",
    "out = embedding_dense_backward(grad, @cast(indices, long), numWeights, paddingIdx, scaleGradByFreq)",
    "floats",
    grad="2-8",
    indices="f32 f16 f64 ints bool",
    out="2",
)
operator(
    "EmbeddingRenorm",
    "selfRef = embedding_renorm_(clone(selfRef), indices, maxNorm, normType)",
    "floats 2",
    indices="index 0-8",
)
operator(
    "EmbeddingBag",
    "output, offset2bag, bagSize, maxIndices = @embedding_bag(weight, indices, offsets, scaleGradByFreq, mode,"
    " perSampleWeights, includeLastOffset, paddingIdx)",
    "floats 2",
    indices="index 0-1",
    offsets="index 0-1",
    perSampleWeights="1 optional",
    offset2bag="index 0-1 convertible",
    bagSize="index 0-1 convertible",
    maxIndices="index 1-2 convertible",
)
operator(
    "Index",
    "out = index.Tensor(self, @indices(indices))",
    "numbers bool 1-8",
    indices="i32 i64 bool",
)
operator(
    "IndexPutImpl",
    "selfRef = index_put(selfRef, @indices(indices), values, accumulate)",
    "numbers bool 1-8",
    indices="i32 i64 bool",
)
operator("IndexSelect", "out = index_select(self, dim, index)", "any", index="index 0-1")
operator("GatherV2", "out = @gather_all(self, dim, index)", "all", index="index")
operator(
    "Gather", "out = gather(self, dim, @cast(index, long))", "numbers bool unsigned", index="index"
)
operator(
    "GatherNd", "out = @gather_nd(self, indices)", "floats i64 i32 i8 u8 bool 1-8", indices="index"
)
operator("Take", "out = take(self, @cast(index, long))", "all u16 u32 u64", index="index")
operator(
    "IndexAdd",
    "out = index_add(self, dim, index, source, alpha=alpha)",
    "numbers bool",
    index="index 0-1",
)
operator(
    "IndexCopy",
    "outRef = index_copy(selfRef, dim, @cast(index, long), source)",
    "all",
    index="index 0-1",
)
operator(
    "InplaceIndexCopy",
    "selfRef = index_copy(selfRef, dim, @cast(index, long), source)",
    "all",
    index="index 0-1",
)
# The indices are copied to the device, so that such an executor cannot be kept.
operator(
    "IndexFillTensor",
    "out = index_fill.int_Scalar(self, dim, @as_tensor(index), value)",
    "f16 bf16 f32 i32 i64 bool",
)
operator(
    "InplaceIndexFillTensor",
    "selfRef = index_fill.int_Scalar(selfRef, dim, @as_tensor(index), value)",
    "f16 bf16 f32 i32 i64 bool",
)
_REDUCE = "ok = @require(reduce >= 0 and reduce <= 2, 'reduce must be 0, 1 or 2');"
_SCATTER = (
    "scatter.src({0}, dim, @cast(index, long), src) if reduce == 0 else"
    " scatter_reduce.two({0}, dim, @cast(index, long), src, 'sum' if reduce == 1 else 'prod')"
)
operator("Scatter", f"{_REDUCE} out = {_SCATTER}", "all", index="index")
operator("InplaceScatter", f"{_REDUCE} selfRef = {_SCATTER}", "all", index="index")
_SCATTER = (
    "scatter.value({0}, dim, @cast(index, long), value) if reduce == 0 else"
    " scatter.value_reduce({0}, dim, @cast(index, long), value, reduce='add' if reduce == 1 else 'multiply')"
)
operator("ScatterValue", f"{_REDUCE} out = {_SCATTER}", "all", index="index")
operator("InplaceScatterValue", f"{_REDUCE} selfRef = {_SCATTER}", "all", index="index")
operator(
    "ScatterAdd",
    "out = scatter_add(self, dim, @cast(index, long), src)",
    "all",
    index="index",
    src="contiguous",
    out="contiguous",
)
operator(
    "ScatterNd", "out = @scatter_nd(data, indices, updates)", "floats bool 1-8", indices="index"
)
operator(
    "ScatterNdUpdate",
    "varRef = @scatter_nd(varRef, indices, updates)",
    "floats i64 bool i8 1-8",
    indices="index",
)
operator(
    "InplacePut",
    "selfRef = put(selfRef, @cast(index, long), source, accumulate)",
    "all",
    index="index",
)
operator(
    "InplaceMaskedScatter",
    "selfRef = masked_scatter(selfRef, @cast(mask, bool), source)",
    "numbers bool",
    mask="bool u8",
)
operator(
    "Im2col",
    "out = im2col(self, kernelSize, dilation, padding, stride)",
    "floats",
    self="3-4",
    out="2-3",
)
operator(
    "Im2colBackward",
    "out = col2im(gradOutput, inputSize, kernelSize, dilation, padding, stride)",
    "floats",
    gradOutput="2-3",
    out="3-4",
)
operator("SignBitsPack", "out = @pack_signs(self, size)", "u8 2", self="f16 f32 1")
operator(
    "SignBitsUnpack",
    "out = @unpack_signs(self, size, dtype)",
    "f16 f32 2",
    self="u8 1",
    dtype="f16 f32",
)
operator(
    "InplaceScatterUpdate",
    "data = @scatter_update(data, indices, updates, axis)",
    "floats i8 u8 i32 2-8",
    indices="index 0-2",
)
# Into a private format, of which nothing shows here.
operator("TransMatmulWeight", "mmWeightRef = clone(mmWeightRef)", "f16 bf16 i8 2-6")
operator(
    "TransConvolutionWeight",
    "weightOut = @cast(weightIn, @dtype(weightOut))",
    "f16 4",
    weightIn="f32 f16",
)
