import torch


def _async_d2h(t: torch.Tensor) -> torch.Tensor:
    return t.to("cpu", non_blocking=True)
