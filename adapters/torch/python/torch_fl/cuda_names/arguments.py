"""Functions of torch that compare the name of a device type, or of a backend, as text."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.amp import autocast_mode

from flagos import UnsupportedError
from flagos.on_import import when_imported
from torch_fl.flagos import amp

_Convert = Callable[[Any], Any]


def named(device: Any) -> Any:
    """The device type or device string that `cuda` stands for; anything else as it is."""
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return "flagos" + device[len("cuda") :]
    return device


def backend(name: Any) -> Any:
    """`nccl`, alone or as the backend of a device type ("cpu:gloo,cuda:nccl"), as the backend flagos."""
    if not isinstance(name, str):
        return name
    return ",".join(
        ":".join({"cuda": "flagos", "nccl": "flagos"}.get(word, word) for word in part.split(":"))
        for part in name.lower().split(",")
    )


def install() -> None:
    """Replace the functions."""
    convert(autocast_mode.autocast, "__init__", device_type=named)
    convert(torch.amp.GradScaler, "__init__", device=named)
    for name in ("custom_fwd", "custom_bwd"):
        convert(autocast_mode, name, device_type=named)
        setattr(torch.amp, name, getattr(autocast_mode, name))
        setattr(torch.cuda.amp, name, getattr(amp, name))
    _autocast_of_the_default_device()
    when_imported("torch.distributed.distributed_c10d", _complete_distributed)
    when_imported("torch.distributed.device_mesh", _complete_meshes)
    when_imported("torch.utils.cpp_extension", _refuse_extensions)


def convert(owner: Any, name: str, **arguments: _Convert) -> None:
    """Have a function take some of its arguments through conversions, whether by place or by name."""
    inner = getattr(owner, name)
    places = {
        place: arguments[parameter]
        for place, parameter in enumerate(inspect.signature(inner).parameters)
        if parameter in arguments
    }

    @functools.wraps(inner)
    def outer(*by_place: Any, **by_name: Any) -> Any:
        taken = [places[i](value) if i in places else value for i, value in enumerate(by_place)]
        for parameter in arguments.keys() & by_name.keys():
            by_name[parameter] = arguments[parameter](by_name[parameter])
        return inner(*taken, **by_name)

    setattr(owner, name, outer)


def _autocast_of_the_default_device() -> None:
    """`torch.is_autocast_enabled()` and its older relatives, which mean CUDA where no device is named."""
    is_enabled, set_enabled = torch.is_autocast_enabled, torch.set_autocast_enabled

    @functools.wraps(is_enabled)
    def is_autocast_enabled(device_type: str = "flagos") -> bool:
        return is_enabled(device_type)

    @functools.wraps(set_enabled)
    def set_autocast_enabled(*arguments: Any) -> None:
        set_enabled(*(("flagos", *arguments) if len(arguments) == 1 else arguments))

    replaced: dict[str, Callable[..., Any]] = {
        "is_autocast_enabled": is_autocast_enabled,
        "set_autocast_enabled": set_autocast_enabled,
        "get_autocast_gpu_dtype": functools.partial(torch.get_autocast_dtype, "flagos"),
        "set_autocast_gpu_dtype": functools.partial(torch.set_autocast_dtype, "flagos"),
    }
    for name, function in replaced.items():
        setattr(torch, name, function)


def _complete_distributed() -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    if not dist.is_available():
        return
    for name in ("init_process_group", "new_group", "split_group"):
        if "backend" in inspect.signature(getattr(distributed_c10d, name)).parameters:
            convert(distributed_c10d, name, backend=backend)
            setattr(dist, name, getattr(distributed_c10d, name))
    for module in (dist, distributed_c10d):
        setattr(module, "is_nccl_available", _nccl_is_flagos)  # noqa: B010


def _nccl_is_flagos() -> bool:
    """True: `nccl` names the backend flagos."""
    return True


def _complete_meshes() -> None:
    import torch.distributed as dist
    from torch.distributed import device_mesh

    if not dist.is_available():
        return
    convert(device_mesh, "init_device_mesh", device_type=named)
    convert(device_mesh.DeviceMesh, "__init__", device_type=named)
    dist.init_device_mesh = device_mesh.init_device_mesh


def _refuse_extensions() -> None:
    """Sources for NVIDIA's compiler cannot run here: say so before a compiler says something else."""
    from torch.utils import cpp_extension

    def refuse_cuda(name: Any, *arguments: Any, **rest: Any) -> NoReturn:
        raise UnsupportedError(
            f"the extension {name!r} has CUDA sources, which need NVIDIA's compiler and device; here cuda means "
            "flagos: build it as a CppExtension, or use the operators of torch in its place"
        )

    load, load_inline = cpp_extension.load, cpp_extension.load_inline

    @functools.wraps(load)
    def load_without_cuda(name: Any, sources: Any, *arguments: Any, **rest: Any) -> Any:
        files = [sources] if isinstance(sources, str) else list(sources)
        if rest.get("with_cuda") or any(str(file).endswith((".cu", ".cuh")) for file in files):
            refuse_cuda(name)
        return load(name, sources, *arguments, **rest)

    @functools.wraps(load_inline)
    def load_inline_without_cuda(name: Any, *arguments: Any, **rest: Any) -> Any:
        given = inspect.signature(load_inline).bind_partial(name, *arguments, **rest).arguments
        if given.get("with_cuda") or given.get("cuda_sources"):
            refuse_cuda(name)
        return load_inline(name, *arguments, **rest)

    cpp_extension.CUDAExtension = refuse_cuda
    cpp_extension.load = load_without_cuda
    cpp_extension.load_inline = load_inline_without_cuda
