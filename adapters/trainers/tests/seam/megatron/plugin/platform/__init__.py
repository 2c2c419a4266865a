"""As Megatron's."""

from .platform_manager import get_platform, set_platform  # noqa: F401
