from typing import NamedTuple

from sglang.srt.platforms.device_mixin import PlatformEnum


class PlatformCapabilities(NamedTuple):
    supports_triton: bool = False
    graph_capture: bool = False


class SRTPlatform:
    # 0.5.17 has none, and takes Triton for there.
    capabilities = PlatformCapabilities(supports_triton=True)
    _enum = PlatformEnum.UNSPECIFIED
    device_name = "unknown"
    device_type = "cpu"

    def is_out_of_tree(self):
        return self._enum == PlatformEnum.OOT

    def apply_server_args_defaults(self, server_args):
        pass

    def get_paged_allocator_cls(self):
        raise NotImplementedError
