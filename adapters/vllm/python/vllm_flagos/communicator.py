"""vLLM's collectives between devices, over the process group of flagos."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from vllm.distributed.device_communicators import custom_all_reduce
from vllm.distributed.device_communicators.xpu_communicator import XpuCommunicator

from vllm_flagos import platform_view


class FlagosCommunicator(XpuCommunicator):
    """Calls ``torch.distributed``, out of place.

    vLLM captures graphs of several ranks only with a communicator of its own classes, of which this is the one
    without kernels of a single vendor. Where vLLM's wheel has an all-reduce over the memory of peers (on CUDA), and
    the configuration does not switch it off, that adds the small tensors of tensor-parallel ranks, as on vLLM's own
    platform.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        from vllm.distributed.parallel_state import _ENABLE_CUSTOM_ALL_REDUCE

        # vLLM's own communicator has it for these groups alone, too.
        if "tp" in self.unique_name and self.world_size > 1 and _ENABLE_CUSTOM_ALL_REDUCE:
            # Its kernels are there where the device is CUDA's.
            platform_view.install(custom_all_reduce)
            self.ca_comm = custom_all_reduce.CustomAllreduce(self.cpu_group, self.device)

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks, in a new tensor."""
        peers = self.ca_comm
        total: torch.Tensor
        if peers is not None and peers.should_custom_ar(input_):
            total = peers.custom_all_reduce(input_)
        else:
            total = torch.empty_like(input_)
            torch.ops.flagos.all_reduce_into(self.device_group.boxed(), total, input_)
        return total

    def all_gatherv(
        self,
        input_: torch.Tensor | list[torch.Tensor],
        dim: int = 0,
        sizes: list[int] | None = None,
    ) -> Any:
        """The rows of every rank, one after the other; ``sizes`` says how many each has, if not all have as many.

        Data-parallel replicas give each other the tokens of their experts by it. Raises ValueError for another
        dimension than the first.
        """
        if dim != 0:
            raise ValueError(f"rows of ranks are gathered by dimension 0, not by {dim}")
        if isinstance(input_, list):
            return [self.all_gatherv(one, dim, sizes) for one in input_]
        rows = [len(input_)] * self.world_size if sizes is None else sizes
        gathered = input_.new_empty(sum(rows), *input_.shape[1:])
        if min(rows) == max(rows):
            dist.all_gather_into_tensor(gathered, input_.contiguous(), group=self.device_group)
        else:
            parts = list(gathered.split(rows))
            dist.all_gather(parts, input_.contiguous(), group=self.device_group)
        return gathered

    def destroy(self) -> None:
        """Gives back what peers share."""
        if self.ca_comm is not None:
            self.ca_comm.close()
            self.ca_comm = None
        super().destroy()
