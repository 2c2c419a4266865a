import enum
from typing import NamedTuple


class PlatformEnum(enum.Enum):
    OOT = enum.auto()
    UNSPECIFIED = enum.auto()


class DeviceCapability(NamedTuple):
    major: int
    minor: int
