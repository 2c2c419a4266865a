import torch


class TorchComplexRope:
    def __init__(self, layout="interleaved", compute_dtype=torch.float32):
        if layout not in ("interleaved", "split_half"):
            raise ValueError(f"Unsupported RoPE layout: {layout}")
        self.layout = layout
        self.compute_dtype = compute_dtype
        self.config = {}

    def prepare_freqs(self, freqs, rotary_dim=None):
        if torch.is_tensor(freqs) and torch.is_complex(freqs):
            return freqs
        cos, sin = freqs if isinstance(freqs, tuple) else freqs.chunk(2, dim=-1)
        if cos.shape[-1] == rotary_dim:
            every = slice(0, None, 2) if self.layout == "interleaved" else slice(rotary_dim // 2)
            cos, sin = cos[..., every], sin[..., every]
        return torch.complex(cos.to(self.compute_dtype), sin.to(self.compute_dtype))

    def prepare_positions(self, freqs):
        return None
