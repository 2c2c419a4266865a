"""vLLM's collectives between devices, over the process group of flagos."""

from __future__ import annotations

from vllm.distributed.device_communicators.xpu_communicator import XpuCommunicator


class FlagosCommunicator(XpuCommunicator):
    """Calls ``torch.distributed``, out of place.

    vLLM captures graphs of several ranks only with a communicator of its own classes, of which this is the one
    without kernels of a single vendor.
    """
