"""Kernels of the vendor's library compute, on memory and streams that the core owns."""

from __future__ import annotations

from torch_fl.native.base import Native


class LibraryNative(Native):
    """A vendor whose devices torch does not know, and whose memory the host cannot touch.

    Operators without a kernel of the library's run on copies of their arguments on the CPU, and random numbers are
    those of the CPU's generator.
    """

    why_no_graphs = "run the region eagerly"
