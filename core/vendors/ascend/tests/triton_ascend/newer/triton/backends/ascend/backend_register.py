"""The registry of frameworks: a function for each framework and method."""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


class Registry:
    """Functions by framework and method, of which each may be registered once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Function] = {}

    def register(self, category: str, method: str) -> Callable[[Function], Function]:
        def keep(function: Function) -> Function:
            assert (category, method) not in self._known, f"{category} has {method} already"
            self._known[category, method] = function
            return function

        return keep

    def execute_func(self, category: str, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._known[category, method](*args, **kwargs)

    def list_categories(self) -> list[str]:
        return sorted({category for category, _ in self._known})

    def list_methods(self, category: str) -> list[str]:
        return [method for each, method in self._known if each == category]


class Proxy:
    """What the module has: it makes the registry late, and forwards these two functions alone."""

    def __init__(self) -> None:
        self._registry: Registry | None = None

    def _get_instance(self) -> Registry:
        self._registry = self._registry or Registry()
        return self._registry

    def register(self, category: str, method: str) -> Callable[[Function], Function]:
        return self._get_instance().register(category, method)

    def execute_func(self, category: str, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._get_instance().execute_func(category, method, *args, **kwargs)


backend_strategy_registry = Proxy()

METHODS = (
    *("version_hash", "cxx_abi", "type_convert", "get_device_interface", "get_empty_tensor"),
    *("get_tensor_params_shape", "get_cc_cmd", "get_current_device", "set_current_device"),
    *("get_current_stream", "header_file", "allocate_memory", "allocate_sync_block_lock"),
    *("pre_launch", "async_launch"),
)


def _not_there(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("torch_npu's method was called")


for _method in METHODS:
    backend_strategy_registry.register("torch_npu", _method)(_not_there)
