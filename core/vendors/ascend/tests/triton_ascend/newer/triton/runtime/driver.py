"""The active driver, made when it is first asked for."""

from typing import Any


def _create_driver() -> Any:
    raise RuntimeError("torch_npu's driver was asked for")


class Drivers:
    """The driver that is made by default, and the one in its place."""

    _made: Any = None
    _chosen: Any = None

    @property
    def default(self) -> Any:
        self._made = self._made or _create_driver()
        return self._made

    @property
    def active(self) -> Any:
        return self._chosen or self.default

    def set_active(self, driver: Any) -> None:
        self._chosen = driver

    def reset_active(self) -> None:
        self._chosen = None


driver = Drivers()
