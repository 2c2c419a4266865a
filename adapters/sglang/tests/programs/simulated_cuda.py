"""SGLang's modules on a machine with a GPU, as far as torch says so: which of them take CUDA for there."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace

import serving

MODULES = (
    "managers.scheduler",
    "managers.tokenizer_manager",
    "model_executor.model_runner",
    "models.qwen3",
    "models.llama",
    "models.qwen3_moe",
    "models.glm4_moe",
    "lora.lora_manager",
)

if __name__ == "__main__":
    import torch

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.current_device = lambda: 0
    properties = SimpleNamespace(major=9, minor=0, multi_processor_count=132, name="simulated")
    torch.cuda.get_device_properties = lambda device=None: properties  # type: ignore[assignment,misc,return-value]
    torch.cuda.get_device_capability = lambda device=None: (9, 0)  # type: ignore[assignment]
    import torchvision  # noqa: F401  which compares its CUDA with torch's

    torch.version.cuda = "12.8"
    import sglang.srt.utils.common  # noqa: F401  asks for the platform
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang_flagos import completeness

    completeness.require()
    for name in MODULES:
        import_module(f"sglang.srt.{name}")
    theirs = [module for name, module in sys.modules.items() if name.startswith("sglang.")]
    serving.report(
        asked=sum(hasattr(module, "_is_cuda") for module in theirs),
        cuda=[m.__name__ for m in theirs if getattr(m, "_is_cuda", False)],
        kernels=sorted({"sgl_kernel", "flashinfer"} & sys.modules.keys()),
    )
