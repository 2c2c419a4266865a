"""The base of the weights' templates: names, loading, and moving between host and device."""

import torch
from lightx2v_platform.base.global_var import AI_DEVICE


class Weight:
    def __init__(
        self,
        weight_name,
        bias_name=None,
        create_cuda_buffer=False,
        create_cpu_buffer=False,
        lazy_load=False,
        lazy_load_file=None,
        is_post_adapter=False,
        lora_prefix="diffusion_model.blocks",
        lora_path="",
    ):
        self.weight_name = weight_name
        self.bias_name = bias_name
        self.create_cuda_buffer = create_cuda_buffer
        self.create_cpu_buffer = create_cpu_buffer
        self.lazy_load = lazy_load
        self.lazy_load_file = lazy_load_file
        self.is_post_adapter = is_post_adapter
        self.lora_prefix = lora_prefix
        self.lora_path = lora_path
        self.has_lora_branch = False
        self.config = {}
        self.infer_dtype = self.sensitive_layer_dtype = torch.bfloat16
        self.weight = self.bias = None

    def load(self, weight_dict):
        if self.weight_name is not None:
            self.weight = weight_dict[self.weight_name]
        if self.bias_name is not None:
            self.bias = weight_dict[self.bias_name]

    def to_cuda(self, non_blocking=False):
        self._move(AI_DEVICE, non_blocking)

    def to_cpu(self, non_blocking=False):
        self._move("cpu", non_blocking)

    def _move(self, device, non_blocking):
        for name in ("weight", "bias", "weight_scale"):
            value = getattr(self, name, None)
            if value is not None:
                setattr(self, name, value.to(device, non_blocking=non_blocking))

    def _get_actual_weight(self):
        difference = getattr(self, "weight_diff", None)
        return self.weight if difference is None else self.weight + difference

    def _get_actual_bias(self):
        difference = getattr(self, "bias_diff", None)
        return self.bias if difference is None else self.bias + difference
