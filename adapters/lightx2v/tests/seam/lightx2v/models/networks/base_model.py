class BaseTransformerModel:
    def __init__(self, config):
        self.config = config
        if config.get("dit_quantized", False):
            self._check_dit_quantized()

    def _check_dit_quantized(self):
        assert self.config.get("dit_quant_scheme", "Default") in ["fp8-vllm", "int8-vllm"]
