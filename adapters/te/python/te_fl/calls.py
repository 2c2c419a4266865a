"""The arguments of an operator's call as Python passes them, whose types only the operator knows."""

from __future__ import annotations

from typing import Any

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
