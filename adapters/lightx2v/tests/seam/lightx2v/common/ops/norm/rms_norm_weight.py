import torch
import torch.distributed as dist

from lightx2v.common.ops.weights import Weight


class RMSWeightTemplate(Weight):
    def __init__(
        self,
        weight_name,
        create_cuda_buffer=False,
        create_cpu_buffer=False,
        lazy_load=False,
        lazy_load_file=None,
        is_post_adapter=False,
        eps=1e-6,
        lora_prefix="diffusion_model.blocks",
        lora_path="",
    ):
        super().__init__(
            weight_name, None, create_cuda_buffer, create_cpu_buffer, lazy_load, lazy_load_file,
            is_post_adapter, lora_prefix, lora_path,
        )  # fmt: skip
        self.eps = eps


class RMSWeightTPFP32(RMSWeightTemplate):
    def apply(self, input_tensor):
        wide = input_tensor.float()
        total = wide.square().sum(dim=-1, keepdim=True)
        if self.tp_group is not None:
            dist.all_reduce(total, group=self.tp_group)
        normed = wide * torch.rsqrt(total / (wide.shape[-1] * self.tp_size) + self.eps)
        return (normed * self._get_actual_weight().float()).to(input_tensor.dtype)


class RMSWeightSgl(RMSWeightTemplate):
    def apply(self, input_tensor):
        assert input_tensor.device.type in ("cpu", "cuda"), "sgl-kernel has no kernel for it"
        return torch.rms_norm(input_tensor, input_tensor.shape[-1:], self._get_actual_weight())
