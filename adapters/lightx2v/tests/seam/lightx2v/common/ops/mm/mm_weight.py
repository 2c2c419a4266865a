import torch

from lightx2v.common.ops.weights import Weight


class MMWeightTemplate(Weight):
    def __init__(self, weight_name, bias_name, *args, **kwargs):
        super().__init__(weight_name, bias_name, *args, **kwargs)
        base = f"{self.lora_prefix}.{weight_name.removesuffix('.weight').split('.', 1)[1]}"
        self.weight_diff_name, self.bias_diff_name = f"{base}.diff", f"{base}.diff_b"
        self.lora_down_name, self.lora_up_name = (
            f"{base}.lora_down.weight",
            f"{base}.lora_up.weight",
        )
        self.lora_alpha_name = f"{base}.alpha"

    def register_diff(self, weight_dict):
        if self.weight_diff_name in weight_dict:
            self.weight_diff = weight_dict[self.weight_diff_name].t()
        if self.bias_diff_name in weight_dict:
            self.bias_diff = weight_dict[self.bias_diff_name]

    def register_lora(self, weight_dict, lora_strength=1):
        if self.lora_down_name not in weight_dict:
            return
        self.has_lora_branch = True
        self.lora_down = weight_dict[self.lora_down_name]
        self.lora_up = weight_dict[self.lora_up_name]
        self.lora_strength = lora_strength
        alpha = weight_dict.get(self.lora_alpha_name)
        self.lora_scale = torch.tensor(1.0) if alpha is None else alpha / self.lora_down.shape[0]

    def apply_lora(self, input_tensor):
        rank = torch.mm(input_tensor, self.lora_down.t())
        return self.lora_strength * self.lora_scale * torch.mm(rank, self.lora_up.t())


class MMWeight(MMWeightTemplate):
    def __init__(self, weight_name, bias_name=None, *args, **kwargs):
        super().__init__(weight_name, bias_name, *args, **kwargs)

    def load(self, weight_dict):
        super().load(weight_dict)
        self.weight = self.weight.t()


class MMWeightQuantTemplate(MMWeightTemplate):
    def __init__(self, weight_name, bias_name, *args, **kwargs):
        super().__init__(weight_name, bias_name, *args, **kwargs)
        self.weight_scale_name = self.weight_name.removesuffix(".weight") + ".weight_scale"
        self.weight_need_transpose = True
        self.scale_force_fp32 = False

    def load(self, weight_dict):
        super().load(weight_dict)
        self.weight_scale = weight_dict[self.weight_scale_name]
        if self.weight_need_transpose:
            self.weight = self.weight.t()
        if self.scale_force_fp32:
            self.weight_scale = self.weight_scale.float()
