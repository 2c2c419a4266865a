"""A double of triton-ascend from 3.2.1 on: the driver, the launchers and the registry of frameworks, as far as flagos is
asked for them. Written from reading its sources; `test_newer.py` runs the same programs on these sources where
TRITON_ASCEND_SOURCE names them."""

__version__ = "3.2.1"

from . import runtime as runtime
