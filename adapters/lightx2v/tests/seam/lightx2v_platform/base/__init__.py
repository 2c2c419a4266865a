from lightx2v_platform.base import in_tree  # noqa: F401
from lightx2v_platform.base.base import check_ai_device, init_ai_device

__all__ = ["check_ai_device", "init_ai_device"]
