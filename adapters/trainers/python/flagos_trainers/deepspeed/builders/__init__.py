"""DeepSpeed's op builders: `op_builder_dir` names this package, and DeepSpeed reads its modules."""

from __future__ import annotations


def named(class_name: str) -> type:
    """The builder of that name: one that serves, or one that refuses."""
    from flagos_trainers.deepspeed.builders import refused, served

    found: type | None = getattr(served, class_name, None)
    return refused.of(class_name) if found is None else found
