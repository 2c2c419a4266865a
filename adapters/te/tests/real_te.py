"""A program: TransformerEngine's own Python, from TE_PATH, over te-fl and a double of its native module.

Where its modules ask for CUDA they are told of the host. Every result is compared with plain torch in
float64; prints a line for each.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

warnings.simplefilter("ignore")  # of a native library that is missing
import transformer_engine.common as common  # noqa: E402

import te_fl  # noqa: E402

common._get_shared_object_file = lambda library: Path(__file__).with_name("native_stock.py")
if "NVTE_PLUGIN" not in inspect.getsource(common.load_framework_extension):
    # Before 2.20.2 TransformerEngine asks no plugin: a line of TransformerEngine-FL puts its module there.
    _load = common.load_framework_extension

    def load_framework_extension(framework: str) -> None:
        _load(framework)
        sys.modules["transformer_engine_torch_nv"] = sys.modules["transformer_engine_torch"]
        te_fl.load_plugins()

    common.load_framework_extension = load_framework_extension
warnings.simplefilter("error", RuntimeWarning)  # "plugin loading failed"
torch.cuda.is_available = lambda: True
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.get_device_properties = lambda *_: SimpleNamespace(major=9, minor=0)
torch.cuda.is_current_stream_capturing = lambda: False
torch.Tensor.cuda = lambda self, *_: self


class Host(TorchFunctionMode):
    """``cuda`` is the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == 0 or "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    error = (got.detach().double() - expected.detach().double()).abs().max().item()
    scale = max(1.0, expected.abs().max().item())
    assert got.shape == expected.shape and error <= tolerance * scale, error


def both(module: Any, reference: Any, x: torch.Tensor, tolerance: float = 1e-5) -> None:
    """Forward and backward of a module, and the same in float64."""
    x = x.clone().requires_grad_()
    wide = x.detach().double().requires_grad_()
    y, z = module(x), reference(wide)
    close(y, z, tolerance)
    dy = torch.randn_like(z)
    y.backward(dy.to(y.dtype))
    z.backward(dy)
    assert x.grad is not None and wide.grad is not None
    close(x.grad, wide.grad, tolerance)


CASES = {}


def case(function: Any) -> Any:
    CASES[function.__name__] = function
    return function


@case
def layernorm(te: Any) -> None:
    m = te.LayerNorm(64, device="cpu")
    both(m, lambda x: F.layer_norm(x, (64,), eps=m.eps), torch.randn(4, 8, 64))


@case
def rmsnorm(te: Any) -> None:
    m = te.RMSNorm(64, device="cpu")
    both(m, lambda x: F.rms_norm(x, (64,), eps=m.eps), torch.randn(4, 8, 64))


@case
def linear(te: Any) -> None:
    m = te.ops.Linear(64, 32, device="cpu", dtype=torch.float32)
    w, b = (p.double() for p in (m.weight, m.bias))
    both(m, lambda x: F.linear(x, w, b), torch.randn(4, 64))


@case
def clamped_swiglu(te: Any) -> None:
    m = te.ops.ClampedSwiGLU(limit=1.0, alpha=1.5, glu_linear_offset=0.25)

    def reference(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        a, b = a.clamp(max=1.0), b.clamp(-1.0, 1.0)
        return a * torch.sigmoid(1.5 * a) * (b + 0.25)

    both(m, reference, torch.randn(4, 64))


@case
def gelu(te: Any) -> None:
    both(te.ops.GELU(), lambda x: F.gelu(x, approximate="tanh"), torch.randn(4, 64))


@case
def rope(te: Any) -> None:
    from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb

    angles = torch.randn(16, 1, 1, 32)
    turn = lambda x, fused: apply_rotary_pos_emb(  # noqa: E731
        x, angles.to(x.dtype) if not fused else angles, tensor_format="sbhd", fused=fused
    )
    both(lambda x: turn(x, True), lambda x: turn(x, False), torch.randn(16, 2, 4, 32))


@case
def fused_attention(te: Any) -> None:
    from transformer_engine.pytorch.cpp_extensions import fused_attn

    q, k, v, do = (torch.randn(2, 6, 4, 16) for _ in range(4))
    cu = torch.tensor([0, 6, 12], dtype=torch.int32)
    how = {"qkv_layout": "bshd_bshd_bshd", "o_format": "bshd", "attn_mask_type": "causal"}
    backends = fused_attn.FusedAttnBackend  # a dict until 2.18
    name = "F16_arbitrary_seqlen"
    backend = backends[name] if isinstance(backends, dict) else getattr(backends, name)
    given = (6, 6, cu, cu, q, k, v)
    out, aux, *_ = fused_attn.fused_attn_fwd(True, *given, torch.float32, backend, **how)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    right = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in leaves), is_causal=True)
    close(out, right.transpose(1, 2))
    how |= {"do_format": "bshd", "dqkv_layout": "bshd_bshd_bshd"}
    got = fused_attn.fused_attn_bwd(*given, out, do, torch.float32, aux, backend, **how)
    for one, other in zip(
        got[:3], torch.autograd.grad(right, leaves, do.transpose(1, 2).double()), strict=True
    ):
        close(one, other)


@case
def adam(te: Any) -> None:
    from transformer_engine.pytorch.optimizers import FusedAdam

    start = [torch.randn(10), torch.randn(3, 5)]
    mine, theirs = (
        [torch.nn.Parameter(t.clone().to(d)) for t in start] for d in (torch.float32, torch.float64)
    )
    optimizers = (
        FusedAdam(mine, lr=1e-2, weight_decay=0.1),
        torch.optim.AdamW(theirs, lr=1e-2, weight_decay=0.1),
    )
    for step in range(3):
        for p, q in zip(mine, theirs, strict=True):
            p.grad = torch.full_like(p, 0.5 + step) * p.detach()
            q.grad = p.grad.double()
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(mine, theirs, strict=True):
        close(p, q)


@case
def sgd(te: Any) -> None:
    from transformer_engine.pytorch.optimizers import FusedSGD

    p = torch.nn.Parameter(torch.ones(10))
    p.grad = torch.full((10,), 2.0)
    FusedSGD([p], lr=0.25, momentum=0.9).step()
    close(p, torch.full((10,), 0.5))


@case
def fp8(te: Any) -> None:
    x = torch.randn(16, 32)
    delayed = te.Float8Quantizer(torch.full((1,), 16.0), torch.zeros(1), te.DType.kFloat8E4M3)
    current = te.Float8CurrentScalingQuantizer(te.DType.kFloat8E4M3, device="cpu")
    for quantizer in (delayed, current):
        y = quantizer(x)
        assert type(y).__name__ == "Float8Tensor"
        scale = 448 / x.abs().max() if quantizer is current else torch.tensor(16.0)
        right = (x * scale).to(torch.float8_e4m3fn).float() / scale
        close(y.dequantize(), right, 1e-6)
        assert torch.equal(y._transpose, y._data.t())
    close(delayed.amax[0], x.abs().max())


def main() -> None:
    with Host():
        import transformer_engine.pytorch as te
        import transformer_engine_torch as tex

        from te_fl.core import get_manager

        assert type(tex.rmsnorm_fwd).__name__ == "Operator"
        torch.manual_seed(0)
        for name in sys.argv[1:] or CASES:
            CASES[name](te)
            print("agrees", name, flush=True)
        assert not get_manager().fallbacks, get_manager().fallbacks


main()
