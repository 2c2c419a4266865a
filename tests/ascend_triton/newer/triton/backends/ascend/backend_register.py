"""The registry of frameworks: a function for each framework and method."""

from collections.abc import Callable
from typing import Any


class BackendStrategyRegistry:
    def __init__(self) -> None:
        self.strategies: dict[str, dict[str, Callable[..., Any]]] = {}

    def register(self, category: str, method: str) -> Callable[..., Any]:
        def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
            methods = self.strategies.setdefault(category, {})
            if method in methods:
                raise ValueError(f"Strategy {method} already registered")
            methods[method] = function
            return function

        return decorator

    def execute_func(self, category: str, method: str, *args: Any, **kwargs: Any) -> Any:
        return self.strategies[category][method](*args, **kwargs)

    def list_categories(self) -> list[str]:
        return list(self.strategies)

    def list_methods(self, category: str) -> list[str]:
        return list(self.strategies[category])


class _Lazy:
    """What the module has: it forwards these two alone."""

    def __init__(self) -> None:
        self._instance: BackendStrategyRegistry | None = None

    def _get_instance(self) -> BackendStrategyRegistry:
        if self._instance is None:
            self._instance = BackendStrategyRegistry()
        return self._instance

    def register(self, *args: Any) -> Any:
        return self._get_instance().register(*args)

    def execute_func(self, *args: Any, **kwargs: Any) -> Any:
        return self._get_instance().execute_func(*args, **kwargs)


backend_strategy_registry = _Lazy()

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
