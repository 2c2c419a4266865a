"""torch's process group `fake`, which computes nothing, for tensors of the device."""

from __future__ import annotations

from torch.distributed import Backend

BACKEND = "fake"
DEVICE = "flagos"


def register() -> None:
    """Name the device among those that the backend serves. Idempotent."""
    served = Backend.backend_capability[BACKEND]
    if DEVICE not in served:
        served.append(DEVICE)
