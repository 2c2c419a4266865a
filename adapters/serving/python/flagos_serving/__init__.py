"""What the adapters of serving engines share: references and FlagGems' kernels of the operators that engines have in
common, their declaration, refusals, the view of torch, and the commands ``check`` and ``verify``.

An engine's adapter names itself in a `flagos_serving.declaration.Framework`. Nothing here imports an engine, and
importing this package imports nothing.
"""

from __future__ import annotations

from flagos_serving._version import __version__

__all__ = ["__version__"]
