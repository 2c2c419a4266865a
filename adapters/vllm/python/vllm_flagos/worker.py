"""vLLM's worker on flagos: its own class for GPUs, with what that leaves to platforms it knows."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.platforms.interface import set_assigned_physical_gpu_ids
from vllm.utils.mem_utils import MemorySnapshot
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.utils import report_usage_stats
from vllm.v1.worker.gpu_worker import Worker, init_worker_distributed_environment
from vllm.v1.worker.utils import request_memory
from vllm.v1.worker.workspace import init_workspace_manager

import flagos
from flagos_serving.declaration import device_type
from torch_fl import distributed
from vllm_flagos import completions, generators, layers, rules, sleeping, updates


class FlagosWorker(Worker):
    """Serves one rank on one flagos device, with vLLM's own model runners."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        model = vllm_config.model_config
        with_states = model.is_hybrid or model.is_attention_free
        completions.install(with_states=with_states, latent=model.use_mla)
        layers.register()
        if with_states:
            layers.register_with_states()
        if model.quantization in rules.INTEGERS:
            layers.register_integers()
        if vllm_config.lora_config is not None and model.is_moe:
            layers.register_adapters_of_experts()
        super().__init__(vllm_config, *args, **kwargs)
        self._sleep_mode_backend: sleeping.Sleep | None = None

    def init_device(self) -> None:
        """Takes the rank's device, joins the process group and makes the model runner.

        Raises RuntimeError if there are fewer devices than ranks on this machine.
        """
        self.local_rank += self._first_rank_of_this_replica()
        assigned = self.parallel_config.assigned_physical_gpu_ids
        if assigned is not None:  # --device-ids
            set_assigned_physical_gpu_ids(assigned)
        index = current_platform.logical_device_id_to_visible_device_id(self.local_rank)
        present = torch.accelerator.device_count()
        if index >= present:
            raise RuntimeError(
                f"rank {self.local_rank} of this machine needs flagos device {index}, and there are {present}: lower "
                "--tensor-parallel-size (or the other parallel sizes, or --device-ids), or on the host vendor set "
                "FLAGOS_HOST_DEVICES"
            )
        self.device = torch.device("flagos", index)
        torch.accelerator.set_device_index(index)
        current_platform.check_if_supports_dtype(self.model_config.dtype)
        init_worker_distributed_environment(
            self.vllm_config,
            self.rank,
            self.distributed_init_method,
            self.local_rank,
            current_platform.dist_backend,
        )
        set_random_seed(self.model_config.seed)
        gc.collect()
        torch.accelerator.empty_cache()
        self.init_snapshot = MemorySnapshot(device=self.device)
        self.requested_memory = request_memory(self.init_snapshot, self.cache_config)
        if device_type() == "cpu":
            self._share_of_the_machine()
        self._init_workspace_and_model_runner()

    if not hasattr(Worker, "_init_workspace_and_model_runner"):  # vLLM 0.26

        def _init_workspace_and_model_runner(self) -> None:
            init_workspace_manager(self.device, 1)
            self.model_runner = self._runner()(self.vllm_config, self.device)
            if self.rank == 0:
                report_usage_stats(self.vllm_config)

    def execute_model(self, scheduler_output: Any) -> Any:
        """As vLLM's; what requests with a seed draw in this step can be taken back."""
        if scheduler_output.total_num_scheduled_tokens:  # none where requests only end
            self._awake(*sleeping.TAGS)
        if not self.use_v2_model_runner:
            generators.begin_step(self.model_runner)
        return super().execute_model(scheduler_output)

    def flagos_counters(self) -> dict[str, dict[str, int]]:
        """`flagos.counters` of this rank's process: ``llm.collective_rpc("flagos_counters")`` has those of all."""
        return flagos.counters()

    def flagos_gathered(self) -> list[distributed.Gathered]:
        """The reductions that this rank's library of collectives lacks, by `torch_fl.distributed.gathered`."""
        return distributed.gathered()

    def flagos_memory(self) -> dict[str, int]:
        """Bytes of this rank's device: what its allocator has reserved and given out, and what sleep gives back."""
        return {
            "reserved": int(torch.accelerator.memory_reserved(self.device)),
            "allocated": int(torch.accelerator.memory_allocated(self.device)),
            **self.sleep_mode_backend.sizes(),
        }

    def _share_of_the_machine(self) -> None:
        """The host vendor counts what flagos has alone; other ranks and programs have a part of the same memory."""
        sharing = rules.ranks_of_this_memory(self.vllm_config)
        self.requested_memory //= sharing
        if self.cache_config.kv_cache_memory_bytes is not None:
            return
        alone = sharing == self.parallel_config.local_world_size
        # Others were asked before replicas without experts in common started, by a rule.
        if alone or self.model_config.is_moe:
            problem = rules.memory_of_the_machine(self.vllm_config)
            if problem is not None:
                raise ValueError(str(problem))

    def _first_rank_of_this_replica(self) -> int:
        """The first rank on this machine of this worker's data-parallel replica."""
        parallel = self.parallel_config
        if (
            parallel.distributed_executor_backend in ("ray", "external_launcher")
            or parallel.data_parallel_backend == "ray"
            or parallel.nnodes_within_dp != 1
            or parallel.assigned_physical_gpu_ids is not None
        ):
            return 0
        replica = parallel.data_parallel_rank_local
        if replica is None:
            replica = parallel.data_parallel_index
        ranks = parallel.pipeline_parallel_size * parallel.tensor_parallel_size
        return int(replica * ranks)

    def _runner(self) -> Any:
        if self.use_v2_model_runner:
            from vllm.v1.worker.gpu.model_runner import GPUModelRunner as Second

            return Second
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner as First

        return First

    @property
    def sleep_mode_backend(self) -> sleeping.Sleep:
        """What vLLM has fall asleep and wake up."""
        if self._sleep_mode_backend is None:
            runner = self.model_runner
            draft = getattr(getattr(runner, "drafter", None), "model", None)
            models = [
                one for one in (runner.get_model(), draft) if isinstance(one, torch.nn.Module)
            ]
            self._sleep_mode_backend = sleeping.Sleep(models, runner.kv_caches)
        return self._sleep_mode_backend

    def _get_sleep_mode_backend(self) -> sleeping.Sleep:  # as vLLM 0.26 asks for it
        return self.sleep_mode_backend

    def wake_up(self, tags: list[str] | None = None) -> None:
        """As vLLM's; what holds addresses of the caches gets the new ones."""
        super().wake_up(tags)
        runner = self.model_runner
        zeroer = getattr(runner, "_kv_block_zeroer", getattr(runner, "kv_block_zeroer", None))
        if zeroer is not None and (tags is None or "kv_cache" in tags):
            runner._init_kv_zero_meta()

    def reload_weights(self, *args: Any, **kwargs: Any) -> None:
        """As vLLM's. Raises RuntimeError while the weights are asleep."""
        self._awake("weights")
        super().reload_weights(*args, **kwargs)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As vLLM's. Raises RuntimeError while the weights are asleep."""
        self._awake("weights")
        super().update_weights(update_info)

    def add_lora(self, lora_request: Any) -> bool:
        """As vLLM's. Raises RuntimeError while the weights are asleep."""
        self._awake("weights")
        return bool(super().add_lora(lora_request))

    def flagos_update_weights(self, weights: list[tuple[str, torch.Tensor]] | str) -> int:
        """Loads new values of some weights, by the names of the checkpoint; returns how many.

        ``llm.collective_rpc("flagos_update_weights", args=(weights,))`` with pairs of a name and a tensor, or a file
        of safetensors, which also reaches engines in other processes. Each rank takes its part. The caches have keys
        of the former weights: ``llm.reset_prefix_cache()``. Raises ValueError that lists each name and shape
        that the checkpoint does not have, before anything is changed.
        """
        self._awake("weights")
        return updates.load(self.model_runner, self.model_config, weights)

    def _awake(self, *tags: str) -> None:
        if self._sleep_mode_backend is not None:
            self._sleep_mode_backend.require(*tags)

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[Any]:
        """No pool: `vllm_flagos.sleeping` finds what the models and caches have."""
        return nullcontext()
