"""The double of DeepSpeed: it imports torch first, as DeepSpeed does, and then the choice of an accelerator."""

import torch  # noqa: F401

from deepspeed.accelerator import get_accelerator  # noqa: F401
