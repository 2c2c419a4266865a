"""vLLM's wrapper of LoRA over its own Triton kernels, interpreted, and over the references: ``adapters.py``.

The test starts it with TRITON_INTERPRET=1 and CUDA_VISIBLE_DEVICES="", by which vLLM uses Triton without a driver.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import serving
import torch
from interpreted import complete_interpreter


def products(wrapper: Any, mapping: list[int]) -> list[float]:
    """What a linear layer of two slices and the logits get from adapters of rank 16."""
    torch.manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float16).to(
            "flagos"
        )  # the interpreter multiplies no bfloat16

    slots = torch.tensor(mapping, dtype=torch.int64, device="flagos")
    wrapper.token_mapping_meta.prepare_tensors(slots)
    wrapper.prompt_mapping_meta.prepare_tensors(slots)
    x, y = random(len(mapping), 32), random(len(mapping), 48)
    a = tuple(random(2, 1, 16, 32) for _ in range(2))
    b = tuple(random(2, 1, width, 16) for width in (32, 16))
    wrapper.add_lora_linear(y, x, a, b, 0.5, (32, 16))
    logits = random(len(mapping), 64)
    wrapper.add_lora_logits(logits, x, random(2, 1, 16, 32), random(2, 1, 64, 16), 0.5)
    found: list[float] = torch.cat((y.flatten(), logits.flatten())).tolist()
    return found


if __name__ == "__main__":
    complete_interpreter()
    import flagos
    from vllm_flagos import completions

    completions.install()
    from vllm.lora.punica_wrapper.punica_gpu import PunicaWrapperGPU

    config = SimpleNamespace(max_loras=2, specialize_active_lora=False)
    wrapper = PunicaWrapperGPU(16, 4, "flagos", lora_config=config)
    names = ("vllm::lora_shrink", "vllm::lora_expand")
    winners = [flagos.explain(name).data["winner"] for name in names]
    mixed = [0, -1, 1, 1, 0, -1, 1]
    by_triton = {str(m): products(wrapper, m) for m in (mixed, [-1] * 7)}
    with flagos.route(dict.fromkeys(names, "reference")):
        by_reference = {str(m): products(wrapper, m) for m in (mixed, [-1] * 7)}
    serving.report(winners=winners, triton=by_triton, reference=by_reference)
