"""Tables: `register` refuses a name twice, assignment overwrites, `merge` refuses what is there."""


class Register(dict):
    def __call__(self, key):
        return lambda target: self.register(target, key)

    def register(self, target, key=None):
        if not callable(target):
            raise Exception(f"{target} must be callable")
        key = target.__name__ if key is None else key
        if key in self:
            raise Exception(f"{key} already exists")
        self[key] = target
        return target

    def merge(self, other):
        for key, value in other.items():
            if key in self:
                raise Exception(f"{key} already exists in target register")
            self[key] = value


PLATFORM_DEVICE_REGISTER = Register()
PLATFORM_ATTN_WEIGHT_REGISTER = Register()
PLATFORM_MM_WEIGHT_REGISTER = Register()
PLATFORM_RMS_WEIGHT_REGISTER = Register()
PLATFORM_LAYERNORM_WEIGHT_REGISTER = Register()
PLATFORM_ROPE_REGISTER = Register()
PLATFORM_FUSED_MOE_REGISTER = Register()
