"""Builds the wheel with the vendor's library: see `core/vendors/kit/vendor_wheel.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kit"))

from vendor_wheel import build

build()
