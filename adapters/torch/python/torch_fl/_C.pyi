"""The native part of torch_fl, which serves the shim of one torch (see `torch_fl._shims`)."""

from collections.abc import Callable, Sequence
from typing import Any

def open_shim(path: str) -> None:
    """Open the shim at `path` for the functions below; its torch must be imported. Idempotent.

    Raises ImportError when it cannot be opened, or another one is open. Without one the functions below raise
    RuntimeError.
    """

def register(api: object) -> None:
    """Register the device's kernels; `api` is `flagos._core.api_capsule()`. Idempotent."""

def alias_cuda() -> None:
    """Have torch read `cuda` in device strings as `flagos`, in every thread and for good. Idempotent.

    Raises RuntimeError where this torch reads device strings in a way that cannot be redirected.
    """

def watch_device_names(callback: Callable[[], object] | None) -> None:
    """Have `callback` called before torch reads the first device string that names flagos.

    From any thread, and again until this was called with None: the device has its name. What the
    callback raises is raised where the string was read, as RuntimeError.
    """

def open_comm(api: object) -> None:
    """Register the operators behind the backend `flagos` of torch.distributed. Idempotent.

    `api` is `flagos._core.comm_capsule()`.
    """

def registered_ops() -> Sequence[tuple[str, str | None, bool]]:
    """Qualified names of the operators that have a kernel on the device.

    Each with whether it can also be run on copies of its arguments on the CPU.
    """

def composite_ops() -> Sequence[str]:
    """Operators that torch composes of others, without a kernel on the device for strided tensors."""

def torch_version() -> str:
    """Version of torch that the open shim was compiled against."""

class Views:
    """Native views of some arguments of a compiled graph, kept from call to call; one call at a time uses them.

    `address` is what `torch.ops.flagos.views_create` gave for the tensors at `indices` of `arguments`, and becomes
    this object's own; `views` is the list that `torch.ops.flagos.views_tensors` gave, which nothing else has seen, and
    `tensor` is `torch._C.TensorBase`. Raises ValueError if they do not belong together, and RuntimeError if this torch
    keeps its tensors elsewhere than in their Python objects.
    """

    def __init__(
        self,
        address: int,
        arguments: list[Any],
        indices: Sequence[int],
        views: list[Any],
        tensor: type,
    ) -> None: ...
    def enter(self, arguments: list[Any]) -> bool:
        """Put the views in the place of the tensors of `arguments`.

        Returns false, with `arguments` as they were, if a view cannot be pointed at its tensor.
        """

    def replace(self, arguments: list[Any]) -> None:
        """Put the views, which have their memory, in the place of their tensors."""

    def rest(self) -> bool:
        """Take the memory from the views; false, and nothing is done, if somebody still holds one of them."""
