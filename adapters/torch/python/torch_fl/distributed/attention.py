"""Attention of DTensor, and of its context parallelism, by the CPU's kernel, which the host vendor takes.

torch knows how to split the attention kernels of CUDA, and not `_scaled_dot_product_flash_attention_for_cpu`. A
sharding strategy would not do: the mask is a keyword of that operator, and DTensor redistributes no keywords, so that
each rank would compute with a mask of other heads. Here a handler of DTensor's dispatcher places all tensors itself.

Of query, key and value (B, H, S, E) batch and heads may be split; what is split otherwise is gathered. Within
`context_parallel` the sequence is split, and torch's ring over the ranks computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._redistribute import redistribute_local_tensor

from torch_fl.calls import Kwargs
from torch_fl.distributed import context_parallel
from torch_fl.distributed.context_parallel import BACKWARD, FORWARD, SEQUENCE

BATCH, HEADS = 0, 1
"""Dimensions of query, key, value, output and their gradients, as SEQUENCE; of the logsumexp (B, H, S), too."""


def register() -> None:
    """Complete DTensor's dispatcher. Idempotent."""
    # In place: `context_parallel` remembers this very dictionary.
    handlers: dict[Any, Callable[..., Any]] = DTensor._op_dispatcher._custom_op_handlers
    handlers[FORWARD] = handlers[BACKWARD] = _attention


def _attention(op: Any, args: Sequence[Any], kwargs: Kwargs | None = None) -> Any:
    names = (argument.name for argument in op._schema.arguments)
    arguments = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
    split = [
        name
        for name, value in arguments.items()
        if isinstance(value, DTensor) and Shard(SEQUENCE) in value.placements
    ]
    with torch.no_grad():  # below autograd: the operator's own formula records it
        if split and context_parallel.active():
            return _ring(op, arguments)
        if op is BACKWARD and "out" in split:
            raise NotImplementedError(
                f"{op}: the forward pass ran within context_parallel. Run the backward pass within it as well."
            )
        return _sharded(op, arguments)


# ------------------------------------------------------------------------------------ batch and heads


def _sharded(op: Any, arguments: Kwargs) -> tuple[DTensor, ...]:
    """The operator on each rank's batches and heads, for all of which one placement is chosen."""
    mesh = _mesh(arguments)
    mask = arguments.pop("attn_mask", None)
    tensors = {
        name: _distributed(op, name, value, mesh)
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor)
    }
    placements = _placements(op, tensors, mesh)
    local = {name: _local(tensor, placements) for name, tensor in tensors.items()}
    whole = {name: _meta(tensor) for name, tensor in tensors.items()}
    if mask is not None:
        mask = _distributed(op, "attn_mask", mask, mesh)
        local["attn_mask"] = _local(mask, _placements_of_mask(mask, placements))
        whole["attn_mask"] = _meta(mask)
    metas = op(**{**arguments, **whole})
    if mesh.get_coordinate() is None:  # a rank outside of the mesh has no part of it
        some = local["query"]
        results = tuple(some.new_empty(0, dtype=meta.dtype) for meta in metas)
    else:
        results = op(**{**arguments, **local})
    return tuple(
        _wrapped(result, mesh, placements, meta)
        for result, meta in zip(results, metas, strict=True)
    )


def _mesh(arguments: Kwargs) -> DeviceMesh:
    return next(value.device_mesh for value in arguments.values() if isinstance(value, DTensor))


def _distributed(op: Any, name: str, tensor: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise NotImplementedError(
                f"{op}: {name} is on another mesh than others: {tensor.device_mesh}, {mesh}"
            )
        return tensor
    if DTensor._op_dispatcher._allow_implicit_replication:
        return _wrapped(tensor, mesh, [Replicate()] * mesh.ndim, tensor)
    raise RuntimeError(
        f"{op}: got mixed torch.Tensor and DTensor: {name} is a torch.Tensor; make it a DTensor,"
        " such as with distribute_tensor(..., [Replicate()])"
    )


def _placements(op: Any, tensors: dict[str, DTensor], mesh: DeviceMesh) -> list[Placement]:
    # The output has the placements that the forward pass chose; query, key and value may have others.
    required = ["out"] if op is BACKWARD else ["query", "key", "value"]
    chosen: list[Placement] = []
    shards = {BATCH: 1, HEADS: 1}
    for dimension, ranks in enumerate(mesh.shape):
        placement: Placement = Replicate()
        for name in required:
            wanted = tensors[name].placements[dimension]
            if type(wanted) is not Shard or wanted.dim not in shards:
                continue
            # Key and value may have fewer heads, each for a group of the query's: groups stay whole by even parts.
            parts = shards[wanted.dim] * ranks
            if all(tensors[t].shape[wanted.dim] % parts == 0 for t in ("query", "key", "value")):
                shards[wanted.dim] = parts
                placement = wanted
                break
        chosen.append(placement)
    return chosen


def _placements_of_mask(mask: DTensor, placements: Sequence[Placement]) -> list[Placement]:
    """Those of a mask (S, S) or (B or 1, H or 1, S, S)."""
    return [
        placement
        if isinstance(placement, Shard) and mask.ndim == 4 and mask.shape[placement.dim] != 1
        else Replicate()
        for placement in placements
    ]


def _local(tensor: DTensor, placements: Sequence[Placement]) -> torch.Tensor:
    """This rank's part of the tensor under `placements`."""
    spec = tensor._spec
    target = DTensorSpec(spec.mesh, tuple(placements), tensor_meta=spec.tensor_meta)
    part = tensor._local_tensor
    if (spec.placements, spec.shard_order) == (target.placements, target.shard_order):
        return part
    return redistribute_local_tensor(part, spec, target)


def _wrapped(
    part: torch.Tensor, mesh: DeviceMesh, placements: Sequence[Placement], whole: torch.Tensor
) -> DTensor:
    """The DTensor of `part`, with the sizes and strides of `whole`."""
    # The kernel's output has the strides of its query, and a query that DTensor has split or gathered is contiguous
    # whatever the strides of the whole are. A later view looks at those of the whole, and would fail on this part.
    order = sorted(range(whole.ndim), key=whole.stride().__getitem__, reverse=True)
    if part.ndim == whole.ndim and not _is_ordered(part, order):
        ordered = torch.empty_permuted(part.shape, order, dtype=part.dtype, device=part.device)
        part = ordered.copy_(part)
    described = TensorMeta(whole.shape, whole.stride(), whole.dtype)
    spec = DTensorSpec(mesh, tuple(placements), tensor_meta=described)
    return DTensor(part, spec, requires_grad=False)


def _is_ordered(part: torch.Tensor, order: Sequence[int]) -> bool:
    strides = [part.stride(dimension) for dimension in order if part.shape[dimension] > 1]
    return strides == sorted(strides, reverse=True)


def _meta(tensor: DTensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


# --------------------------------------------------------------------------------------- the sequence


def _ring(op: Any, arguments: Kwargs) -> tuple[DTensor, ...]:
    """torch's attention over a ring of ranks, each of which has a part of the sequence."""
    if arguments.pop("attn_mask", None) is not None:
        raise NotImplementedError(
            f"{op}: context_parallel has no attention with a mask; is_causal=True is the one that it knows"
        )
    mesh = _mesh(arguments)
    tensors = {
        name: _distributed(op, name, value, mesh)
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor)
    }
    for name, tensor in tensors.items():
        if tensor.placements != (Shard(SEQUENCE),):
            raise NotImplementedError(
                f"{op}: within context_parallel all tensors are split along the sequence, as [Shard({SEQUENCE})] on one"
                f" mesh of one dimension; {name} has the placements {tensor.placements}"
            )
    metas = op(**{**arguments, **{name: _meta(tensor) for name, tensor in tensors.items()}})
    local = {name: tensor._local_tensor for name, tensor in tensors.items()}
    arguments = {"dropout_p": 0.0, "is_causal": False, "scale": None, **arguments, **local}
    ring = context_parallel.forward if op is FORWARD else context_parallel.backward
    results = ring(**arguments, group=mesh.get_group().group_name)
    return tuple(
        _wrapped(result, mesh, [Shard(SEQUENCE)], meta)
        for result, meta in zip(results, metas, strict=True)
    )
