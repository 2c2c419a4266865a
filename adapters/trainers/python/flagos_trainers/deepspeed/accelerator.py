"""DeepSpeed's accelerator for flagos."""

from __future__ import annotations

from typing import Any

from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator

from flagos_trainers.accelerator import Accelerator


class FlagosAccelerator(Accelerator, DeepSpeedAccelerator):
    """What `deepspeed.accelerator.get_accelerator()` returns under ``DS_ACCELERATOR=flagos``."""

    def export_envs(self) -> list[str]:
        """The variables that the launcher hands to other hosts."""
        return [*super().export_envs(), "DS_ACCELERATOR"]

    def op_builder_dir(self) -> str:
        """The package whose modules DeepSpeed reads for builders."""
        return "flagos_trainers.deepspeed.builders"

    def get_op_builder(self, class_name: str) -> type:
        """The builder of that name; for a kernel of CUDA alone, one whose `load` raises an error that names it."""
        from flagos_trainers.deepspeed import builders

        return builders.named(class_name)

    def create_op_builder(self, class_name: str) -> Any:
        """A builder of that name."""
        return self.get_op_builder(class_name)()
