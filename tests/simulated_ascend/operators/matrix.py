"""Products of matrices."""

from __future__ import annotations

from tests.simulated_ascend.operators import operator

operator("Mm", "out = mm(self, mat2)", "floats 2 convertible")
operator("BatchMatMul", "out = bmm(self, mat2)", "floats 3 convertible")
operator("Matmul", "out = matmul(self, mat2)", "floats 1-6 convertible", out="floats 0-6 convertible")
operator(
    "Addmm",
    "out = addmm(self, mat1, mat2, beta=beta, alpha=alpha)",
    "floats 2 convertible",
    self="1-2",
)
operator(
    "Addmv",
    "out = addmv(self, mat, vec, beta=beta, alpha=alpha)",
    "floats f64 ints bool 1 convertible",
    mat="2",
)
operator(
    "Addr",
    "out = addr(self, vec1, vec2, beta=1 if betaOptional == None else betaOptional,"
    " alpha=1 if alphaOptional == None else alphaOptional)",
    "numbers bool convertible",
    betaOptional="optional",
    alphaOptional="optional",
)
