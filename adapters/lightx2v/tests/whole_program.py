"""`python -m lightx2v.infer` from its command line to a video file, over tiny random weights.

    PYTHONPATH=<LightX2V> PLATFORM=flagos python whole_program.py FOLDER CONFIGURATION

Only the text encoder, of which there is one size, gives random contexts instead of encoding the prompt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tiny_wan
import torch
from safetensors.torch import save_file

JOB = {**tiny_wan.DEFAULTS, "text_dim": 4096, "text_len": 16}
ARCHITECTURE = {
    "model_type": "t2v", "dim": 128, "ffn_dim": 256, "num_heads": 4, "num_layers": 2,
    "freq_dim": 256, "in_dim": 16, "out_dim": 16, "text_len": 16, "eps": 1e-6,
}  # fmt: skip
SMALL = {
    "infer_steps": 2, "target_video_length": 5, "target_height": 64, "target_width": 64,
    "text_len": 16, "use_lightvae": True, "vae_dtype": "fp32",
}  # fmt: skip


def prepare(folder: Path, configuration: Path) -> None:
    """A model's folder as Wan's authors publish it, and a configuration for it."""
    from lightx2v.models.video_encoders.hf.wan.vae import WanVAE_

    folder.mkdir(parents=True, exist_ok=True)
    save_file(tiny_wan.checkpoint(JOB), folder / "diffusion_pytorch_model.safetensors")
    (folder / "config.json").write_text(json.dumps(ARCHITECTURE))
    (folder / "run.json").write_text(json.dumps(json.loads(configuration.read_text()) | SMALL))
    torch.manual_seed(0)
    vae = WanVAE_(
        dim=96, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=2, attn_scales=[],
        temperal_downsample=[False, True, True], dropout=0.0, pruning_rate=0.75,
    )  # fmt: skip
    torch.save(vae.state_dict(), folder / "Wan2.1_VAE.pth")


def contexts(runner: Any, input_info: Any) -> dict[str, torch.Tensor]:
    """Stands for the text encoder's outputs of the two prompts."""
    from lightx2v_platform.base.global_var import AI_DEVICE

    generator = torch.Generator().manual_seed(1)
    both = (torch.randn(1, 16, 4096, generator=generator) for _ in "ab")
    return dict(
        zip(
            ("context", "context_null"),
            (c.to(AI_DEVICE, torch.bfloat16) for c in both),
            strict=True,
        )
    )


def main() -> None:
    """Runs LightX2V's own `main`."""
    folder, configuration = Path(sys.argv[1]), Path(sys.argv[2])
    from lightx2v import infer
    from lightx2v.models.runners.wan.wan_runner import WanRunner

    prepare(folder, configuration)
    WanRunner.load_text_encoder = lambda self: [object()]
    WanRunner.run_text_encoder = contexts
    sys.argv = [
        "infer", "--model_cls", "wan2.1", "--task", "t2v", "--model_path", str(folder),
        "--config_json", str(folder / "run.json"), "--prompt", "a boat", "--seed", "1",
        "--save_result_path", str(folder / "video.mp4"),
    ]  # fmt: skip
    infer.main()
    import flagos

    counted = {op: n for op, n in flagos.counters().items() if op.startswith("lightx2v::")}
    print("REPORT " + json.dumps(counted))


if __name__ == "__main__":
    main()
