"""The Triton kernels of 8-bit linear layers on a machine without a GPU: their values, and their machine code.

`tests/gpu/test_quantized.py` runs them on a device.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flagos
from lightx2v_fl import operators
from lightx2v_fl.operators.quantized import ROOM

HERE = Path(__file__).parent
EIGHT_BITS = {"fp8e4nv": operators.fp8_linear, "i8": operators.int8_linear}


def test_values_by_the_interpreter() -> None:
    pytest.importorskip("triton", minversion="3.6")
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(HERE / "interpreted_kernels.py")]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"\d\d passed", run.stdout) and "skipped" not in run.stdout


def compiled(kernel: Any, types: dict[str, str], constants: dict[str, Any], **options: Any) -> Any:
    """`kernel` for an H200, with every pointer and number a multiple of 16."""
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    aligned = [n for n in types if types[n].startswith("*") or types[n] == "i32"]
    source = ASTSource(
        kernel,
        signature,
        {(names.index(name),): value for name, value in constants.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def spilled(kernel: Any, folder: Path) -> int:
    """Bytes a thread keeps in memory for want of registers."""
    from triton import knobs

    path = folder / "kernel.cubin"
    path.write_bytes(kernel.asm["cubin"])
    command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
    usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    stack, local = re.search(r"STACK:(\d+).* LOCAL:(\d+)", usage).groups()  # type: ignore[union-attr]
    return int(stack) + int(local)


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("triton", minversion="3.6")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    from lightx2v_fl.cuda import kernels

    return kernels


@pytest.mark.parametrize(
    ("n", "kind", "dtype"),
    [
        (1536, "bf16", "fp8e4nv"),
        (8960, "bf16", "i8"),
        (8960, "fp32", "fp8e4nv"),
        (32752, "bf16", "fp8e4nv"),
        (33008, "bf16", "fp8e4nv"),
    ],
)
def test_quantization_compiles_into_registers(
    kernels: Any, tmp_path: Path, n: int, kind: str, dtype: str
) -> None:
    types = {"x": f"*{kind}", "q": f"*{dtype}", "scales": "*fp32", "n": "i32", "stride": "i32"}
    types["inverse"] = "fp32"
    if n > kernels.WIDEST:
        constants = {"BLOCK": kernels.WIDE_BLOCK}
        kernel = compiled(kernels._quantize_wide_rows, types, constants, num_warps=16)
    else:
        head, tail, warps = kernels.parts(n)
        assert head + tail >= n > head + tail // 2
        constants = {"HEAD": head, "TAIL": tail}
        kernel = compiled(kernels._quantize_rows, types, constants, num_warps=warps)
    assert spilled(kernel, tmp_path) == 0
    text = kernel.asm["ptx"]
    assert ("cvt.rn.satfinite.e4m3x2" in text) == (dtype == "fp8e4nv")
    assert len(re.findall(r"div\.rn\.f32", text)) == 1  # a row's, not a number's


COMMON = {"scales": "*fp32", "weight_scales": "*fp32", "bias": "*bf16", "output": "*bf16"}


def test_what_follows_a_product_compiles_without_fused_rounding(
    kernels: Any, tmp_path: Path
) -> None:
    types = {**COMMON, "product": "*i32", "rows": "i32", "columns": "i32"}
    constants = {"ROWS": 8, "COLUMNS": 512}
    options = {"num_warps": 4}
    kernel = compiled(kernels._scale_product, types, constants, enable_fp_fusion=False, **options)
    assert spilled(kernel, tmp_path) == 0 and "FFMA" not in kernel.asm["sass"]
    fused = compiled(kernels._scale_product, types, constants, **options)
    assert "FFMA" in fused.asm["sass"]


@pytest.mark.parametrize(("tile", "even"), [("LARGE", True), ("SMALL", False)])
def test_the_product_compiles_for_tensor_cores(
    kernels: Any, tmp_path: Path, tile: str, even: bool
) -> None:
    rows, columns, inner, warps, stages = getattr(kernels, tile)
    numbers = dict.fromkeys(("rows", "columns", "inner", "stride"), "i32")
    kernel = compiled(
        kernels._int8_product,
        {**COMMON, **numbers, "x": "*i8", "weight": "*i8"},
        {"EVEN": even, "ROWS": rows, "COLUMNS": columns, "INNER": inner},
        num_warps=warps,
        num_stages=stages,
        enable_fp_fusion=False,
    )
    assert spilled(kernel, tmp_path) == 0 and "FFMA" not in kernel.asm["sass"]
    assert "wgmma.mma_async" in kernel.asm["ptx"] and ".s32.s8.s8" in kernel.asm["ptx"]
    assert kernel.metadata.shared <= 227 * 1024


@pytest.mark.anyplatform
def test_where_there_is_no_cuda_the_plan_says_so() -> None:
    if flagos._core.vendor_info()["torch_device_type"] == "cuda":
        pytest.skip("there is")
    for operator in EIGHT_BITS.values():
        name = operator.name.removeprefix("lightx2v::")
        text = str(flagos.explain(operator.name))
        assert f"triton.{name}" in text and "these Triton kernels are for cuda" in text
        with flagos.route({operator.name: f"impl:triton.{name}"}):
            with pytest.raises(flagos.UnsupportedError, match="are for cuda"):
                operator()


def test_what_triton_needs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightx2v_fl.operators import implementations

    monkeypatch.setenv("CC", "gcc")
    assert implementations.triton_missing("cuda", ROOM) is None
    vendor = flagos._core.vendor()
    assert f"vendor {vendor} serves" in (implementations.triton_missing("cpu", ROOM) or "")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    assert "C compiler" in (implementations.triton_missing("cuda", ROOM) or "")
    monkeypatch.setattr(implementations, "find_spec", lambda _: None)
    assert "not installed" in (implementations.triton_missing("cuda", ROOM) or "")
