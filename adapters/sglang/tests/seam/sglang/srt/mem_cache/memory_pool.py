import torch

assert torch


def _set_kv_buffer_impl(
    k,
    v,
    k_cache,
    v_cache,
    indices,
    row_dim,
    store_dtype,
    device_module,
    size_limit,
    alt_stream=None,
    v_row_dim=None,
):
    raise RuntimeError("sgl_kernel is not there")
