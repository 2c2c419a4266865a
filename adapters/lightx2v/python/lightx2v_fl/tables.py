"""This package's entries in LightX2V's tables, and their installation.

LightX2V copies the tables of its platforms into its own once, when `lightx2v.utils.registry_factory` is
first imported. The entries go into the platform tables, and after that import also into LightX2V's own.
An entry imports its class when LightX2V first makes an object of it. By then LightX2V is imported, so the
class can inherit loading, offload and LoRA from LightX2V's templates.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

ATTENTION = "flagos_flash_attn"
LINEAR = "flagos"
FP8_LINEAR = "flagos-fp8"
INT8_LINEAR = "flagos-int8"
RMS_NORM = "flagos_rms_norm"
LAYER_NORM = "flagos_layer_norm"
ROPE = "flagos_rope"
MOE = "flagos_moe"


class Entry:
    """An entry of a table for a class of this package. A call makes an object of the class."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self.__name__ = name
        self.__qualname__ = name

    @property
    def target(self) -> Any:
        """The class, imported if needed."""
        return getattr(import_module(f"lightx2v_fl.modules.{self._module}"), self.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.target, name)

    def __repr__(self) -> str:
        return f"<lightx2v_fl.modules.{self._module}.{self.__name__}>"


#: Name of a platform table of LightX2V → (name of LightX2V's own table, this package's entries).
ENTRIES: dict[str, tuple[str, dict[str, Entry]]] = {
    "PLATFORM_ATTN_WEIGHT_REGISTER": (
        "ATTN_WEIGHT_REGISTER",
        {ATTENTION: Entry("attention", "FlagosAttention")},
    ),
    "PLATFORM_MM_WEIGHT_REGISTER": (
        "MM_WEIGHT_REGISTER",
        {
            LINEAR: Entry("linear", "FlagosLinear"),
            FP8_LINEAR: Entry("linear", "FlagosFp8Linear"),
            INT8_LINEAR: Entry("linear", "FlagosInt8Linear"),
        },
    ),
    "PLATFORM_RMS_WEIGHT_REGISTER": (
        "RMS_WEIGHT_REGISTER",
        {RMS_NORM: Entry("norm", "FlagosRmsNorm")},
    ),
    "PLATFORM_LAYERNORM_WEIGHT_REGISTER": (
        "LN_WEIGHT_REGISTER",
        {LAYER_NORM: Entry("norm", "FlagosLayerNorm")},
    ),
    "PLATFORM_ROPE_REGISTER": ("ROPE_REGISTER", {ROPE: Entry("rope", "FlagosRope")}),
    "PLATFORM_FUSED_MOE_REGISTER": ("FUSED_MOE_REGISTER", {MOE: Entry("moe", "FlagosFusedMoE")}),
}


def install() -> None:
    """Put this package's entries into LightX2V's tables. Idempotent.

    Raises RuntimeError when another plugin has an entry of the same name.
    """
    from lightx2v_platform import registry_factory as platforms

    merged = sys.modules.get("lightx2v.utils.registry_factory")
    for platform_table, (final_table, entries) in ENTRIES.items():
        _add(getattr(platforms, platform_table), platform_table, entries)
        final = getattr(merged, final_table, None)
        if final is not None:
            _add(final, final_table, entries)


def _add(table: Any, name: str, entries: dict[str, Entry]) -> None:
    for key, entry in entries.items():
        present = table.get(key)
        if present is entry:
            continue
        if present is not None:
            raise RuntimeError(
                f"{name} of LightX2V has an entry {key!r} already, {present!r}: uninstall the plugin "
                "it comes from, or lightx2v-fl"
            )
        table.register(entry, key)
