"""As Megatron's."""
