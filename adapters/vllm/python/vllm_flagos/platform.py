"""The platform of vLLM's plugin interface."""

from __future__ import annotations

import logging
import os
from itertools import combinations
from typing import Any

import torch
from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

import flagos
from flagos import _core
from flagos_serving.declaration import capability, device_type
from vllm_flagos import kernels, media, releases, rules
from vllm_flagos.vllm import captures_graphs, triton_missing

logger = logging.getLogger(__name__)
_ATTENTION = "vllm_flagos.attention.FlagosAttention"
_LATENT = "vllm_flagos.latent.FlagosLatentAttention"
_flagos: Any = torch.flagos  # type: ignore[attr-defined]
_ON_CUDA = device_type() == "cuda"

kernels.declare()  # before modules of vLLM look for its operators at their import
register_backend(AttentionBackendEnum.CUSTOM, _ATTENTION)


class FlagosPlatform(Platform):
    """vLLM on flagos devices. What it lacks it inherits: attributes unknown to vLLM are those of ``torch.flagos``."""

    _enum = PlatformEnum.OOT
    device_name = "flagos"  # a torch device's name, because vLLM makes devices of it
    device_type = "flagos"
    dispatch_key = "PrivateUse1"
    dist_backend = "flagos"
    _described: Any = None  # the model's own configuration, by which requests are judged
    if _ON_CUDA:  # no other vendor's variable is known to take numbers alone
        device_control_env_var = "CUDA_VISIBLE_DEVICES"
    simple_compile_backend = "inductor" if _ON_CUDA else "eager"

    @classmethod
    def get_compile_backend(cls) -> str:
        """Inductor for models, on the host too, where vLLM's small functions run as they are."""
        return "inductor"

    @classmethod
    def import_kernels(cls) -> None:
        """Nothing is left to do: `vllm_flagos.kernels` registered them."""

    @classmethod
    def import_ir_kernels(cls) -> None:
        """Registers the provider of vLLM's IR operators."""
        from vllm_flagos.layers import norm

        norm.register()

    @classmethod
    def get_default_ir_op_priority(cls, vllm_config: Any) -> Any:
        """Operators of the plan where torch's code runs as it is; decomposed ones where Inductor fuses them.

        With all of `custom_ops` Inductor fuses none.
        """
        from vllm.config.compilation import CompilationMode
        from vllm.config.kernel import IrOpPriorityConfig

        from vllm_flagos.layers import norm

        compiled = vllm_config.compilation_config
        fused = compiled.backend == "inductor" and compiled.mode != CompilationMode.NONE
        if fused and "all" not in compiled.custom_ops:
            return IrOpPriorityConfig.with_default(["native"])
        served = {name: [norm.PROVIDER, "native"] for name in norm.OPERATORS}
        return IrOpPriorityConfig.with_default(["native"], **served)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """The product's name."""
        return str(_flagos.get_device_name(device_id))

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        """The device's UUID; vendor and number where it has none."""
        properties = _flagos.get_device_properties(device_id)
        return str(getattr(properties, "uuid", f"{properties.vendor}:{device_id}"))

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """In bytes."""
        return int(_flagos.get_device_properties(device_id).total_memory)

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability | None:
        """CUDA's compute capability; None on a device of another kind."""
        found = capability()
        return None if found is None else DeviceCapability(*found)

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        """The number of multiprocessors."""
        return int(_flagos.get_device_properties(device_id).multi_processor_count)

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """Makes a device current."""
        _flagos.set_device(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Seeds the generators of all devices."""
        _flagos.manual_seed_all(seed)

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        """In bytes, after unused memory was given back."""
        _flagos.empty_cache()
        _flagos.reset_peak_memory_stats(device)
        return float(_flagos.max_memory_allocated(device))

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """Raises ValueError for a dtype that the device cannot compute in."""
        if dtype == torch.bfloat16 and not _flagos.is_bf16_supported():
            raise ValueError(f"{cls.get_device_name()} does not compute in bfloat16: --dtype half")

    @classmethod
    def supports_fp8(cls) -> bool:
        """Whether ``torch._scaled_mm`` has a kernel: on CUDA from capability 8.9, and on the host."""
        return device_type() == "cpu" or cls.has_device_capability(89)

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        """True: views of host memory need it."""
        return True

    def is_sleep_mode_available(self) -> bool:
        """True, by `vllm_flagos.sleeping`."""
        return True

    @classmethod
    def opaque_attention_op(cls) -> bool:
        """True: graphs are split at attention."""
        return True

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        """True."""
        return True

    @classmethod
    def support_static_graph_mode(cls) -> bool:
        """Whether the device captures graphs."""
        return captures_graphs()

    @classmethod
    def get_static_graph_wrapper_cls(cls) -> str:
        """vLLM's own, which captures by ``torch.flagos.graph`` (`vllm_flagos.torch_view`)."""
        return "vllm.compilation.cuda_graph.CUDAGraphWrapper"

    @classmethod
    def use_custom_allreduce(cls) -> bool:
        """Whether vLLM's wheel has its all-reduce over the memory of peers: on CUDA."""
        return kernels.wheel.missing("_C_custom_ar") is None

    @classmethod
    def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
        """Whether NVLink joins each two of the devices, by their numbers in NVML; False where NVML cannot tell."""
        from vllm.third_party import pynvml

        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in physical_device_ids]
            joined = [
                pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
                for one, other in combinations(handles, 2)
            ]
        except pynvml.NVMLError as error:
            logger.warning("NVML does not say whether NVLink joins the devices: %s", error)
            return False
        return all(status == pynvml.NVML_P2P_STATUS_OK for status in joined)

    @classmethod
    def use_custom_op_collectives(cls) -> bool:
        """True: torch.compile does not look into collectives."""
        return True

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        """Collectives over the process group of flagos."""
        return "vllm_flagos.communicator.FlagosCommunicator"

    @classmethod
    def get_punica_wrapper(cls) -> str:
        """vLLM's Triton kernels where Triton reaches the device, else operators of the plan."""
        if triton_missing() is None:
            return "vllm.lora.punica_wrapper.punica_gpu.PunicaWrapperGPU"
        return "vllm_flagos.layers.punica.FlagosPunica"

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        """The backend over ``vllm::paged_attention``. Raises ValueError for what it does not compute."""
        wrong = rules.attention(selected_backend, attn_selector_config)
        if wrong is not None:
            raise ValueError(str(wrong))
        return _LATENT if attn_selector_config.use_mla else _ATTENTION

    @classmethod
    def get_supported_vit_attn_backends(cls) -> list[Any]:
        """Triton's, which stands for the kernels of ``vllm::expanded_attention``, and torch's."""
        return [AttentionBackendEnum.TRITON_ATTN, AttentionBackendEnum.TORCH_SDPA]

    @classmethod
    def get_vit_attn_backend(cls, head_size: int, dtype: torch.dtype, backend: Any = None) -> Any:
        """For attention of encoders torch's where no kernel is there, or none is for the heads or their type."""
        if backend is not None:
            return super().get_vit_attn_backend(head_size, dtype, backend)
        taken = dtype.itemsize == 2 and head_size % 8 == 0 and head_size <= 256
        by_kernels = triton_missing() is None and taken
        kinds = AttentionBackendEnum
        return kinds.TRITON_ATTN if by_kernels else kinds.TORCH_SDPA

    @classmethod
    def check_runner_kv_caches_multi_layer(cls) -> None:
        """Nothing: several layers of one number, as an encoder-decoder has them, are served. vLLM 0.33 asks for it."""

    @classmethod
    def insert_blocks_to_device(
        cls,
        src_cache: torch.Tensor,
        dst_cache: torch.Tensor,
        src_block_indices: torch.Tensor,
        dst_block_indices: torch.Tensor,
    ) -> None:
        """Copies blocks of the cache from the host to the device."""
        dst_cache[dst_block_indices] = src_cache[src_block_indices].to(dst_cache.device)

    @classmethod
    def swap_out_blocks_to_host(
        cls,
        src_cache: torch.Tensor,
        dst_cache: torch.Tensor,
        src_block_indices: torch.Tensor,
        dst_block_indices: torch.Tensor,
    ) -> None:
        """Copies blocks of the cache from the device to the host."""
        dst_cache[dst_block_indices] = src_cache[src_block_indices].cpu()

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: Any) -> None:
        """Refuses graphs and fusions that were asked for and are not there, before vLLM asks for them by default.

        Raises ValueError that lists them.
        """
        rules.require(vllm_config, before_defaults=True)
        transfer = getattr(vllm_config, "kv_transfer_config", None)
        if transfer is not None and transfer.kv_connector == rules.CONNECTOR:
            # For graphs of whole steps vLLM asks the connector before `check_and_update_config`.
            transfer.kv_connector_module_path = "vllm_flagos.transfer"
        compiled = vllm_config.compilation_config
        for name in rules.fusions(vllm_config):
            setattr(compiled.pass_config, name, False)
        # vLLM has the quantization of activations as an operator where weights have a scale for each block. What
        # Inductor fuses before it has another last bit than the operators, and rounds to another number of 8 bits.
        chosen = compiled.custom_ops
        if "+quant_fp8" in chosen and not {"all", "none"} & set(chosen):
            chosen.append("all")

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        """Lets configurations with weights of integers take what the references take."""
        if not _ON_CUDA:
            from vllm_flagos.layers import integers

            integers.accept()

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        """Raises ValueError for media that the model's encoder does not take."""
        if cls._described is not None:
            media.require(cls._described, processed_inputs)

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Refuses what flagos does not serve, and chooses the worker.

        Raises ValueError that lists everything in the configuration that will not work.
        """
        rules.require(vllm_config)
        cls._described = getattr(vllm_config.model_config, "hf_config", None)
        # A forked child of a process that uses flagos cannot use it.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        parallel = vllm_config.parallel_config
        # Replicas choose experts for the tokens of all, which no mask of their own tokens is for.
        if releases.installed().masks_padding and parallel.data_parallel_size > 1:
            os.environ["VLLM_MOE_SKIP_PADDING"] = "0"
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "vllm_flagos.worker.FlagosWorker"
        _compile(vllm_config.compilation_config)
        more = getattr(vllm_config, "additional_config", None)
        if isinstance(more, dict):  # a part of the key under which vLLM keeps compiled models
            vendor = f"{_core.vendor_info()['name']} {flagos.__version__}"
            vllm_config.additional_config = {**more, "flagos": vendor}
            if not _ON_CUDA:  # one machine's memory is that of all devices
                ranks = rules.ranks_of_this_memory(vllm_config)
                vllm_config.additional_config[rules.RANKS] = ranks


def _compile(config: Any) -> None:
    from vllm.config import CUDAGraphMode

    if (
        config.compile_sizes is None
    ):  # vLLM leaves None to platforms, and compiles for no shape then
        config.compile_sizes = []
    if not captures_graphs():
        config.cudagraph_mode = CUDAGraphMode.NONE
    if not _ON_CUDA:
        # Inductor cannot measure kernels of the CPU, of which these options make it choose among.
        config.inductor_compile_config.update(combo_kernels=False, benchmark_combo_kernel=False)
