"""A Wan 2.1 DiT of random weights, run by LightX2V: a program for the tests and the measurement.

    PYTHONPATH=<LightX2V> python tiny_wan.py '{"config": {...}, "out": "latents.pt", ...}'

The argument is a job, or a list of them; what a job leaves out has the value of `DEFAULTS`. For each the
program writes what the model predicted at every step, and the latents they led to, and prints one JSON
line: who served which operator how often.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

# Weights so sharp that bfloat16's rounding moves the prediction by 0.02, and a mistake in a block by ten times that.
GATES = 1.5
SHARPNESS = 2.5

DEFAULTS: dict[str, Any] = {
    "config": {},
    "checkpoint": None,  # a folder; written there when it holds no checkpoint
    "layers": 2,
    "dim": 128,
    "ffn_dim": 256,
    "heads": 4,
    "text_dim": 64,
    "text_len": 12,
    "steps": 3,
    "grid": [16, 3, 8, 8],  # latents: channels, frames, height, width
    "seed": 0,
    "out": None,
    "route": {},
    "math_sdpa": True,
    "fault": None,  # see FAULTS
    "vae": False,
    "text": None,  # "plain" or "offload": encodes a text instead
    "lora": None,
}

TYPES_OF_OURS = {
    "self_attn_1_type": "flagos_flash_attn",
    "cross_attn_1_type": "flagos_flash_attn",
    "cross_attn_2_type": "flagos_flash_attn",
    "rms_norm_type": "flagos_rms_norm",
    "layer_norm_type": "flagos_layer_norm",
    "rope_type": "flagos_rope",
    "modulate_type": "torch",
    "dit_quantized": True,
    "dit_quant_scheme": "flagos",
}
TYPES_OF_TORCH = {
    "self_attn_1_type": "torch_sdpa",
    "cross_attn_1_type": "torch_sdpa",
    "cross_attn_2_type": "torch_sdpa",
    "rms_norm_type": "torch_native",
    "layer_norm_type": "torch",
    "rope_type": "torch_complex_rope",
    "modulate_type": "torch",
}


def model_config(job: dict[str, Any]) -> dict[str, Any]:
    """LightX2V's configuration at the time it builds the model."""
    config = {
        "model_cls": "wan2.1",
        "task": "t2v",
        "infer_steps": job["steps"],
        "target_video_length": 4 * (job["grid"][1] - 1) + 1,
        "sample_shift": 8,
        "sample_guide_scale": 6,
        "enable_cfg": True,
        "cfg_parallel": False,
        "seq_parallel": False,
        "tensor_parallel": False,
        "parallel": False,
        "cpu_offload": False,
        "feature_caching": "NoCaching",
        "dim": job["dim"],
        "num_heads": job["heads"],
        "ffn_dim": job["ffn_dim"],
        "freq_dim": 256,
        "in_dim": job["grid"][0],
        "out_dim": job["grid"][0],
        "num_layers": job["layers"],
        "text_len": job["text_len"],
        "vae_stride": (4, 8, 8),
        "patch_size": (1, 2, 2),
        "lora_configs": None,
        "do_mm_calib": False,
    }
    config.update(job["config"])
    return config


def checkpoint(job: dict[str, Any], device: str = "cpu") -> dict[str, torch.Tensor]:
    """Random weights under Wan's names, so large that a mistake anywhere shows in the result."""
    dim, ffn, channels = job["dim"], job["ffn_dim"], job["grid"][0]
    generator = torch.Generator(device).manual_seed(job["seed"])

    def drawn(*shape: int, by: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator, device=device) * by).to(torch.bfloat16)

    weights = {}

    def linear(name: str, outputs: int, inputs: int, by: float = 1.0) -> None:
        weights[f"{name}.weight"] = drawn(outputs, inputs, by=by * inputs**-0.5)
        weights[f"{name}.bias"] = drawn(outputs, by=0.1)

    weights["patch_embedding.weight"] = drawn(dim, channels, 1, 2, 2, by=(4 * channels) ** -0.5)
    weights["patch_embedding.bias"] = drawn(dim, by=0.1)
    linear("text_embedding.0", dim, job["text_dim"])
    linear("text_embedding.2", dim, dim)
    linear("time_embedding.0", dim, 256)
    linear("time_embedding.2", dim, dim)
    linear("time_projection.1", 6 * dim, dim, by=GATES)
    linear("head.head", 4 * channels, dim)
    weights["head.modulation"] = drawn(1, 2, dim, by=dim**-0.5)
    for block in range(job["layers"]):
        name = f"blocks.{block}"
        weights[f"{name}.modulation"] = drawn(1, 6, dim, by=dim**-0.5)
        for attention in ("self_attn", "cross_attn"):
            for projection in "qkvo":
                linear(f"{name}.{attention}.{projection}", dim, dim)
            for norm in ("norm_q", "norm_k"):
                # Sharp attention: only then does it matter where a token is.
                weights[f"{name}.{attention}.{norm}.weight"] = SHARPNESS + drawn(dim, by=0.2)
        weights[f"{name}.norm3.weight"] = 1 + drawn(dim, by=0.1)
        weights[f"{name}.norm3.bias"] = drawn(dim, by=0.1)
        linear(f"{name}.ffn.0", ffn, dim)
        linear(f"{name}.ffn.2", dim, ffn)
    return weights


def write_checkpoint(job: dict[str, Any], folder: Path) -> None:
    """The checkpoint as one file, and block by block as LightX2V reads it lazily."""
    weights = checkpoint(job)
    (folder / "blocks").mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    for block in range(job["layers"]):
        prefix = f"blocks.{block}."
        part = {name: w for name, w in weights.items() if name.startswith(prefix)}
        save_file(part, folder / "blocks" / f"block_{block}.safetensors")
    rest = {name: w for name, w in weights.items() if not name.startswith("blocks.")}
    save_file(rest, folder / "blocks" / "non_block.safetensors")


def write_lora(job: dict[str, Any], path: Path, rank: int = 4) -> None:
    """A LoRA for every projection of the self-attention and both layers of the feed-forward."""
    generator = torch.Generator().manual_seed(job["seed"] + 1)
    sizes = {f"self_attn.{p}": (job["dim"], job["dim"]) for p in "qkvo"}
    sizes["ffn.0"] = (job["ffn_dim"], job["dim"])
    sizes["ffn.2"] = (job["dim"], job["ffn_dim"])
    weights = {}
    for block in range(job["layers"]):
        for layer, (outputs, inputs) in sizes.items():
            name = f"diffusion_model.blocks.{block}.{layer}"
            weights[f"{name}.lora_down.weight"] = torch.randn(rank, inputs, generator=generator)
            weights[f"{name}.lora_up.weight"] = torch.randn(outputs, rank, generator=generator)
            weights[f"{name}.alpha"] = torch.tensor(0.05)
    save_file({name: w.to(torch.bfloat16) for name, w in weights.items()}, path)


def wrong_rope(model: Any) -> None:
    """Pairs of the wrong elements."""
    for phase in model.transformer_weights.iter_self_attention_phases():
        phase.rope.layout = "split_half"


def no_rms_norm(model: Any) -> None:
    """Queries and keys as they come."""
    for phase in model.transformer_weights.iter_self_attention_phases():
        for norm in (phase.self_attn_norm_q, phase.self_attn_norm_k):
            norm.apply = lambda x: x


FAULTS = {"wrong_rope": wrong_rope, "no_rms_norm": no_rms_norm}


def inputs(job: dict[str, Any], device: str) -> dict[str, Any]:
    """Outputs in place of the text encoder's, for the prompt and for the negative prompt."""
    generator = torch.Generator().manual_seed(job["seed"] + 2)
    shape = (1, job["text_len"], job["text_dim"])
    contexts = [torch.randn(shape, generator=generator).to(device, torch.bfloat16) for _ in "ab"]
    return {"text_encoder_output": {"context": contexts[0], "context_null": contexts[1]}}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Runs the job; what it prints."""
    folder = Path(job["checkpoint"])
    if not (folder / "model.safetensors").exists():
        write_checkpoint(job, folder)

    import lightx2v.utils.set_config as set_config
    import torch.distributed as dist
    from lightx2v.models.networks.wan.model import WanModel
    from lightx2v.models.schedulers.wan.scheduler import WanScheduler
    from lightx2v_platform.base.global_var import AI_DEVICE
    from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER

    torch.set_grad_enabled(False)
    config = model_config(job)
    if config["parallel"]:
        PLATFORM_DEVICE_REGISTER[os.environ["PLATFORM"]].init_parallel_env()
        set_config.set_parallel_config(config)
    offloads = config["cpu_offload"]
    lazy = config.get("lazy_load", False)
    path = str(folder / "blocks") if lazy else str(folder / "model.safetensors")
    config["dit_original_ckpt"] = config["dit_quantized_ckpt"] = path
    device = torch.device("cpu" if offloads else AI_DEVICE)
    lora = {"lora_path": job["lora"], "lora_strength": 1.0} if job["lora"] else {}
    if lora:
        config["lora_configs"] = [{"path": job["lora"], "strength": 1.0}]
        config["lora_dynamic_apply"] = True
    model = WanModel(str(folder), config, device, **lora)
    if AI_DEVICE == "cpu" and not offloads:
        model.to_cuda()  # LightX2V takes weights on the CPU for offloaded ones
    if job["fault"]:
        FAULTS[job["fault"]](model)
    scheduler = WanScheduler(config)
    model.set_scheduler(scheduler)
    scheduler.generator = torch.Generator()  # the CPU's, for every device the same noise
    noise = torch.randn(job["grid"], generator=torch.Generator().manual_seed(job["seed"] + 3))
    scheduler.prepare_latents = lambda *_, **__: setattr(scheduler, "latents", noise.to(AI_DEVICE))
    scheduler.prepare(job["seed"], job["grid"])
    given = inputs(job, AI_DEVICE)
    predictions = []
    for step in range(job["steps"]):
        scheduler.step_pre(step)
        model.infer(given)
        predictions.append(scheduler.noise_pred_cond.float().cpu())
        scheduler.step_post()
    predictions.append(scheduler.latents.float().cpu())
    if job["out"] and (not dist.is_initialized() or dist.get_rank() == 0):
        torch.save(torch.stack(predictions), job["out"])
    if dist.is_initialized():
        dist.destroy_process_group()
    return {"device": AI_DEVICE, "finite": bool(torch.isfinite(predictions[-1]).all())}


def decode_vae(job: dict[str, Any]) -> dict[str, Any]:
    """Decodes random latents by a Wan VAE of random weights."""
    import lightx2v  # noqa: F401  chooses the device
    from lightx2v.models.video_encoders.hf.wan import vae as wan_vae
    from lightx2v_platform.base.global_var import AI_DEVICE

    torch.set_grad_enabled(False)
    path = Path(job["checkpoint"]) / "vae.pth"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(job["seed"])
        fresh = wan_vae.WanVAE_(
            dim=96,
            z_dim=16,
            dim_mult=[1, 2, 4, 4],
            num_res_blocks=2,
            attn_scales=[],
            temperal_downsample=[False, True, True],
            dropout=0.0,
            pruning_rate=0.75,
        )
        torch.save(fresh.state_dict(), path)
    vae = wan_vae.WanVAE(
        vae_path=str(path), device=torch.device(AI_DEVICE), dtype=torch.float32, use_lightvae=True
    )
    latents = torch.randn(16, 2, 4, 4, generator=torch.Generator().manual_seed(5))
    video = vae.decode(latents.to(AI_DEVICE))
    torch.save(torch.as_tensor(video).float().cpu(), job["out"])
    return {"device": AI_DEVICE, "shape": list(video.shape)}


SMALL_T5 = {
    "vocab_size": 100, "dim": 64, "dim_attn": 64, "dim_ffn": 128, "num_heads": 4,
    "encoder_layers": 2, "num_buckets": 8,
}  # fmt: skip


def encode_text(job: dict[str, Any]) -> dict[str, Any]:
    """Encodes a text by a small umt5 of random weights, in the place of the one size there is."""
    import lightx2v  # noqa: F401  chooses the device
    from lightx2v.common.ops.norm import rms_norm_weight
    from lightx2v.models.input_encoders.hf.wan.t5 import model as t5
    from lightx2v_platform.base.global_var import AI_DEVICE

    def rmsnorm(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        raise TypeError(f"sgl_kernel has no kernel for tensors on {x.device}")

    torch.set_grad_enabled(False)
    # LightX2V's requirements ask for sgl-kernel: its double is registered as if it were installed.
    rms_norm_weight.sgl_kernel = type(sys)("sgl_kernel")
    rms_norm_weight.sgl_kernel.rmsnorm = rmsnorm
    t5.whole = whole = getattr(t5, "whole", t5.umt5_xxl)  # of an earlier job
    ids = torch.tensor([[5, 17, 3, 1, 0, 0]])
    t5.umt5_xxl = lambda **how: whole(**SMALL_T5, **how)
    t5.HuggingfaceTokenizer = lambda **_: lambda texts, **__: (ids, (ids > 0).long())
    path = Path(job["checkpoint"]) / "t5.pth"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(job["seed"])
        fresh = t5.umt5_xxl(
            encoder_only=True, return_tokenizer=False, dtype=torch.bfloat16, device="cpu"
        )
        torch.save(fresh.state_dict(), path)
    offloads = job["text"] == "offload"
    encoder = t5.T5EncoderModel(
        text_len=6, device=torch.device("cpu" if offloads else AI_DEVICE),
        checkpoint_path=str(path), tokenizer_path="", cpu_offload=offloads,
    )  # fmt: skip
    contexts = encoder.infer(["a boat"])
    torch.save(torch.cat([context.float().cpu() for context in contexts]), job["out"])
    return {"device": contexts[0].device.type, "lengths": [len(context) for context in contexts]}


def served(job: dict[str, Any]) -> dict[str, Any]:
    """Runs a job under its routes, and adds who served each operator."""
    work = decode_vae if job["vae"] else encode_text if job["text"] else run
    if os.environ.get("PLATFORM") != "flagos":
        return work(job)
    import flagos
    from lightx2v_fl import operators

    with flagos.route(job["route"]):
        flagos.reset_counters()
        report = work(job)
        report["providers"] = {
            f"lightx2v::{name}": getattr(operators, name).calls
            for name in operators.__all__
            if getattr(operators, name).calls
        }
        report["fallbacks"] = {
            op: counted["fallbacks"]
            for op, counted in flagos.counters().items()
            if counted["fallbacks"]
        }
    return report


def main() -> None:
    """Runs what the argument describes."""
    torch.set_num_threads(1)  # the same sums in the same order
    given = json.loads(sys.argv[1])
    for job in given if isinstance(given, list) else [given]:
        job = {**DEFAULTS, **job}
        kernels = torch.backends.cuda
        for enable in (
            kernels.enable_flash_sdp,
            kernels.enable_mem_efficient_sdp,
            kernels.enable_cudnn_sdp,
        ):
            enable(not job["math_sdpa"])
        print("REPORT " + json.dumps(served(job)), flush=True)


if __name__ == "__main__":
    main()
