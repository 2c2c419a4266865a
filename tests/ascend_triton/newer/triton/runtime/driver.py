"""The active driver, made when it is first asked for."""

from typing import Any


def _create_driver() -> Any:
    raise RuntimeError("0 active drivers: the program has no torch_npu")


class DriverConfig:
    def __init__(self) -> None:
        self._default: Any = None
        self._active: Any = None

    @property
    def default(self) -> Any:
        if self._default is None:
            self._default = _create_driver()
        return self._default

    @property
    def active(self) -> Any:
        if self._active is None:
            self._active = self.default
        return self._active

    def set_active(self, driver: Any) -> None:
        self._active = driver

    def reset_active(self) -> None:
        self._active = self.default


driver = DriverConfig()
