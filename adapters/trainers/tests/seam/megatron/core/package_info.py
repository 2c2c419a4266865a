"""As Megatron's."""

MAJOR = 0
MINOR = 17
PATCH = 1
