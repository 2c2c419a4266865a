from lightx2v.common.ops.weights import Weight


class LNWeightTemplate(Weight):
    def __init__(
        self,
        weight_name=None,
        bias_name=None,
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
            weight_name, bias_name, create_cuda_buffer, create_cpu_buffer, lazy_load,
            lazy_load_file, is_post_adapter, lora_prefix, lora_path,
        )  # fmt: skip
        self.eps = eps
