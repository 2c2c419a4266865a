"""Runs of native kernels that add up in other orders: what they differ by is native's own noise."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Variation:
    """A run of native kernels that is as right as any other."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    flags: tuple[tuple[str, bool], ...] = ()
    rounding: int | None = None


def variations(vendor: str, roundings: int) -> list[Variation]:
    """Those of a vendor's libraries, and `roundings` runs that round otherwise, which every vendor has."""
    own = {"host": _of_the_host, "cuda": _of_cuda, "metax": _of_cuda}.get(vendor, list)()
    seeds = range(1, roundings + 1)
    return [*own, *(Variation(f"other roundings, seed {seed}", rounding=seed) for seed in seeds)]


def _of_the_host() -> list[Variation]:
    """Sums are split among threads, and among the lanes of vectors: other numbers of both, and generic code."""
    number = os.environ.get("OMP_NUM_THREADS", "")
    count = int(number) if number.isdigit() else (os.cpu_count() or 1)
    threads = str(1 if count > 1 else 3)
    return [
        Variation(
            f"{threads} thread" + ("s" if threads != "1" else ""),
            {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "MKL_DYNAMIC": "FALSE"},
        ),
        Variation(
            "older instructions",
            {
                "ATEN_CPU_CAPABILITY": "default",
                "MKL_CBWR": "COMPATIBLE",
                "ONEDNN_MAX_CPU_ISA": "SSE41",
            },
        ),
    ]


def _of_cuda() -> list[Variation]:
    """Splits of products depend on cuBLAS' workspace, 16-bit sums on the precision of their parts."""
    return [
        Variation("no workspace for split products", {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}),
        Variation(
            "whole precision in 16-bit sums",
            flags=(
                ("cuda.matmul.allow_bf16_reduced_precision_reduction", False),
                ("cuda.matmul.allow_fp16_reduced_precision_reduction", False),
            ),
        ),
        Variation(
            "cublasLt, and attention of its parts",
            {"TORCH_BLAS_PREFER_CUBLASLT": "1"},
            (
                ("cuda.enable_flash_sdp", False),
                ("cuda.enable_mem_efficient_sdp", False),
                ("cuda.enable_cudnn_sdp", False),
                ("cudnn.deterministic", True),
            ),
        ),
    ]
