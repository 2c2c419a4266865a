"""Operators that move elements: joining, padding, indexing."""

from __future__ import annotations

from tests.simulated_ascend.operators import operator

operator("Cat", "out = cat(tensors, dim)", "numbers bool c64 convertible")
operator("Stack", "out = stack(tensors, dim)", "any convertible", tensors="0-7")
operator("ConstantPadNd", "out = constant_pad_nd(self, pad, value)", "any")
operator("Embedding", "out = embedding(weight, indices)", "all", weight="2", indices="index")
operator(
    "EmbeddingDenseBackward",
    "out = embedding_dense_backward(grad, @cast(indices, long), numWeights, paddingIdx, scaleGradByFreq)",
    "floats",
    grad="2-8",
    indices="reals ints bool",
    out="2",
)
operator(
    "Index",
    "out = index.Tensor(self, indices)",
    "numbers bool",
    indices="i32 i64 bool optional",
)
operator(
    "IndexPutImpl",
    "selfRef = index_put(selfRef, indices, values, accumulate)",
    "numbers bool",
    indices="i32 i64 bool optional",
)
operator(
    "Scatter",
    "out = scatter.src(self, dim, @cast(index, long), src) if reduce == 0 else"
    " scatter_reduce.two(self, dim, @cast(index, long), src, 'sum' if reduce == 1 else 'prod')",
    "all",
    index="index",
)
