"""The places of SGLang that ask torch, and not the platform, which device is there: hooks AROUND its functions.

SGLang passes a hook the arguments as its caller wrote them, so the parameters here have SGLang's names. A hook takes
the original first. `adapters/sglang/tests/seam_facts.py` compares the names with SGLang's sources.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sglang_flagos import memory, operators, profiling, quantized, releases, requests
from sglang_flagos.engine import triton_missing
from torch_fl.runtime import sharing

_flagos: Any = torch.flagos  # type: ignore[attr-defined]
_UPDATER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
_WORKER = "sglang.srt.managers.tp_worker.BaseTpWorker"
_ABOUT_WEIGHTS = (
    "update_weights_from_disk",
    "update_weights_from_distributed",
    "update_weights_from_tensor",
)
_PROFILER = "sglang.srt.managers.scheduler_components.profiler_manager.SchedulerProfilerManager"
_TOKENIZER = "sglang.srt.managers.tokenizer_manager.TokenizerManager"
_CONTROL = "sglang.srt.managers.tokenizer_control_mixin.TokenizerControlMixin"
_COMMUNICATORS = (
    "use_pynccl",
    "use_pymscclpp",
    "use_custom_allreduce",
    "use_torch_symm_mem_all_reduce",
)


def group(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """0.5.17 gives the groups of platforms that it does not know the device cpu."""
    given = inspect.signature(original).bind(self, *args, **kwargs)
    for name in _COMMUNICATORS:
        given.arguments[name] = False
    original(*given.args, **given.kwargs)
    self.device = torch.device("flagos", self.local_rank)
    self.device_module = _flagos


def get_device_name(original: Callable[..., str], device_id: int = 0) -> str:
    """SGLang knows the names of its own platforms' devices."""
    return str(_flagos.get_device_name(device_id))


def get_device_count(original: Callable[..., int]) -> int:
    """The number of flagos devices."""
    return int(_flagos.device_count())


def get_device_core_count(original: Callable[..., int], device_id: int = 0) -> int:
    """The multiprocessors, by which Triton's kernels divide their work."""
    return int(_flagos.get_device_properties(device_id).multi_processor_count)


def support_triton(original: Callable[..., bool], backend: str) -> bool:
    """SGLang takes Triton for there unless the backend of attention is named torch_native."""
    return triton_missing() is None and original(backend)


def get_last_loc(
    original: Callable[..., Tensor],
    req_to_token: Tensor,
    req_pool_indices_tensor: Tensor,
    prefix_lens_tensor: Tensor,
) -> Tensor:
    """SGLang has this form of torch's operators, for backends of two names alone."""
    if triton_missing() is None:
        return original(req_to_token, req_pool_indices_tensor, prefix_lens_tensor)
    last = req_to_token[req_pool_indices_tensor, (prefix_lens_tensor - 1).clamp(min=0)]
    return torch.where(prefix_lens_tensor > 0, last, torch.full_like(last, -1))


def cap_of_logits(
    original: Callable[..., Tensor], full_logits: Tensor, final_logit_softcapping: float
) -> Tensor:
    """SGLang caps the logits of Gemma by a kernel of Triton, in place, wherever the device is not the CPU."""
    if triton_missing() is None:
        return original(full_logits, final_logit_softcapping)
    return full_logits.div_(final_logit_softcapping).tanh_().mul_(final_logit_softcapping)


def gated_sum(
    original: Callable[..., None],
    hidden_states: Tensor,
    gate_weight: Tensor,
    shared_output: Tensor,
    final_hidden_states: Tensor,
) -> None:
    """SGLang adds the shared expert of Qwen2-MoE by a kernel of Triton alone. Like that, this rounds once."""
    if triton_missing() is None:
        return original(hidden_states, gate_weight, shared_output, final_hidden_states)
    gate = torch.sigmoid(hidden_states.float() @ gate_weight.float())[:, None]
    final_hidden_states.copy_(final_hidden_states.float() + gate * shared_output.float())
    return None


def qk_norm(
    original: Callable[..., tuple[Tensor, Tensor]],
    q: Tensor,
    k: Tensor,
    q_norm: Any,
    k_norm: Any,
    head_dim: int,
    alt_stream: Any = None,
    allow_inplace: bool = True,
) -> tuple[Tensor, Tensor]:
    """SGLang has one kernel for both norms on CUDA."""
    from sglang_flagos.layers import norm

    if (
        not allow_inplace
        or q_norm.variance_epsilon != k_norm.variance_epsilon
        or not norm.is_plain(q_norm, q.dtype)
        or not norm.is_plain(k_norm, k.dtype)
    ):
        return original(q, k, q_norm, k_norm, head_dim, alt_stream, allow_inplace)
    weights = q_norm.weight.data, k_norm.weight.data
    operators.qk_norm(q, k, *weights, q_norm.variance_epsilon)
    return q, k


def store(
    original: Callable[..., None],
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    indices: Tensor,
    row_dim: int,
    store_dtype: torch.dtype,
    device_module: Any,
    size_limit: int,
    alt_stream: Any = None,
    v_row_dim: int | None = None,
) -> None:
    """SGLang has one kernel for keys and values on CUDA, and an operator of torch for each elsewhere."""
    operators.store_kv_cache(k, v, k_cache, v_cache, indices)


def async_d2h(original: Callable[..., Tensor], t: Tensor) -> Tensor:
    """SGLang keeps the memory for the copying stream where ``tensor.is_cuda`` alone."""
    if t.device.type != "flagos":
        return original(t)
    copied = torch.empty(t.shape, dtype=t.dtype, pin_memory=True)
    copied.copy_(t, non_blocking=True)
    t.record_stream(_flagos.current_stream(t.device))
    return copied


def mask_of_a_grammar(
    original: Callable[..., None], self: Any, logits: Tensor, vocab_mask: Tensor
) -> None:
    """SGLang raises for devices that it does not know, in the scheduler: that would end the server."""
    operators.apply_token_bitmask(logits, vocab_mask)


def mask_of_a_backend(original: Callable[..., None], logits: Tensor, vocab_mask: Tensor) -> None:
    """The same, of static methods."""
    operators.apply_token_bitmask(logits, vocab_mask)


def answered(
    original: Callable[..., tuple[bool, str]], self: Any, *args: Any, **kwargs: Any
) -> tuple[bool, str]:
    """SGLang reads requests about weights outside of what answers a failure, which would end the server."""
    try:
        return original(self, *args, **kwargs)
    except Exception as error:
        return False, f"it cannot be done ({type(error).__name__}: {error})"


class _Unreadable:
    """Weights that cannot be read, which say so to the function that takes them in, and that answers."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __iter__(self) -> Iterator[Any]:
        raise self._error

    def __getitem__(self, name: str) -> Any:
        raise self._error


def deserialized(original: Callable[..., Any], self: Any, serialized_named_tensors: Any) -> Any:
    """SGLang 0.5.23 reads weights before what answers a failure. All ranks meet behind that, so none may leave here."""
    try:
        return original(self, serialized_named_tensors)
    except Exception as error:
        return _Unreadable(error)


def updated(original: Callable[..., Any], self: Any, recv_req: Any) -> Any:
    """SGLang asserts that the cache could be flushed, which it cannot be while requests wait in the middle."""
    from sglang.srt.managers import io_struct

    try:
        return original(self, recv_req)
    except AssertionError as error:
        output = type(recv_req).__name__.replace("ReqInput", "ReqOutput")
        return getattr(io_struct, output)(
            success=False, message=f"the weights are new, and the cache is not: {error}"
        )


def raw_parts(
    original: Callable[..., Iterator[tuple[Tensor, None]]], self: Any
) -> Iterator[tuple[Tensor, None]]:
    """SGLang compares weights, part by part, where ``tensor.cuda()`` brings them."""
    from sglang.srt.utils.weight_checker_comparator import CHUNK_NUMEL

    for part in self.tensor.reshape(-1).split(CHUNK_NUMEL):
        yield part.to("flagos"), None


def internal_state(original: Callable[..., Any], self: Any, recv_req: Any) -> Any:
    """With calls and fallbacks of the plan, and reductions that were gathered, which ``/server_info`` shows."""
    import flagos
    from torch_fl import distributed

    state = original(self, recv_req)
    state.internal_state["flagos"] = {
        op: dict(counted) for op, counted in flagos.counters().items() if any(counted.values())
    }
    state.internal_state["flagos_gathered"] = distributed.gathered()
    return state


# Those of every release; `sglang_flagos.releases` has the others.
HOOKS: dict[str, Callable[..., Any]] = {
    **quantized.HOOKS,
    "sglang.kernels.ops.activation.softcap.softcap_inplace_logits": cap_of_logits,
    "sglang.kernels.ops.elementwise.elementwise.fused_gate_sigmoid_mul_add": gated_sum,
    "sglang.srt.constrained.llguidance_backend.GuidanceGrammar.apply_vocab_mask": mask_of_a_backend,
    "sglang.srt.constrained.xgrammar_backend.XGrammarGrammar.apply_vocab_mask": mask_of_a_grammar,
    "sglang.srt.managers.scheduler.Scheduler.get_internal_state": internal_state,
    "sglang.srt.managers.scheduler.Scheduler.process_input_requests": requests.received,
    **dict.fromkeys((f"{_UPDATER}.{name}" for name in _ABOUT_WEIGHTS), updated),
    f"{_PROFILER}._profile": profiling.asked,
    f"{_PROFILER}._profile_batch_predicate": profiling.stepped,
    f"{_WORKER}.destroy_weights_update_group": answered,
    f"{_WORKER}.init_weights_update_group": answered,
    f"{_UPDATER}.release_memory_occupation": memory.release,
    f"{_UPDATER}.resume_memory_occupation": memory.resume,
    **dict.fromkeys(
        (f"{_CONTROL}.{verb}_expert_distribution_record" for verb in ("start", "stop", "dump")),
        requests.recorded,
    ),
    f"{_CONTROL}.release_memory_occupation": memory.ask_to_release,
    f"{_CONTROL}.resume_memory_occupation": memory.ask_to_resume,
    f"{_TOKENIZER}._create_tokenized_object": requests.tokenized,
    f"{_TOKENIZER}._dispatch_to_scheduler": requests.dispatched,
    f"{_TOKENIZER}.generate_request": requests.generate,
    "sglang.srt.mem_cache.allocation.get_last_loc": get_last_loc,
    "sglang.srt.mem_cache.memory_pool._set_kv_buffer_impl": store,
    "sglang.srt.models.utils.apply_qk_norm": qk_norm,
    "sglang.srt.utils.common.get_device_core_count": get_device_core_count,
    "sglang.srt.utils.common.get_device_count": get_device_count,
    "sglang.srt.utils.common.get_device_name": get_device_name,
    "sglang.srt.utils.weight_checker_comparator.RawComparable.iter_chunks": raw_parts,
    "sglang.srt.utils.torch_memory_saver_adapter.TorchMemorySaverAdapter.create": memory.without_saver,
}


def of(release: releases.Release) -> dict[str, Callable[..., Any]]:
    """The hooks of a release, by the functions of SGLang that they replace."""
    return HOOKS | {
        target: pkgutil.resolve_name(f"sglang_flagos.{name}")
        for target, name in release.hooks.items()
    }


def install() -> None:
    """Registers the hooks, which SGLang applies after its plugins, and installs the views of torch."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.utils import common

    from sglang_flagos import view

    for target, hook in of(releases.installed()).items():
        HookRegistry.register(target, hook, HookType.AROUND)
    view.install()
    # The names by which tensors of flagos come from other processes: weights in trainers' messages.
    if releases.installed().unpickles_by_prefix:
        common.SafeUnpickler.ALLOWED_MODULE_PREFIXES.add(f"{sharing.__name__}.")
    else:
        common.SafeUnpickler.ALLOWED_GLOBALS.update(
            (one.__module__, one.__qualname__) for one in sharing.REBUILDERS
        )
