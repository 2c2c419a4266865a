"""Makes flagos' driver the one that Triton launches by."""

from __future__ import annotations

import sys
from typing import Any

from flagos_ascend.triton_ascend import driver


def register() -> None:
    """Called when `triton.runtime.driver` is imported. Compiles nothing: the driver is made when it is first used.

    A Triton without the back end for Ascend is left as it is, and a driver that the program has made active stays.
    Raises RuntimeError for a version that flagos does not know, as every use of the driver does afterwards.
    """
    if not driver.is_installed():
        return
    module: Any = sys.modules["triton.runtime.driver"]
    config = module.driver
    # Later versions look the function up, and keep no driver before the first use.
    module._create_driver = driver.create
    if "default" in vars(config):
        lazy = module.LazyProxy(driver.create)
        if config.active is config.default:
            config.active = lazy
        config.default = lazy
    driver.prepare()  # the compiler asks for the chip without the driver
