"""The double of the builder of DeepSpeed's helpers."""

from deepspeed.ops.op_builder.builder import OpBuilder


class UtilsBuilder(OpBuilder):
    """It has nothing."""
