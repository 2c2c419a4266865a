class FusedMoETemplate:
    def __init__(self):
        self._parameters = {}

    def register_parameter(self, name, parameter):
        self._parameters[name] = parameter
        setattr(self, name, parameter)


def create_local_fused_moe(
    backend,
    fc1_weight,
    fc2_weight,
    activation,
    fc1_bias=None,
    fc2_bias=None,
    tune_max_num_tokens=8192,
    fc1_gate_weight=None,
):
    raise ValueError(f"unsupported local fused MoE backend {backend!r}")
