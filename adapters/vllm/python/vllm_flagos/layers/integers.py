"""Weights of 4 and 8 bits of integers: AWQ, GPTQ, and compressed-tensors with W4A16, W8A16 and W8A8.

vLLM's tables of kernels are empty for a platform that it does not know. Linear layers are Marlin's and CUTLASS'
products where vLLM's wheel has them, as on its own platform, else ``vllm::group_quantized_mm``, and
``_C::cutlass_scaled_mm`` by its reference; experts are ``vllm::quantized_experts``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.kernels import linear
from vllm.model_executor.kernels.linear.mixed_precision import MPLinearKernel, machete, marlin
from vllm.model_executor.kernels.linear.scaled_mm.cutlass import CutlassInt8ScaledMMLinearKernel
from vllm.model_executor.layers.fused_moe import FusedMoEMethodBase
from vllm.model_executor.layers.quantization import auto_awq, auto_gptq, moe_wna16
from vllm.model_executor.layers.quantization.compressed_tensors import (
    compressed_tensors,
    compressed_tensors_moe,
)
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe as choice,
)
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w8a8_int8 as of_8_bits,
)
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_wna16 as of_few_bits,
)
from vllm.platforms import PlatformEnum
from vllm.scalar_type import scalar_types

from flagos_serving.declaration import device_type
from flagos_serving.references import quantized as reference
from vllm_flagos import operators, platform_view, releases
from vllm_flagos.kernels import wheel

assert operators and compressed_tensors_moe  # the first defines torch.ops.vllm_flagos

_TYPES = (
    *(scalar_types.uint4, scalar_types.uint4b8),
    *(scalar_types.uint8, scalar_types.uint8b128),
)
_BY_WHEEL = wheel.missing("_C") is None  # torch.compile cannot look into the question
_CONFIGURATIONS: tuple[Any, ...] = (
    auto_awq.AutoAWQConfig,
    auto_gptq.AutoGPTQConfig,
    compressed_tensors.CompressedTensorsConfig,
)
_ORDERED = releases.installed().rows_in_any_order
_DTYPES = [torch.float16, torch.bfloat16, torch.float32]  # kernels of CUDA do not take the last


def accept() -> None:
    """Lets configurations of vLLM take what the references take on the host. Idempotent."""
    if device_type() != "cpu":
        return
    for configuration in _CONFIGURATIONS:
        configuration.get_supported_act_dtypes = classmethod(lambda cls: _DTYPES)
    # What the experts' configuration compares with a capability that the host has not.
    auto_awq.AutoAWQConfig.get_min_capability = classmethod(lambda cls: -1)


def register() -> None:
    """Registers vLLM's kernels for flagos, the preferred first, and the methods that have none of vLLM's."""
    accept()
    kernels: list[Any] = [FlagosGroupQuantizedKernel]
    if _BY_WHEEL:
        for module in (marlin, machete):
            platform_view.install(module, platform_view.WithKernels)
        kernels = [machete.MacheteLinearKernel, marlin.MarlinLinearKernel, *kernels]
    for kernel in kernels:
        linear.register_linear_kernel(kernel, PlatformEnum.OOT, "mp")
    linear.register_linear_kernel(FlagosInt8Kernel, PlatformEnum.OOT, "int8")

    # They ask whether Marlin takes a weight before they ask for any kernel.
    vars(auto_gptq)["verify_marlin_supported"] = _nothing
    vars(auto_awq)["AutoAWQLinearMethod"] = FlagosAWQ
    vars(auto_gptq)["check_moe_marlin_supports_layer"] = _no
    vars(auto_awq)["check_moe_marlin_supports_layer"] = _no
    vars(choice)["check_moe_marlin_supports_layer"] = _no  # vLLM 0.33 does not ask here
    vars(moe_wna16)["MoeWNA16Method"] = FlagosExpertsOfFewBits
    vars(of_few_bits)["CompressedTensorsWNA16MoEMethod"] = FlagosCompressedExpertsOfFewBits
    vars(of_8_bits)["CompressedTensorsW8A8Int8MoEMethod"] = FlagosExpertsOf8Bits


def _nothing(*args: Any, **kwargs: Any) -> None:
    """In the place of a question that the kernels answer, too."""


def _no(*args: Any, **kwargs: Any) -> bool:
    return False


class FlagosGroupQuantizedKernel(MPLinearKernel):
    """Weights of 4 or 8 bits, by ``vllm::group_quantized_mm``."""

    @classmethod
    def get_min_capability(cls) -> int:
        """None is needed."""
        return -1

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        """Whether the operator takes such a weight, and why not."""
        if c.weight_type not in _TYPES:
            return False, f"flagos has no weights of {c.weight_type}"
        if not c.zero_points and not c.weight_type.has_bias():
            return False, f"weights of {c.weight_type} have zeros, and these have none"
        if not c.act_type.is_floating_point:
            return False, f"activations are floating-point numbers, not {c.act_type}"
        given, made = c.partition_weight_shape
        if made % (32 // c.weight_type.size_bits):
            return False, f"{made} outputs do not fill integers of 32 bits"
        if c.group_size != -1 and not (_ORDERED and c.has_g_idx) and given % c.group_size:
            return False, f"{given} inputs are no multiple of a group of {c.group_size}"
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Packs the numbers of a row together, and puts groups in rows."""
        bits = self.config.weight_type.size_bits
        numbers = getattr(layer, self.w_q_name)
        of_columns = numbers.data if numbers.output_dim == 0 else numbers.data.t()
        by_row = reference.unpacked(of_columns, bits)[
            :, : self.config.partition_weight_shape[0]
        ].t()
        self._put(layer, self.w_q_name, reference.packed(by_row, bits))
        scales = getattr(layer, self.w_s_name)
        self._put(layer, self.w_s_name, scales.data.t() if scales.output_dim == 0 else scales.data)
        if self.config.zero_points:
            zeros = getattr(layer, self.w_zp_name)
            self._put(
                layer, self.w_zp_name, zeros.data.t() if zeros.output_dim == 0 else zeros.data
            )
        elif self.w_zp_name is not None:
            setattr(layer, self.w_zp_name, None)
        if _ORDERED and not self.config.has_g_idx and self.w_gidx_name is not None:
            setattr(layer, self.w_gidx_name, None)

    def apply_weights(
        self, layer: torch.nn.Module, x: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """X · weight + bias."""
        numbers, scales, zeros, *groups = self._get_weight_params(layer)
        kind = self.config.weight_type
        made: Tensor = torch.ops.vllm_flagos.group_quantized_mm(
            x.reshape(-1, x.shape[-1]),
            numbers,
            scales,
            zeros,
            groups[0] if _ORDERED else None,
            kind.size_bits,
            kind.bias if kind.has_bias() else 0,
        )
        made = made.view(*x.shape[:-1], -1)
        return made if bias is None else made + bias

    @staticmethod
    def _put(layer: torch.nn.Module, name: str, data: Tensor) -> None:
        setattr(layer, name, torch.nn.Parameter(data.contiguous(), requires_grad=False))


class FlagosInt8Kernel(CutlassInt8ScaledMMLinearKernel):
    """Weights and activations in int8, over ``_C::*_scaled_int8_quant`` and ``_C::cutlass_scaled_mm``."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        """True: the operators have references."""
        return True, None

    def apply_weights(
        self, layer: torch.nn.Module, x: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """X · weight + bias."""
        if _BY_WHEEL:
            made: Tensor = super().apply_weights(layer, x, bias)
            return made
        weight, weight_scales, scale, zero, sums = self._get_layer_params(layer)
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        numbers, result = (
            torch.empty_like(rows, dtype=torch.int8),
            x.new_empty(rows.shape[0], weight.shape[1]),
        )
        steps, zeros = scale, zero
        if scale is not None:
            torch.ops._C.static_scaled_int8_quant(numbers, rows, scale, zero)
        else:
            steps = rows.new_empty((rows.shape[0], 1), dtype=torch.float32)
            zeros = None if sums is None else torch.empty_like(steps, dtype=torch.int32)
            torch.ops._C.dynamic_scaled_int8_quant(numbers, rows, steps, zeros)
        if sums is None:
            torch.ops._C.cutlass_scaled_mm(result, numbers, weight, steps, weight_scales, bias)
        else:
            each = None if scale is not None else zeros  # one zero for all is in the sums
            torch.ops._C.cutlass_scaled_mm_azp(
                result, numbers, weight, steps, weight_scales, sums, each, bias
            )
        return result.view(*x.shape[:-1], -1)


class FlagosAWQ(auto_awq.AutoAWQMarlinLinearMethod):
    """AWQ's weights by the kernels of the table above, of which Marlin is one."""

    def __init__(self, quant_config: Any) -> None:
        self.quant_config = quant_config
        self.quant_type = quant_config.quant_type
        self.input_dtype = None


class _Experts(FusedMoEMethodBase):
    """Experts by ``vllm::quantized_experts``."""

    def __init__(self, moe: Any) -> None:
        """Leaves vLLM's constructors out, which look for a kernel of its platforms."""
        FusedMoEMethodBase.__init__(self, moe)
        if moe.has_bias or moe.swiglu_limit:
            raise ValueError(
                "the model's experts have biases or a limit of their gates, which experts with weights of integers "
                "do not have on flagos: take weights without quantization"
            )

    def process_weights_after_loading(self, layer: Any) -> None:
        """Nothing: the operator takes weights as they are loaded."""

    @property
    def is_monolithic(self) -> bool:
        """False: vLLM's router chooses the experts."""
        return False

    def maybe_make_prepare_finalize(self, routing_tables: Any = None) -> None:
        """None: each rank computes its experts of all tokens, and vLLM adds the ranks' results."""
        return None

    def get_fused_moe_quant_config(self, layer: Any) -> None:
        """None: it is for vLLM's own kernels."""
        return None

    def _parts(self, layer: Any) -> tuple[Any, ...]:
        """The weights, their scales and zeros, and their form."""
        raise NotImplementedError

    def apply(
        self,
        layer: Any,
        x: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        shared_experts: Any,
        shared_experts_input: Tensor | None,
    ) -> Tensor:
        """[tokens, hidden]: the sum of the chosen experts of each token."""
        w13, w2, scales13, scales2, zeros13, zeros2, form = self._parts(layer)
        result: Tensor = operators.quantized_experts(
            x,
            w13,
            w2,
            scales13,
            scales2,
            zeros13,
            zeros2,
            topk_weights,
            topk_ids,
            layer.activation.value,
            form,
            weights_on_input=layer.apply_router_weight_on_input,
            all_experts=layer.global_num_experts,
            expert_map=layer.expert_map,
        )
        return result


class FlagosExpertsOfFewBits(_Experts, moe_wna16.MoeWNA16Method):
    """AWQ's and GPTQ's."""

    def __init__(self, quant_config: Any, moe: Any) -> None:
        super().__init__(moe)
        self.quant_config = quant_config

    def _parts(self, layer: Any) -> tuple[Any, ...]:
        zeros = self.quant_config.has_zp
        return (
            *(layer.w13_qweight, layer.w2_qweight, layer.w13_scales, layer.w2_scales),
            *((layer.w13_qzeros, layer.w2_qzeros) if zeros else (None, None)),
            f"w{self.quant_config.weight_bits}a16",
        )


class FlagosCompressedExpertsOfFewBits(_Experts, of_few_bits.CompressedTensorsWNA16MoEMethod):
    """Compressed-tensors' of W4A16 and W8A16."""

    def __init__(
        self, weight_quant: Any, input_quant: Any, moe: Any, layer_name: str | None = None
    ) -> None:
        super().__init__(moe)
        self.weight_quant, self.input_quant = weight_quant, input_quant
        self.num_bits, self.group_size = weight_quant.num_bits, weight_quant.group_size
        self.packed_factor = 32 // self.num_bits
        self.strategy, self.symmetric = weight_quant.strategy, weight_quant.symmetric

    def process_weights_after_loading(self, layer: Any) -> None:
        """Puts the numbers of a row together, as bytes: vLLM 0.26 loads them turned over, and 0.33 as they are."""
        for name in (
            "w13_weight_packed",
            "w2_weight_packed",
            "w13_weight_scale",
            "w2_weight_scale",
        ):
            loaded = getattr(layer, name)
            rows = loaded.transpose(1, 2).contiguous() if loaded.is_transposed else loaded.data
            by_row = rows.view(torch.uint8) if name.endswith("packed") else rows
            setattr(layer, name, torch.nn.Parameter(by_row, requires_grad=False))

    def _parts(self, layer: Any) -> tuple[Any, ...]:
        return (
            *(layer.w13_weight_packed, layer.w2_weight_packed),
            *(layer.w13_weight_scale, layer.w2_weight_scale),
            *(None, None, f"w{self.num_bits}a16"),
        )


# By this name vLLM knows that weights are to be turned over as they are loaded.
FlagosCompressedExpertsOfFewBits.__name__ = "CompressedTensorsWNA16MoEMethod"


class FlagosExpertsOf8Bits(_Experts, of_8_bits.CompressedTensorsW8A8Int8MoEMethod):
    """Compressed-tensors' of W8A8, with activations rounded token by token."""

    def __init__(
        self, weight_quant: Any, input_quant: Any, moe: Any, layer_name: str | None = None
    ) -> None:
        super().__init__(moe)
        self.weight_quant, self.input_quant = weight_quant, input_quant
        self.static_input_scales = False

    def _parts(self, layer: Any) -> tuple[Any, ...]:
        return (
            *(layer.w13_weight, layer.w2_weight, layer.w13_weight_scale, layer.w2_weight_scale),
            *(None, None, "w8a8"),
        )
