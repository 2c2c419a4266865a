"""Reductions, scans, sorting, searching."""

from __future__ import annotations

from core.vendors.ascend.simulated.operators import operator

# A full reduction has one element, in a tensor of no dimension or of one.
operator("ReduceSum", "out = sum.dim_IntList(self, dims, keepDims, dtype=dtype)", "all")
operator("Mean", "out = mean.dim(self, dim, keepDim, dtype=dtype)", "numbers complex")
operator(
    "MeanV2",
    "out = clone(self) if noopWithEmptyAxes and @length(dim) == 0 else mean.dim(self, dim, keepDim)",
    "reals complex",
)
operator("Sum", "out = @sum_of(tensors)", "f32 f16 i8 i32 u8")
operator("MaxN", "out = @most_of(tensors)", "floats i8 i32 i64")
for _name, _aten in (("Max", "max"), ("Min", "min")):
    operator(_name, f"out = {_aten}(self)", "numbers bool", out="shape")
    operator(
        f"{_name}Dim",
        f"out, indices = {_aten}.dim(self, dim, keepdim)",
        "floats i64 bool",
        indices="index convertible" if _name == "Max" else "i32 convertible",
    )
    operator(f"A{_name.lower()}", f"out = a{_aten}(self, dim, keepDim)", "numbers bool")
    operator(
        f"Arg{_name}", f"out = arg{_aten}(self, dim, keepdim)", "numbers", out="index convertible"
    )
    operator(
        f"Cum{_name.lower()}",
        f"valuesOut, indicesOut = cum{_aten}(self, dim)",
        "numbers bool",
        indicesOut="index convertible",
    )
operator(
    "MaxV2",
    "out = clone(self) if noopWithEmptyDims and @length(dims) == 0 else amax(self, dims, keepDims)",
    "numbers bool",
)
operator(
    "Aminmax",
    "minOut = amin(self, dim, keepDim); maxOut = amax(self, dim, keepDim)",
    "numbers bool",
)
operator("AminmaxAll", "minOut = amin(self, []); maxOut = amax(self, [])", "numbers bool 0-8")
operator(
    "AminmaxDim",
    "minOut = amin(self, dim, keepDim); maxOut = amax(self, dim, keepDim)",
    "numbers bool",
)
operator("All", "out = all.dims(self, dim, keepdim)", "numbers bool", out="bool u8 convertible")
operator("Any", "out = any.dims(self, dim, keepdim)", "numbers bool", out="bool")
operator("Cumsum", "out = cumsum(self, dim, dtype=dtype)", "numbers complex")
operator("CumsumV2", "out = @cumsum(self, dim, exclusive, reverse)", "numbers complex")
operator("Cumprod", "out = cumprod(input, dim, dtype=dtype)", "numbers", dim="i32 i64")
operator("InplaceCumprod", "input = cumprod(input, dim)", "numbers convertible", dim="i32 i64")
operator("Prod", "out = prod(self, dtype=dtype)", "all", out="shape")
operator("ProdDim", "out = prod.dim_int(self, dim, keepDim, dtype=dtype)", "all")
operator("LogSumExp", "out = logsumexp(self, dim, keepDim)", "floats ints bool", out="floats")
operator(
    "LinalgVectorNorm",
    "out = linalg_vector_norm(self, ord, dims, keepDims, dtype=dtype)",
    "floats",
    dims="optional",
)
operator(
    "Norm", "out = norm.ScalarOpt_dim(@wide(self), pScalar, dim, keepdim)", "floats convertible"
)
operator(
    "Var",
    "out = var.correction(self, dim, correction=1 if unbiased else 0, keepdim=keepdim)",
    "floats",
    dim="optional",
)
operator(
    "VarCorrection",
    "out = var.correction(self, dim, correction=correction, keepdim=keepdim)",
    "floats",
    dim="optional",
)
operator(
    "VarMean",
    "varOut, meanOut = var_mean.correction(self, dim, correction=correction, keepdim=keepdim)",
    "floats",
    dim="optional",
)
operator(
    "Std",
    "out = std.correction(self, dim, correction=correction, keepdim=keepdim)",
    "floats",
    dim="optional",
)
operator(
    "StdMeanCorrection",
    "stdOut, meanOut = std_mean.correction(self, dim, correction=correction, keepdim=keepdim)",
    "floats",
    dim="optional",
)
for _name, _aten in (("Median", "median"), ("NanMedian", "nanmedian")):
    _out = "valuesOut" if _name == "Median" else "out"
    operator(_name, f"{_out} = {_aten}(self)", "floats ints", **{_out: "shape"})
    operator(
        f"{_name}Dim",
        f"valuesOut, indicesOut = {_aten}.dim(self, dim, keepDim)",
        "floats ints",
        indicesOut="i64",
    )
operator(
    "Kthvalue",
    "valuesOut, indicesOut = kthvalue(self, k, dim, keepdim)",
    "floats ints 1-8",
    indicesOut="i64",
)
operator(
    "Topk",
    "ok = @require(sorted, 'sorted must be true'); valuesOut, indicesOut = topk(self, k, dim, largest, sorted)",
    "numbers 1-8",
    indicesOut="i64",
)
operator(
    "Sort",
    "valuesOut, indicesOut = sort.stable(self, stable=stable, dim=dim, descending=descending)",
    "floats ints bool 1-8",
    indicesOut="i64",
)
operator("Argsort", "out = argsort(self, dim, descending)", "floats ints", out="i64")
operator(
    "Histc", "out = @cast(histc(@cast(self, float), bins, min, max), @dtype(out))", "f16 f32 ints"
)
operator(
    "SearchSorted",
    "out = searchsorted.Tensor(sortedSequence, self, out_int32=outInt32, right=right,"
    " sorter=sorter)",
    "f64 f32 f16 ints",
    sorter="i64 optional",
    out="index",
)
operator(
    "SearchSorteds",
    "out = searchsorted.Scalar(sortedSequence, self, out_int32=outInt32, right=right,"
    " sorter=sorter)",
    "f64 f32 f16 ints 1",
    sorter="i64 optional",
    out="index 0-1 shape",
)
operator(
    "Trace", "out = trace(self)", "f32 f64 ints complex 2", out="f32 f64 complex i64 0-8 shape"
)

# The results have room for as much as there may be; how much there is, the work tells.
operator("Nonzero", "out = nonzero(@late(self))", "numbers bool", out="i64 contiguous dynamic 2")
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
_UNIQUE = "i64 contiguous dynamic optional"
_EITHER = "index contiguous dynamic convertible optional"
operator(
    "UniqueConsecutive",
    "valueOut, inverseOut, countsOut ="
    " unique_consecutive(@late(self), returnInverse, returnCounts, None if dim == 1000 else dim)",
    "numbers bool unsigned",
    valueOut="contiguous dynamic",
    inverseOut=_EITHER,
    countsOut=_EITHER,
)
operator(
    "Unique2",
    "valueOut, inverseOut, countsOut = _unique2(@late(self), sorted, returnInverse, returnCounts)",
    "numbers bool unsigned",
    valueOut="contiguous dynamic",
    inverseOut=_UNIQUE,
    countsOut=_UNIQUE,
)
operator(
    "Unique",
    "parts = _unique2(@late(self), sorted, returnInverse, False);"
    " valueOut = parts[0]; inverseOut = parts[1]",
    "numbers bool unsigned",
    valueOut="contiguous dynamic",
    inverseOut=_UNIQUE,
)
operator(
    "UniqueDim",
    "valueOut, inverseOut, countsOut = unique_dim(@late(self), dim, sorted, returnInverse, True)",
    "numbers bool unsigned 1-8",
    valueOut="contiguous dynamic",
    inverseOut=_UNIQUE.removesuffix(" optional"),
    countsOut=_UNIQUE.removesuffix(" optional"),
)
