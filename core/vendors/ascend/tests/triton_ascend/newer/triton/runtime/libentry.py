"""As FlagGems' LibEntry in triton-ascend: it asks torch_npu at its import."""

import torch
import torch_npu  # noqa: F401

torch_device_fn = torch.npu
DEVICE_COUNT = torch_device_fn.device_count()
