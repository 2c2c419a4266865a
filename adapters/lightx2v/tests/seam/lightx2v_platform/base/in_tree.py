"""A platform of the tree, on the CPU."""

from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER


@PLATFORM_DEVICE_REGISTER("cuda")
class InTreeDevice:
    name = "cuda"

    @staticmethod
    def init_device_env():
        pass

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def get_device():
        return "cpu"

    @staticmethod
    def init_parallel_env():
        pass
