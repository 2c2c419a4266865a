"""The double of Megatron's choice: names, and neither a variable nor an entry point."""

from typing import Any

PLATFORMS: dict[str, Any] = {"cpu": "Megatron's cpu"}
cur_platform: Any = None


def get_platform() -> Any:
    """The platform that was set, or Megatron's."""
    return PLATFORMS["cpu"] if cur_platform is None else cur_platform


def set_platform(platform_obj: Any) -> None:
    """Sets the platform."""
    global cur_platform
    cur_platform = platform_obj
