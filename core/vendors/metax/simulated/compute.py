"""Kernels for torch's CUDA key over the simulated MACA runtime: torch's CPU kernels, on the memory of the device.

Stands for MetaX's build of torch, whose kernels are registered under that key. An operator waits for the current stream
and computes at once. Views, allocations and whole copies stay torch's own, through libruntime_cu.so.
"""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

# What computes nothing, or reads one number by a copy, stays torch's own.
_OWN = re.compile(
    r"aten::(empty\b|empty_strided|as_strided|view|view\..*|_reshape_alias|unfold|set_|resize_$|record_stream|is_pinned"
    r"|_pin_memory|pin_memory|_local_scalar_dense|is_set_to|_has_same_storage_numel|alias|detach"
    r"|_efficientzerotensor|_sparse.*|.*sparse.*|_nested.*|_cudnn.*|cudnn.*|_cslt.*|_index_put_impl_$"
    r"|is_same_size|_lazy_clone|q_.*|.*quantize.*)"
)
_kept: torch.library.Library | None = None


def install() -> int:
    """Register a kernel for every operator that has one under torch's CUDA key. Returns how many."""
    global _kept
    if _kept is not None:
        raise RuntimeError("the kernels are installed already")
    _kept = torch.library.Library("aten", "IMPL")
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    chosen = [name for name in names if name.startswith("aten::") and not _OWN.match(name)]
    chosen.append("aten::copy_")  # one function of torch's for every device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in chosen:
            packet, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            _kept.impl(name, _SPECIAL.get(name, _kernel)(op), "CUDA", allow_override=True)
    return len(chosen)


def _runtime() -> ctypes.CDLL:
    library = ctypes.CDLL("libmcruntime.so")
    library.simulated_metax_reach.restype = ctypes.c_void_p
    library.simulated_metax_reach.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements as a tensor of the CPU."""
    storage = tensor.untyped_storage()
    host = torch.empty(0, dtype=tensor.dtype)
    if storage.nbytes() == 0:
        return host.new_empty(0).as_strided(tensor.shape, tensor.stride())
    address = _runtime().simulated_metax_reach(storage.data_ptr(), storage.nbytes())
    if address is None:
        raise RuntimeError(f"no block of the device has the {storage.nbytes()} bytes of a tensor")
    memory = (ctypes.c_char * storage.nbytes()).from_address(address)
    whole = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    host.set_(whole, tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.is_conj():
        torch._C._set_conj(host, True)
    if tensor.is_neg():
        torch._C._set_neg(host, True)
    return host


class _Call:
    """The arguments of one call for the CPU's kernel, and its results for the device."""

    def __init__(self) -> None:
        self.given: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.device = torch.device("cuda", torch.cuda.current_device())

    def to_host(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "cuda":
            self.device = value.device
            host = _on_host(value)
            self.given.append((value, host))
            return host
        if isinstance(value, torch.device) and value.type == "cuda":
            self.device = value
            return torch.device("cpu")
        return None if isinstance(value, torch.Generator) else value

    def to_device(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        for own, host in self.given:
            if value is host:
                return own
        made = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=self.device
        )
        _on_host(made).copy_(value)
        return made


def _kernel(op: Any) -> Callable[..., Any]:
    written = [argument.name for argument in op._schema.arguments if argument.is_out]
    # Writes to the tensors of a list are counted by the kernel, others by torch before it.
    counts = op._schema.name.startswith(("aten::_foreach_", "aten::_fused_", "aten::_amp_"))

    def kernel(*arguments: Any, **named: Any) -> Any:
        call = _Call()
        # A result of another size than was given takes what the CPU's kernel makes.
        resized = {}
        for name in written:
            own = named[name]
            if isinstance(own, torch.Tensor) and own.numel() == 0:
                resized[name] = own
                named[name] = torch.empty(0, dtype=own.dtype)
        hosts, host_names = tree_map(call.to_host, (arguments, named))
        for device in {own.device for own, _ in call.given} or {call.device}:
            torch.cuda.current_stream(device).synchronize()
        # In inference mode nothing counts writes.
        counted = [pair for pair in call.given if counts and not pair[1].is_inference()]
        before = [host._version for _, host in counted]
        results = op(*hosts, **host_names)
        for (own, host), version in zip(counted, before, strict=True):
            if host._version != version:
                torch.autograd.graph.increment_version(own)
        for name, own in resized.items():
            made = host_names[name]
            own.resize_(made.shape)
            _on_host(own).copy_(made)
            call.given.append((own, made))
        return tree_map(call.to_device, results)

    return kernel


def _bytes_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """What two tensors have in common of which a copy has the same bytes."""
    return tensor.dtype, tensor.shape, tensor.is_conj(), tensor.is_neg()


def _copy(op: Any) -> Callable[..., Any]:
    """Copies of the same bytes are torch's own, by the runtime; others are computed."""
    computed = _kernel(op)
    # torch's own function serves every key that has none, as that of a device which is not there.
    own = torch._C.DispatchKeySet(torch._C.DispatchKey.XLA)

    def copy(to: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        same = _bytes_of(to) == _bytes_of(source)
        if same and to.is_contiguous() and source.is_contiguous():
            return op.redispatch(own, to, source, non_blocking)
        computed(to, source, non_blocking)
        return to

    return copy


def _choice(op: Any) -> Callable[..., Any]:
    """Attention is what torch composes of other operators."""
    return lambda *arguments, **named: 0


_SPECIAL: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "aten::copy_": _copy,
    "aten::_fused_sdp_choice": _choice,
}
