"""The double of DeepSpeed's choice: a closed list, and a variable."""

import os
from typing import Any

SUPPORTED_ACCELERATOR_LIST = ["cuda", "cpu"]
ds_accelerator: Any = None


def get_accelerator() -> Any:
    """The accelerator that was set, or a text for the one that DeepSpeed would make."""
    if ds_accelerator is not None:
        return ds_accelerator
    name = os.environ.get("DS_ACCELERATOR", "cpu")
    if name not in SUPPORTED_ACCELERATOR_LIST:
        raise ValueError(f"DS_ACCELERATOR must be one of {SUPPORTED_ACCELERATOR_LIST}")
    return f"DeepSpeed's {name}"


def set_accelerator(accel_obj: Any) -> None:
    """Sets the accelerator."""
    global ds_accelerator
    ds_accelerator = accel_obj
