import lightx2v_platform.set_ai_device  # noqa: F401
