def _per_token_group_quant_8bit_raw(
    x,
    group_size,
    eps=1e-10,
    dtype=None,
    column_major_scales=False,
    scale_tma_aligned=False,
    scale_ue8m0=False,
):
    raise RuntimeError("Triton has no driver")


per_token_group_quant_fp8 = _per_token_group_quant_8bit_raw


def static_quant_fp8(x, x_s, repeat_scale=False):
    raise RuntimeError("Triton has no driver")


def w8a8_block_fp8_matmul_triton(A, B, As, Bs, block_size, output_dtype=None):
    raise RuntimeError("Triton has no driver")
