"""A double of triton-ascend from 3.2.1 on: the driver, the launchers and the registry of frameworks.

It has what flagos is asked for, and was written from reading triton-ascend's sources. `test_newer.py` runs the same
programs on these sources where TRITON_ASCEND_SOURCE names them.
"""

__version__ = "3.2.1"

from . import runtime as runtime
