"""Completions of LightX2V modules without plugin hooks, applied when LightX2V imports them.

Some functions of LightX2V check names against literal lists, call a fixed kernel, or read the configuration
before plugins are called. Each completion changes one function of one module, and only for this package's
names and for flagos tensors.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import torch

from lightx2v_fl import tables
from lightx2v_fl.device import FLAGOS

SCHEMES = (tables.LINEAR, tables.FP8_LINEAR, tables.INT8_LINEAR)
_CHECK = "FLAGOS_LIGHTX2V_CHECK"
_MARK = "_flagos_completed"


def install() -> None:
    """Complete the modules that LightX2V has imported, and others at their import. Idempotent."""
    from flagos.on_import import when_imported

    when_imported("lightx2v.models.networks.base_model", accept_quantization_schemes)
    when_imported("lightx2v.common.ops.moe.fused_moe", accept_moe_backend)
    when_imported("lightx2v.common.ops.norm.rms_norm_weight", serve_norms_named_in_the_tree)
    when_imported("lightx2v.utils.set_config", check_configurations)


def accept_quantization_schemes() -> None:
    """Accept this package's schemes as ``dit_quant_scheme``: `_check_dit_quantized` has a literal list."""
    model = sys.modules["lightx2v.models.networks.base_model"].BaseTransformerModel
    original = model._check_dit_quantized
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def check(self: Any) -> Any:
        if self.config.get("dit_quant_scheme", "Default") not in SCHEMES:
            return original(self)
        return None

    setattr(check, _MARK, True)
    model._check_dit_quantized = check


def accept_moe_backend() -> None:
    """Accept this package's backend as ``moe_backend``: LightX2V's factory has a literal list."""
    module: Any = sys.modules["lightx2v.common.ops.moe.fused_moe"]
    original = module.create_local_fused_moe
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def create(
        backend: str, fc1_weight: Any, fc2_weight: Any, activation: str, *args: Any, **kw: Any
    ) -> Any:
        if backend != tables.MOE:
            return original(backend, fc1_weight, fc2_weight, activation, *args, **kw)
        return _create(fc1_weight, fc2_weight, activation, *args, **kw)

    setattr(create, _MARK, True)
    module.create_local_fused_moe = create


def _create(
    fc1_weight: Any,
    fc2_weight: Any,
    activation: str,
    fc1_bias: Any = None,
    fc2_bias: Any = None,
    tune_max_num_tokens: int = 8192,
    fc1_gate_weight: Any = None,
) -> Any:
    from lightx2v_fl.modules.moe import FlagosFusedMoE

    fc1, fc2 = _packed(fc1_weight), _packed(fc2_weight)
    if fc1_gate_weight is not None:  # separate halves of SwiGLU: LightX2V packs the gate last
        fc1 = torch.cat((fc1, _packed(fc1_gate_weight)), dim=1)
    biases = (None if bias is None else _packed(bias) for bias in (fc1_bias, fc2_bias))
    return FlagosFusedMoE(fc1, fc2, activation, *biases)


def _packed(weights: Any) -> torch.Tensor:
    """One tensor with the experts along its first dimension."""
    if isinstance(weights, torch.Tensor):
        return weights.contiguous()
    return torch.stack(tuple(weights))


def serve_norms_named_in_the_tree() -> None:
    """Serve the norm ``sgl-kernel`` for flagos tensors.

    An offloaded text encoder and some models always use that norm. Its kernel takes only CUDA tensors.
    """
    norm: Any = sys.modules["lightx2v.common.ops.norm.rms_norm_weight"].RMSWeightSgl
    original = norm.apply
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def apply(self: Any, input_tensor: torch.Tensor) -> Any:
        if input_tensor.device.type != FLAGOS:
            return original(self, input_tensor)
        from lightx2v_fl import operators

        return operators.rms_norm(input_tensor, self._get_actual_weight(), self.eps)

    setattr(apply, _MARK, True)
    norm.apply = apply


def check_configurations() -> None:
    """Check configurations by the rules of ``flagos lightx2v check`` before a model is loaded."""
    module: Any = sys.modules["lightx2v.utils.set_config"]
    original = module.set_config
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def set_config(args: Any) -> Any:
        config = original(args)
        if os.environ.get(_CHECK, "1").lower() not in ("0", "false", "off", "no"):
            from lightx2v_fl.rules import require_valid

            require_valid(dict(config), config.get("config_json"))
        return config

    setattr(set_config, _MARK, True)
    module.set_config = set_config
