import os

from lightx2v_platform.base.global_var import AI_DEVICE  # noqa: F401
from lightx2v_platform.registry_factory import PLATFORM_ATTN_WEIGHT_REGISTER

if os.getenv("PLATFORM", "cuda") == "cuda" and "in_tree_attn" not in PLATFORM_ATTN_WEIGHT_REGISTER:
    PLATFORM_ATTN_WEIGHT_REGISTER["in_tree_attn"] = object
