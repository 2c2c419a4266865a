"""Lists of tensors, and optimizers."""

from __future__ import annotations

from tests.simulated_ascend.operators import operator

operator("ForeachMulScalarV2", "out = _foreach_mul.Scalar(x, scalar)", "floats i32 contiguous")
operator("ForeachAddScalarV2", "out = _foreach_add.Scalar(x, scalar)", "floats i32 contiguous")
operator("ForeachAddListV2", "out = _foreach_add.List(x1, x2, alpha=alpha)", "floats i32 contiguous")
operator("ForeachLerpScalar", "out = _foreach_lerp.Scalar(x1, x2, weight)", "floats contiguous")
operator(
    "ForeachAddcmulScalarV2",
    "out = _foreach_addcmul.Scalar(x1, x2, x3, scalar)",
    "floats i32 contiguous",
)
operator("ForeachSqrt", "out = _foreach_sqrt(x)", "floats contiguous")
operator(
    "ForeachDivScalarList", "out = _foreach_div.ScalarList(x, scalars)", "floats contiguous"
)
operator(
    "ForeachAddcdivScalarList",
    "out = _foreach_addcdiv.ScalarList(x1, x2, x3, @numbers(scalars))",
    "floats contiguous",
)
operator("ForeachNorm", "out = _foreach_norm.Scalar(x, scalar)", "floats contiguous", out="shape")

operator(
    "ApplyAdamWV2",
    "varRef, mRef, vRef, maxGradNormOptionalRef = @adamw(varRef, mRef, vRef, maxGradNormOptionalRef,"
    " grad, step, lr, beta1, beta2, weightDecay, eps, amsgrad, maximize)",
    "floats 1-8",
    maxGradNormOptionalRef="optional",
    step="i64 f32 0-8 contiguous",
)
operator(
    "FusedAdamw",
    "paramsRef, expAvgsRef, expAvgSqsRef, maxExpAvgSqsRef = @adamw_lists(paramsRef, grads, expAvgsRef,"
    " expAvgSqsRef, maxExpAvgSqsRef, stateSteps, gradScaleOptional, foundInfOptional, lr, beta1, beta2,"
    " weightDecay, eps, amsgrad, maximize)",
    "floats 1-8",
    maxExpAvgSqsRef="optional",
    stateSteps="i64 f32 0-8 contiguous",
    gradScaleOptional="f32 0-8 optional contiguous",
    foundInfOptional="f32 0-8 optional contiguous",
)
