"""The order of SGLang's own: torch and Library, the platform, then the functions that ask torch."""

from functools import lru_cache
from typing import ClassVar

import torch
from torch.library import Library

from sglang.srt.platforms import current_platform


@lru_cache(maxsize=1)
def is_cuda():
    return torch.cuda.is_available() and torch.version.cuda is not None


def get_device_name(device_id: int = 0) -> str:
    return "unknown"


def get_device_count() -> int:
    return 0


def get_device_core_count(device_id: int = 0) -> int:
    return 0


def support_triton(backend: str) -> bool:
    asked = current_platform.capabilities.supports_triton
    return asked and backend not in ["torch_native", "intel_amx"]


def is_pin_memory_available(device=None) -> bool:
    return current_platform.is_pin_memory_available(device)


sglang_lib = Library("sglang", "FRAGMENT")


class SafeUnpickler:
    ALLOWED_MODULE_PREFIXES: ClassVar[set] = {"builtins.", "torch."}  # of 0.5.17
    ALLOWED_GLOBALS: ClassVar[set] = {("builtins", "int")}  # of 0.5.23
