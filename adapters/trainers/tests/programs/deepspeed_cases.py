"""Trains a small transformer with DeepSpeed in each of the cases that are named, and prints every loss in all its bits.

    torchrun --nproc-per-node 2 deepspeed_cases.py FOLDER CASE ...

The device is what DS_ACCELERATOR says. FOLDER is for checkpoints and swapped tensors. One line of JSON for each case,
by rank 0: the losses as hexadecimal floats, and for a case that resumes those of the run that was not interrupted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from torch import Tensor, nn

WIDTH, LAYERS, WORDS, LENGTH, BATCH = 32, 4, 64, 16, 2
GLOBAL = 4


class Layer(nn.Module):
    """A layer of a transformer, with experts where there is a number of them."""

    def __init__(self, experts: int = 0, ranks: int = 1) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.moe: Any = None
        if experts:
            from deepspeed.moe.layer import MoE

            self.moe = MoE(WIDTH, nn.Linear(WIDTH, WIDTH), num_experts=experts, ep_size=ranks, k=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = self.norm2(x)
        x = x + self.down(torch.nn.functional.gelu(self.up(y)))
        return x + self.moe(x)[0] if self.moe is not None else x


class Model(nn.Module):
    """A language model. ``checkpointed`` computes activations again in the backward pass."""

    def __init__(self, experts: int = 0, ranks: int = 1, checkpointed: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(experts if n % 2 else 0, ranks) for n in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)
        self.checkpointed = checkpointed

    def forward(self, words: Tensor, targets: Tensor) -> Tensor:
        x = self.words(words)
        for layer in self.layers:
            if self.checkpointed:
                x = deepspeed.checkpointing.checkpoint(layer, x)
            else:
                x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), targets.flatten())


def pipeline() -> Any:
    """The model as a pipeline of two stages."""
    from deepspeed.pipe import LayerSpec, PipelineModule

    layers = [LayerSpec(Layer) for _ in range(LAYERS)]
    return PipelineModule(
        [LayerSpec(nn.Embedding, WORDS, WIDTH), *layers, LayerSpec(nn.Linear, WIDTH, WORDS)],
        num_stages=2,
        loss_fn=lambda x, y: nn.functional.cross_entropy(x.flatten(0, 1).float(), y.flatten()),
        partition_method="uniform",
    )


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """The words of a step: the same whatever the device."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    words = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
    device = get_accelerator().current_device_name()
    return words[:, :-1].to(device), words[:, 1:].contiguous().to(device)


def configuration(stage: int, **more: Any) -> dict[str, Any]:
    """A configuration with torch's Adam, whose bits are those of the CPU on every device."""
    zero = {"stage": stage, "reduce_bucket_size": 5000, "stage3_param_persistence_threshold": 0}
    optimizer = {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True, "weight_decay": 0.01}}
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero | more.pop("zero", {}),
        "optimizer": more.pop("optimizer", optimizer),
        "gradient_clipping": 1.0,
        **more,
    }


def offload(device: str, folder: Path) -> dict[str, Any]:
    """Where swapped tensors go."""
    place: dict[str, Any] = {"device": device, "pin_memory": True}
    return place | ({"nvme_path": str(folder), "buffer_count": 20} if device == "nvme" else {})


BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True, "initial_scale_power": 8}}


def case(name: str, folder: Path) -> dict[str, Any]:
    """The configuration of a case: words that are joined by ``-``, of which the first is the stage of ZeRO."""
    stage, *words = name.split("-")
    config = configuration(int(stage))
    zero = config["zero_optimization"]
    for word in words:
        if word == "bf16":
            config |= BF16
        elif word == "fp16":
            config |= FP16
        elif word == "overflow":  # the first scales overflow, and DeepSpeed halves them
            config |= {"fp16": {"enabled": True, "initial_scale_power": 22, "hysteresis": 1}}
        elif word == "accumulate":
            config["gradient_accumulation_steps"] = 3
        elif word == "overlap":
            zero["overlap_comm"] = True
        elif word in ("fused", "lion", "lamb"):
            kind = {"fused": "AdamW", "lion": "Lion", "lamb": "Lamb"}[word]
            params = {"lr": 1e-2 if word == "fused" else 1e-3, "weight_decay": 0.01}
            config["optimizer"] = {"type": kind, "params": params}
        elif word in ("cpu", "nvme"):
            zero["offload_optimizer"] = offload(word, folder)
            config["optimizer"]["params"].pop("torch_adam")
        elif word == "parameters":
            zero["offload_param"] = offload("cpu", folder)
        elif word == "torchcpu":
            zero["offload_optimizer"] = offload("cpu", folder)
            config["zero_force_ds_cpu_optimizer"] = False
        elif word == "universal":
            config["checkpoint"] = {"load_universal": True}
        elif word not in ("checkpointed", "resume", "experts", "pipeline", "save"):
            raise ValueError(f"no case has the word {word}")
    if (
        "universal" in words or "save" in words
    ):  # the words of a step are the same with one rank and with two
        config["train_micro_batch_size_per_gpu"] = GLOBAL // torch.distributed.get_world_size()
    if "nvme" in words:
        config["aio"] = {"block_size": 1 << 17, "queue_depth": 8, "thread_count": 1}
    return config


def engine_of(name: str, folder: Path) -> Any:
    """A new engine, with the same weights whatever the device."""
    config, words = case(name, folder), name.split("-")
    torch.manual_seed(7)
    if "pipeline" in words:
        config["gradient_accumulation_steps"] = 2
        model: Any = pipeline()
    elif "experts" in words:
        model = Model(2, torch.distributed.get_world_size())
    else:
        model = Model(checkpointed="checkpointed" in words)
    parameters: Any = model.parameters()
    if "experts" in words:
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

        parameters = split_params_into_different_moe_groups_for_optimizer(
            {"params": list(model.parameters()), "name": "parameters"}
        )
    engine, *_ = deepspeed.initialize(model=model, model_parameters=parameters, config=config)
    return engine


def mean_of_all(engine: Any, step: int) -> str:
    """A step over the same words whatever the number of ranks. The mean of the ranks' losses."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    words, targets = (
        torch.cat(parts) for parts in zip(batch(step, 0), batch(step, 1), strict=True)
    )
    mine = slice(rank * GLOBAL // ranks, (rank + 1) * GLOBAL // ranks)
    loss = engine(words[mine], targets[mine])
    engine.backward(loss)
    engine.step()
    total = loss.detach().float().clone()
    torch.distributed.all_reduce(total)
    return float(total.item() / ranks).hex()


def train(engine: Any, steps: range, words: list[str]) -> list[str]:
    """The losses of some steps, in all their bits."""
    losses = []
    rank = torch.distributed.get_rank()
    for step in steps:
        if hasattr(engine, "train_batch"):
            loss = engine.train_batch(iter([batch(2 * step, 0), batch(2 * step + 1, 0)]))
            losses.append(float(loss.item()).hex())
            continue
        if "universal" in words or "save" in words:
            loss = mean_of_all(engine, step)
            losses.append(loss)
            continue
        loss = engine(*batch(step, rank))
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.item()).hex())
    return losses


def run(name: str, folder: Path) -> dict[str, Any]:
    """The losses of a case."""
    words = name.split("-")
    steps = 12 if "accumulate" in words else 4
    engine = engine_of(name, folder)
    if "save" in words:
        train(engine, range(steps // 2), words)
        engine.save_checkpoint(folder / "saved", tag="half")
        return {"losses": train(engine, range(steps // 2, steps), words)}
    if "universal" in words:
        engine.load_checkpoint(folder / "universal", tag="half")
        return {"losses": train(engine, range(steps // 2, steps), words)}
    losses = train(engine, range(steps), words)
    found: dict[str, Any] = {"losses": losses}
    if "overflow" in words:
        found["scale"] = engine.optimizer.loss_scaler.loss_scale
        found["skipped"] = engine.skipped_steps
    if "resume" in words:
        engine = engine_of(name, folder)
        train(engine, range(steps // 2), words)
        engine.save_checkpoint(folder / name, tag="half")
        engine = engine_of(name, folder)
        engine.load_checkpoint(folder / name, tag="half")
        found["resumed"] = train(engine, range(steps // 2, steps), words)
    return found


def main() -> None:
    """Runs the cases."""
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name())
    rank = torch.distributed.get_rank()
    for name in sys.argv[2:]:
        found = {
            "case": name,
            "device": get_accelerator().device_name(),
            "backend": torch.distributed.get_backend(),
            **run(name, folder),
        }
        torch.distributed.barrier()
        if rank == 0:
            print("RESULT " + json.dumps(found), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
