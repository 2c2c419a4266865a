"""How the double of torch computes: only the handles of streams are asked for."""

from __future__ import annotations

import torch

from flagos import _core


class _Native:
    def stream_handle(self, device: int | None = None) -> int:
        stream = torch.flagos.current_stream(device)
        handle = _core.stream_handle(stream.device_index, stream.stream_id)
        assert handle is not None
        return handle


def native() -> _Native:
    return _Native()
