"""Products of matrices, and linear algebra."""

from __future__ import annotations

from core.vendors.ascend.simulated.operators import operator

operator(
    "Mm", "out = mm(@cube(self, cubeMathType), @cube(mat2, cubeMathType))", "floats 2 convertible"
)
operator(
    "Mv",
    "out = mv(@cube(self, cubeMathType), @cube(vec, cubeMathType))",
    "floats 1 convertible",
    self="2",
)
operator("Dot", "out = dot(self, tensor)", "floats i8 i32 u8 1", out="0-1 shape")
operator(
    "BatchMatMul",
    "out = bmm(@cube(self, cubeMathType), @cube(mat2, cubeMathType))",
    "floats 3 convertible",
)
operator(
    "Matmul",
    "out = matmul(@cube(self, cubeMathType), @cube(mat2, cubeMathType))",
    "floats 1-6 convertible",
    out="0-6",
)
_SCALED = "beta=beta, alpha=alpha"
for _name, _aten, _parts, _rank, _first in (
    ("Addmm", "addmm", "@cube(mat1, cubeMathType), @cube(mat2, cubeMathType)", "2", "1-2"),
    ("Addbmm", "addbmm", "@cube(batch1, cubeMathType), @cube(batch2, cubeMathType)", "3", "1-2"),
    ("Baddbmm", "baddbmm", "@cube(batch1, cubeMathType), @cube(batch2, cubeMathType)", "3", "1-3"),
):
    _call = f"{_aten}({{0}}, {_parts}, {_SCALED})"
    _out = "3" if _name == "Baddbmm" else "2"
    operator(_name, f"out = {_call}", f"floats {_rank} convertible", self=_first, out=_out)
    operator(f"Inplace{_name}", "{0} = " + _call, f"floats {_rank} convertible", selfRef=_out)
operator(
    "Addmv",
    f"out = addmv(self, @cube(mat, cubeMathType), @cube(vec, cubeMathType), {_SCALED})",
    "floats f64 ints bool 1 convertible",
    mat="2",
)
_ADDR = (
    "addr({0}, vec1, vec2, beta=1 if betaOptional == None else betaOptional,"
    " alpha=1 if alphaOptional == None else alphaOptional)"
)
operator(
    "Addr",
    f"out = {_ADDR}",
    "numbers bool convertible",
    betaOptional="optional",
    alphaOptional="optional",
)
operator(
    "InplaceAddr",
    "{0} = " + _ADDR,
    "numbers bool convertible",
    betaOptional="optional",
    alphaOptional="optional",
)
operator("LinalgCross", "out = linalg_cross(self, other, dim=dim)", "numbers complex convertible")
operator("Inverse", "out = linalg_inv(self)", "f32 2-8")
operator("Logdet", "out = logdet(self)", "f32 f64 complex", self="2-8", out="0-6")
operator("Slogdet", "signOut, logOut = slogdet(self)", "f32 f64 complex", self="2-8")
operator(
    "LinalgQr",
    "Q, R = linalg_qr(self, 'reduced' if mode == 0 else 'complete' if mode == 1 else 'r')",
    "f32 f64 complex 2-8",
)
operator("Qr", "Q, R = linalg_qr(self, 'reduced' if some else 'complete')", "f32 f64 complex 2-8")
operator(
    "TriangularSolve",
    "xOut, mOut = triangular_solve(self, A, upper, transpose, unitriangular)",
    "f32 f64 complex 2-8",
)
operator("Pdist", "out = _pdist_forward(self, p)", "f32", self="2", out="1")
for _name, _aten in (("Tril", "tril"), ("Triu", "triu")):
    operator(_name, f"out = {_aten}(self, diagonal)", "any -c128 2-8")
    operator(f"Inplace{_name}", f"selfRef = {_aten}(selfRef, diagonal)", "any -c128 2-8")
operator("ConvTbc", "output = conv_tbc(self, weight, bias, pad)", "floats 3 convertible", bias="1")
