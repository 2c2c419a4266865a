"""Adapters with a layer of their own in the place of a classifier's, which vLLM 0.33 has: ``classifier.py``."""

from __future__ import annotations

import serving
import torch

if __name__ == "__main__":
    from vllm_flagos.layers.punica import FlagosPunica

    torch.manual_seed(0)
    wrapper = FlagosPunica(16, 4, "flagos")
    adapters = torch.tensor([1, -1, 0, 1], device="flagos")
    wrapper._sampler_indices[:4] = adapters
    wrapper.indices_len[1] = 4
    x, y = torch.randn(4, 8, device="flagos"), torch.randn(4, 3, device="flagos")
    weights, biases = torch.randn(2, 1, 3, 8, device="flagos"), torch.randn(2, 3, device="flagos")
    expected = y.clone()
    for row in (0, 3):  # adapter 0 has none
        expected[row] = weights[1, 0] @ x[row] + biases[1]
    wrapper.apply_lora_full_linear(
        y, x, weights, biases, torch.tensor([False, True], device="flagos")
    )
    serving.report(found=y.tolist(), expected=expected.tolist())
