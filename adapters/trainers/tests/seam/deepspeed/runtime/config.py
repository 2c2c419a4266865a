"""The double of DeepSpeed's configuration: what it was made of, and the method that checks it."""

from typing import Any


class DeepSpeedConfig:
    """Takes an object of JSON."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._param_dict = config
        self._do_sanity_check()

    def _do_sanity_check(self) -> None:
        self.checked = True
