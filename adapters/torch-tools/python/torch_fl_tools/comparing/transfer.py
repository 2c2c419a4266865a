"""Rebuilding of arguments on a device, with every property that a kernel can see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

_COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def is_named(device_type: str, value: Any) -> bool:
    """Whether ``value`` is a device of that type, as an object or by its name."""
    if isinstance(value, str):
        return value.partition(":")[0] == device_type
    return isinstance(value, torch.device) and value.type == device_type


@dataclass(frozen=True)
class OnHost:
    """Marks a tensor that an operator takes on the host, on any device it runs on."""

    tensor: torch.Tensor


class Transfer:
    """Copies trees of tensors of one type of device, `source`, to one device.

    Sizes, strides, storage offsets, conjugate and negative bits and ``requires_grad`` are kept, and so
    are relations: tensors that share a storage share one afterwards, and an object that
    occurs twice stays one object. The result never shares memory with the original, also when the
    device is the source itself, so that both devices are fed in the same way.
    """

    def __init__(self, device: torch.device, source: str = "cpu") -> None:
        self.device = device
        self._source = source
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        # Ids above stay valid only while their objects live.
        self._alive: list[Any] = []

    def tree(self, value: Any) -> Any:
        """Returns ``value`` with tensors and names of the source replaced."""
        return pytree.tree_map(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, OnHost):
            return value.tensor.clone()
        if is_named(self._source, value):
            return self.device
        if isinstance(value, slice):
            return slice(self._leaf(value.start), self._leaf(value.stop), self._leaf(value.step))
        return value

    def tensor(self, source: torch.Tensor) -> torch.Tensor:
        """Returns the counterpart of one tensor of the source.

        Beside another source, host tensors stay there, as copies. Tensors of other devices
        are passed through.
        """
        if source.device.type not in ("cpu", self._source):
            return source
        known = self._tensors.get(id(source))
        if known is not None:
            return known
        with torch.no_grad():
            result = self._rebuild(source)
        wanted = self._target(source)
        if result.device.type != wanted.type:
            raise AssertionError(f"copying to {wanted} gave a tensor on {result.device}")
        if isinstance(source, torch.nn.Parameter):
            result = torch.nn.Parameter(result, requires_grad=source.requires_grad)
        elif source.requires_grad:
            result.requires_grad_()
        self._tensors[id(source)] = result
        self._alive.append(source)
        return result

    def _target(self, source: torch.Tensor) -> torch.device:
        return self.device if source.device.type == self._source else source.device

    def _rebuild(self, source: torch.Tensor) -> torch.Tensor:
        if source.layout == torch.sparse_coo:
            return torch.sparse_coo_tensor(
                self.tensor(source._indices()),
                self.tensor(source._values().detach()),
                source.shape,
                is_coalesced=source.is_coalesced(),
            )
        if source.layout in _COMPRESSED:
            by_row = source.layout in _COMPRESSED_ROWS
            compressed = source.crow_indices() if by_row else source.ccol_indices()
            plain = source.col_indices() if by_row else source.row_indices()
            return torch.sparse_compressed_tensor(
                self.tensor(compressed),
                self.tensor(plain),
                self.tensor(source.values().detach()),
                source.shape,
                layout=source.layout,
            )
        if source.layout != torch.strided:
            return source.detach().to(self._target(source), copy=True)
        result = torch.empty(0, dtype=source.dtype, device=self._target(source))
        result.set_(self._storage(source), source.storage_offset(), source.size(), source.stride())
        if source.is_conj():
            torch._C._set_conj(result, True)
        if source.is_neg():
            torch._C._set_neg(result, True)
        return result

    def _storage(self, source: torch.Tensor) -> torch.UntypedStorage:
        storage = source.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is not None:
            return known
        given = torch.empty(0, dtype=torch.uint8, device=source.device).set_(storage)  # type: ignore[call-overload, unused-ignore]
        copy = torch.empty(storage.nbytes(), dtype=torch.uint8, device=self._target(source))
        copy.copy_(given)
        result = copy.untyped_storage()
        self._storages[storage._cdata] = result
        self._alive.append(storage)
        return result
