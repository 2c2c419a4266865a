"""The releases of the trainers that this package serves. Imports none of them."""

from __future__ import annotations

#: DeepSpeed's minor releases, each with the version that the tests run.
DEEPSPEED = {"0.19": "0.19.8"}
#: Megatron Core's minor releases in Megatron-LM-FL.
MEGATRON = {"0.17": "0.17.1", "0.18": "0.18.0"}
#: TransformerEngine's, as TransformerEngine-FL has them.
TRANSFORMER_ENGINE = {"2.9": "2.9.0"}
#: The packages whose modules are read as if they said flagos, with their releases.
RETARGETED = {"megatron": MEGATRON, "transformer_engine": TRANSFORMER_ENGINE}


def minor(number: str) -> str:
    """The first two numbers of a version."""
    return ".".join(number.split(".")[:2])


def wrong(trainer: str, number: str, served: dict[str, str]) -> str | None:
    """Why a version of a trainer is not served; None where it is."""
    if minor(number) in served:
        return None
    tried = ", ".join(served.values())
    return f"{trainer} {number} is installed, and this flagos-trainers knows {tried}"
