"""Reductions, scans, sorting."""

from __future__ import annotations

from tests.simulated_ascend.operators import operator

DIMS = "dim if @length(dim) > 0 else @dims(self)"

operator(
    "ReduceSum",
    "out = sum.dim_IntList(self, dims, keepDims, dtype=dtype)",
    "all",
)
operator("Mean", "out = mean.dim(self, dim, keepDim, dtype=dtype)", "numbers complex")
operator("Max", "out = max(self)", "numbers bool")
operator(
    "MaxDim",
    "out, indices = max.dim(self, dim, keepdim)",
    "floats i64 bool",
    indices="index convertible",
)
operator("ArgMax", "out = argmax(self, dim, keepdim)", "numbers", out="index convertible")
operator("All", "out = all.dims(self, dim, keepdim)", "numbers bool", out="bool u8 convertible")
operator("Any", "out = any.dims(self, dim, keepdim)", "numbers bool", out="bool")
operator("Cumsum", "out = cumsum(self, dim, dtype=dtype)", "numbers complex")
operator(
    "LinalgVectorNorm",
    "out = linalg_vector_norm(self, ord, dims, keepDims, dtype=dtype)",
    "floats",
    ord="f32",
    dims="optional",
)
operator(
    "Topk",
    "valuesOut, indicesOut = topk(self, k, dim, largest, sorted)",
    "numbers",
    indicesOut="i64",
)
operator(
    "Sort",
    "valuesOut, indicesOut = sort.stable(self, stable=stable, dim=dim, descending=descending)",
    "floats ints bool 1-8",
    indicesOut="i64",
)
operator(
    "NonzeroV2",
    "out = transpose_copy.int(nonzero(@late(self)), 0, 1)",
    "numbers bool unsigned",
    out="i64 contiguous dynamic",
)
operator(
    "MaskedSelect",
    "out = masked_select(@late(self), @cast(mask, bool))",
    "numbers bool",
    mask="u8 bool",
    out="contiguous dynamic 1",
)
operator(
    "UniqueConsecutive",
    "valueOut, inverseOut, countsOut ="
    " unique_consecutive(@late(self), returnInverse, returnCounts, None if dim == 1000 else dim)",
    "any",
    valueOut="contiguous dynamic",
    inverseOut="index contiguous dynamic convertible",
    countsOut="index contiguous dynamic convertible",
)
