"""Observations: everything a program can see of tensors after a call, and how two of them differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ROW_LAYOUTS = (torch.sparse_csr, torch.sparse_bsr)
_COLUMN_LAYOUTS = (torch.sparse_csc, torch.sparse_bsc)


@dataclass(frozen=True)
class Tolerance:
    """How strictly an operator is compared: how its values, and which kinds of facts not at all."""

    compare: str = "bits"  # "bits", "close" or "metadata"
    rtol: float = 0.0
    atol: float = 0.0
    ignore: frozenset[str] = frozenset()
    reason: str = ""
    of_halves: bool = False  # the limits are of values of half precision; of others, torch's own


EXACT = Tolerance()


@dataclass(frozen=True)
class Mismatch:
    """One observable difference: its kind (value, stride, alias, ...) and a sentence about it."""

    kind: str
    message: str


@dataclass(frozen=True)
class TensorRecord:
    """Everything compared of one tensor; ``fields`` maps the kind of a mismatch to the fact."""

    fields: dict[str, Any]
    device: torch.device
    values: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Observation:
    """Inputs and outputs after a call on one device."""

    labels: list[str]
    leaves: list[Any]  # TensorRecord for tensors, the object itself otherwise
    structure: str


def versions(inputs: Any) -> dict[int, int]:
    """The version counters of the tensors in a tree, by identity; taken before a call."""
    return {id(t): t._version for t in tensors_in(inputs) if not t.is_inference()}


def observe(inputs: Any, output: Any, before: dict[int, int] | None = None) -> Observation:
    """Records ``inputs`` and ``output`` (arbitrary trees), in an order both devices share.

    Aliasing is recorded as numbers given in order of first appearance, so two devices agree exactly
    if the same tensors are the same objects, share storage, and are views of the same bases.
    ``before`` are the versions of the inputs before the call. Recorded is whether a counter moved,
    not how far: composite operators may write several times. This must be the last use of the
    tensors, as it moves version counters to see which of them are shared.
    """
    before = before or {}
    input_leaves, _ = pytree.tree_flatten(inputs)
    output_leaves, spec = pytree.tree_flatten(output)
    identities: dict[int, int] = {}
    storages: dict[int, int] = {}
    tensors = [leaf for leaf in (*input_leaves, *output_leaves) if isinstance(leaf, torch.Tensor)]
    for tensor in tensors:
        identities.setdefault(id(tensor), len(identities))
    leaves: list[Any] = []
    labels: list[str] = []
    for group, members in (("input", input_leaves), ("output", output_leaves)):
        for index, leaf in enumerate(members):
            labels.append(f"{group} {index}")
            if isinstance(leaf, torch.Tensor):
                leaf = record(leaf, identities, storages)
                if id(tensor := members[index]) in before and not tensor.is_inference():
                    leaf.fields["version"] = "kept" if _unmoved(tensor, before) else "bumped"
            leaves.append(leaf)
    counters = _shared_counters(tensors, storages)
    for leaf, tensor in zip(leaves, (*input_leaves, *output_leaves), strict=True):
        if id(tensor) in counters:
            leaf.fields["version counter"] = counters[id(tensor)]
    return Observation(labels, leaves, _structure(output, spec))


def _unmoved(tensor: torch.Tensor, before: dict[int, int]) -> bool:
    return tensor._version == before[id(tensor)]


def _shared_counters(tensors: Sequence[torch.Tensor], storages: dict[int, int]) -> dict[int, int]:
    """Numbers the version counters of tensors that share a storage, by the tensors' identity."""
    groups: dict[int | None, dict[int, torch.Tensor]] = {}
    for tensor in tensors:
        if not tensor.is_inference():
            groups.setdefault(_storage_number(tensor, storages), {})[id(tensor)] = tensor
    counters: dict[int, int] = {}
    for number, group in groups.items():
        if number is None or len(group) < 2:
            continue
        members = list(group.values())
        for tensor in members:
            if id(tensor) in counters:
                continue
            counter = len(counters)
            earlier = [member._version for member in members]
            torch.autograd.graph.increment_version(tensor)
            for member, version in zip(members, earlier, strict=True):
                if member._version != version:
                    counters[id(member)] = counter
    return counters


def _structure(output: Any, spec: pytree.TreeSpec) -> str:
    # The spec alone does not tell a list from a subclass of it.
    return f"{type(output).__name__} {spec}"


def record(
    tensor: torch.Tensor, identities: dict[int, int], storages: dict[int, int]
) -> TensorRecord:
    """The facts of one tensor; the two mappings number tensors and storages by first appearance."""
    base = tensor._base
    fields: dict[str, Any] = {
        "dtype": tensor.dtype,
        "shape": tuple(tensor.shape),
        "layout": tensor.layout,
        "alias": (identities[id(tensor)], _storage_number(tensor, storages)),
        "view": (tensor._is_view(), None if base is None else identities.get(id(base), "hidden")),
        "grad": (tensor.requires_grad, tensor.is_leaf),
        "flags": (
            tensor.is_conj(),
            tensor.is_neg(),
            tensor.is_inference(),
            type(tensor).__name__,
        ),
    }
    if tensor.layout == torch.strided:
        fields["stride"] = tensor.stride()
        fields["offset"] = tensor.storage_offset()
        fields["storage size"] = _storage_bytes(tensor)
    parts = _parts(tensor.detach())
    for name, part in parts.items():
        if name:
            fields[f"{name}"] = (part.dtype, tuple(part.shape), part.stride())
    if tensor.layout == torch.sparse_coo:
        fields["coalesced"] = tensor.is_coalesced()
    return TensorRecord(fields, tensor.device, parts)


def _storage_number(tensor: torch.Tensor, storages: dict[int, int]) -> int | None:
    try:
        key = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None
    return storages.setdefault(key, len(storages))


def _storage_bytes(tensor: torch.Tensor) -> int | None:
    try:
        return tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return None


def _parts(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The strided tensors a tensor is made of; a strided tensor is its own only part."""
    if tensor.layout == torch.strided:
        return {"": tensor}
    if tensor.layout == torch.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}
    if tensor.layout in _ROW_LAYOUTS:
        compressed, plain = tensor.crow_indices(), tensor.col_indices()
    elif tensor.layout in _COLUMN_LAYOUTS:
        compressed, plain = tensor.ccol_indices(), tensor.row_indices()
    else:
        return {"": tensor.to_dense()}
    return {"compressed": compressed, "plain": plain, "values": tensor.values()}


def _on_host(tensor: torch.Tensor, *, resolved: bool) -> torch.Tensor:
    """The stored elements, as conjugate and negative bits are compared by themselves; or, resolved, what is meant."""
    stored = tensor.detach()
    is_conj, is_neg = stored.is_conj(), stored.is_neg()
    if stored._base is not None and stored._base.layout != torch.strided:
        stored = stored.clone()  # torch cannot make further views of a sparse tensor's values
    if is_conj:
        torch._C._set_conj(stored, False)
    if is_neg:
        torch._C._set_neg(stored, False)
    host = stored.cpu().contiguous()
    if not (resolved and (is_conj or is_neg)):
        return host
    parts = torch.view_as_real(host) if host.is_complex() else host
    parts = parts.neg() if is_neg else parts.clone()
    if is_conj:
        parts[..., 1].neg_()
    return torch.view_as_complex(parts) if host.is_complex() else parts


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype.is_floating_point or tensor.dtype.itemsize > 1:
        tensor = tensor.rename(None).view(_INTEGER_OF_SIZE[tensor.dtype.itemsize])
    return tensor


def compare(
    reference: Observation,
    device: Observation,
    tolerance: Tolerance = EXACT,
    *,
    device_type: str,
    reference_type: str = "cpu",
    outputs_may_stay_on_host: bool = False,
    may_bump: bool = False,
) -> list[Mismatch]:
    """Returns every difference between two observations of the same call.

    ``device_type`` is where a tensor must be whose counterpart is on ``reference_type``, unless
    ``outputs_may_stay_on_host``. Inputs are where the caller put them. ``may_bump`` accepts a version
    counter that moved on the device alone.
    """
    if reference.structure != device.structure:
        return [Mismatch("structure", f"{reference.structure} became {device.structure}")]
    mismatches: list[Mismatch] = []
    pairs = zip(reference.labels, reference.leaves, device.leaves, strict=True)
    for label, expected, actual in pairs:
        if isinstance(expected, TensorRecord) and isinstance(actual, TensorRecord):
            readable = actual.device.type != "meta"
            how = tolerance if readable else Tolerance("metadata")
            found = _compare_tensors(label, expected, actual, how)
            more_writes = may_bump and actual.fields.get("version") == "bumped"
            ignored = tolerance.ignore | ({"version"} if more_writes else set())
            mismatches += [mismatch for mismatch in found if mismatch.kind not in ignored]
            on_reference = expected.device.type == reference_type
            wanted = device_type if on_reference else expected.device.type
            free = label.startswith("input") or outputs_may_stay_on_host
            if actual.device.type != wanted and not (free and actual.device.type == "cpu"):
                text = f"{label} is on {actual.device}, expected {wanted}"
                mismatches.append(Mismatch("device", text))
        elif not _same_object(expected, actual, (reference_type, device_type), tolerance):
            text = f"{label} is {_short(actual)}, expected {_short(expected)}"
            mismatches.append(Mismatch("value", text))
    return mismatches


def _compare_tensors(
    label: str, expected: TensorRecord, actual: TensorRecord, tolerance: Tolerance
) -> Iterable[Mismatch]:
    shape_agrees = True
    for kind in expected.fields.keys() | actual.fields.keys():
        wanted, got = expected.fields.get(kind), actual.fields.get(kind)
        if wanted != got:
            shape_agrees &= kind not in ("dtype", "shape", "layout")
            yield Mismatch(kind, f"{label}: {kind} {_short(got)}, expected {_short(wanted)}")
    if not shape_agrees or tolerance.compare == "metadata":
        return
    for name in expected.values:
        where = f"{label} {name}".strip()
        if name not in actual.values or actual.values[name].shape != expected.values[name].shape:
            continue  # reported above
        text = _value_difference(expected.values[name], actual.values[name], tolerance)
        if text:
            yield Mismatch("value", f"{where}: {text}")


#: torch.testing.assert_close's own limits.
_HALF_LIMITS = {
    torch.float16: {"rtol": 1e-3, "atol": 1e-5},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-5},
}


def _value_difference(
    expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance
) -> str | None:
    # Where a view and its resolved form count as the same, so do the numbers they stand for.
    resolved = "flags" in tolerance.ignore
    wanted, got = (_on_host(each, resolved=resolved) for each in (expected, actual))
    if torch.equal(_integers(wanted), _integers(got)):
        return None
    if tolerance.compare == "close":
        limits = {"rtol": tolerance.rtol, "atol": tolerance.atol}
        other = tolerance.of_halves and wanted.dtype not in (torch.float16, torch.bfloat16)
        if other or not any(limits.values()):
            limits = {}  # torch's own for the dtype
        elif (
            wanted.dtype in _HALF_LIMITS
        ):  # what is stated for every dtype may be less than one step of a half type
            own = _HALF_LIMITS[wanted.dtype]
            limits = {name: max(limit, own[name]) for name, limit in limits.items()}
        try:
            torch.testing.assert_close(got, wanted, equal_nan=True, **limits)
        except AssertionError as error:
            return str(error).replace("\n", " ")
        return None
    return _describe_difference(wanted, got)


def _describe_difference(wanted: torch.Tensor, got: torch.Tensor) -> str:
    unequal = _integers(wanted) != _integers(got)
    if wanted.is_complex():
        unequal = unequal.any(-1)
    differing = unequal.nonzero()
    position = tuple(differing[0].tolist())
    total = max(1, wanted.numel())
    return (
        f"{len(differing)} of {total} elements differ, first at {list(position)}: "
        f"{got[position].item()!r}, expected {wanted[position].item()!r}"
    )


def _same_object(
    expected: Any, actual: Any, devices: tuple[str, str], tolerance: Tolerance
) -> bool:
    if isinstance(expected, torch.device) and isinstance(actual, torch.device):
        return actual.type == (devices[1] if expected.type == devices[0] else expected.type)
    if type(expected) is not type(actual):
        return False
    if tolerance.compare == "metadata":
        return True
    if isinstance(expected, float):
        return expected == actual or (math.isnan(expected) and math.isnan(actual))
    if isinstance(expected, complex):
        return repr(expected) == repr(actual)
    if isinstance(expected, (torch.TypedStorage, torch.UntypedStorage, torch.Generator)):
        return True
    try:
        return bool(expected == actual)
    except (RuntimeError, TypeError, ValueError):
        return True


def _short(value: Any, limit: int = 160) -> str:
    text = str(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def tensors_in(value: Any) -> Sequence[torch.Tensor]:
    """The tensors of a tree, each once, in order."""
    found: dict[int, torch.Tensor] = {}
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.setdefault(id(leaf), leaf)
    return list(found.values())
