"""Identifies this installation for programs that ask Torch-FL: the chip, the file of routes, the native library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from flagos import _core
from torch_fl import _shims
from torch_fl.native import native

# Torch-FL's words for the chips that both know: who makes it, and its class there.
_KNOWN_THERE = {
    "cuda": ("nvidia", "cuda_reference"),
    "ascend": ("huawei", "domestic_accelerator"),
    "metax": ("metax", "domestic_accelerator"),
}
_UNKNOWN = ("unknown", "unknown")  # as for a build without a chip there


def runtime_identity() -> dict[str, Any]:
    """The device that `flagos` stands for in this process, with the keys of Torch-FL's function. Runs no operator.

    `vendor` and `accelerator_class` are Torch-FL's words; both are "unknown" for the host and for chips that it has
    not. `platform_hint` is always "": flagos finds the chip when it runs.
    """
    from torch_fl import flagos as device

    accelerator = native().accelerator
    vendor, accelerator_class = _KNOWN_THERE.get(accelerator, _UNKNOWN)
    count = device.device_count()
    properties = [device.get_device_properties(index) for index in range(count)]
    return {
        "provider": "torch_fl",
        "device_type": "flagos",
        "build_accelerator": accelerator,
        "platform_hint": "",
        "vendor": vendor,
        "accelerator_class": accelerator_class,
        "torch_version": str(torch.__version__),
        "device_count": count,
        "devices": [
            {
                "index": index,
                "logical_device": f"flagos:{index}",
                "name": str(one.name),
                "total_memory": int(one.total_memory),
            }
            for index, one in enumerate(properties)
        ],
    }


def backend_config_path() -> str:
    """The `backends.conf` that routes: the file of FLAGOS_BACKEND_CONFIG, else the one of this package."""
    path = _core.configuration()["backends_conf"]
    return str(Path(path).absolute()) if path else ""


def library_path() -> str:
    """The library with the functions of `torch_fl/include/flagos_torch.h`, which this process has open."""
    return str(_shims.shim_for(torch.__version__))
