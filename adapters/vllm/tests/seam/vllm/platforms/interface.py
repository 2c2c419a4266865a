"""The classes that a platform is made of."""

import enum
from typing import NamedTuple

import torch


class PlatformEnum(enum.Enum):
    CPU = enum.auto()
    CUDA = enum.auto()
    OOT = enum.auto()
    UNSPECIFIED = enum.auto()


class DeviceCapability(NamedTuple):
    major: int
    minor: int


class Platform:
    _enum: PlatformEnum
    device_name: str

    def is_out_of_tree(self):
        return self._enum == PlatformEnum.OOT

    @classmethod
    def get_device_capability(cls, device_id=0):
        return None

    @classmethod
    def has_device_capability(cls, wanted, device_id=0):
        found = cls.get_device_capability(device_id)
        return found is not None and found.major * 10 + found.minor >= wanted

    def __getattr__(self, name):
        return getattr(getattr(torch, self.device_type), name)


class Cuda(Platform):
    _enum = PlatformEnum.CUDA
    device_name = device_type = "cuda"


class Cpu(Platform):
    _enum = PlatformEnum.CPU
    device_name = device_type = "cpu"


class Unspecified(Platform):
    _enum = PlatformEnum.UNSPECIFIED
    device_name = device_type = ""
