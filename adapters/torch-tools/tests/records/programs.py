"""Whole models of common sizes, a step or two of each, for records of the calls they make.

    python -m adapters.torch-tools.tests.records.programs [NAME ...] [--out FOLDER] [--list]

Records each by `torch.flagos.record(meta=True)`, in seconds and without memory, and writes what differs by form and
class of sizes to FOLDER/NAME.rec.gz, by default where torch_fl ships records. Layers of one kind are cut down to two:
more of them call the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional

DEVICE = "flagos"
PROGRAMS: dict[str, Callable[[], None]] = {}


def program(one: Callable[[], None]) -> Callable[[], None]:
    """Have a program be recorded under its name."""
    PROGRAMS[one.__name__.replace("_", "-")] = one
    return one


def built(name: str, config: Any, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model of transformers with random weights, whose attention is made of operators."""
    config._attn_implementation = "eager"
    return getattr(transformers, name)(config).to(dtype)


def tokens(*shape: int, below: int = 30_000) -> torch.Tensor:
    return torch.randint(0, below, shape)


def train(
    model: nn.Module,
    loss: Callable[[], torch.Tensor],
    autocast: torch.dtype | None = None,
    fused: bool = False,
) -> None:
    """Two steps of AdamW with a limit for the gradients."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=fused)
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, autocast or torch.bfloat16, enabled=autocast is not None):
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()


@program
def bert_train() -> None:
    """BERT-base, 8 x 256, bf16 autocast."""
    model = built("BertForMaskedLM", transformers.BertConfig(num_hidden_layers=2))
    ids, mask = tokens(8, 256), torch.ones(8, 256, dtype=torch.long)
    train(model, lambda: model(input_ids=ids, attention_mask=mask, labels=ids).loss, torch.bfloat16)


@program
def vit_train() -> None:
    """ViT-base, 16 x 224 x 224, fp16 autocast."""
    model = built(
        "ViTForImageClassification", transformers.ViTConfig(num_hidden_layers=2, num_labels=1000)
    )
    images, labels = torch.randn(16, 3, 224, 224), tokens(16, below=1000)
    train(model, lambda: model(pixel_values=images, labels=labels).loss, torch.float16)


@program
def gpt2() -> None:
    """GPT-2, training 4 x 512 in float32 and in bf16 autocast; one token after 512 in float16."""
    for autocast in (None, torch.bfloat16):
        model = built("GPT2LMHeadModel", transformers.GPT2Config(n_layer=2))
        ids = tokens(4, 512)
        train(model, lambda: model(input_ids=ids, labels=ids).loss, autocast)  # noqa: B023
    _write(built("GPT2LMHeadModel", transformers.GPT2Config(n_layer=2), torch.float16), (1, 512))


def _llama() -> Any:
    return transformers.LlamaConfig(num_hidden_layers=2)  # the sizes of 7B


def _qwen3() -> Any:
    return transformers.Qwen3Config(
        num_hidden_layers=2, hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8,
        head_dim=128, vocab_size=151_936, layer_types=None,
    )  # fmt: skip


def _write(model: nn.Module, *prompts: tuple[int, int]) -> None:
    """A prompt, and three tokens after it."""
    model.eval()
    with torch.no_grad():
        for shape in prompts:
            known = model(input_ids=tokens(*shape), use_cache=True)
            for _ in range(3):
                chosen = known.logits[:, -1].argmax(-1, keepdim=True)
                known = model(
                    input_ids=chosen, past_key_values=known.past_key_values, use_cache=True
                )
            weights = functional.softmax(known.logits[:, -1].float() / 0.7, -1)
            torch.multinomial(weights, 1)


@program
def llama_write() -> None:
    """Llama of the sizes of 7B in bfloat16: prompts of 2048 and of 8 x 128, and tokens after them."""
    _write(built("LlamaForCausalLM", _llama(), torch.bfloat16), (1, 2048), (8, 128))


@program
def llama_train() -> None:
    """Llama of the sizes of 7B, 2 x 1024, bfloat16."""
    model = built("LlamaForCausalLM", _llama(), torch.bfloat16)
    ids = tokens(2, 1024)
    train(model, lambda: model(input_ids=ids, labels=ids).loss)


@program
def qwen3_write() -> None:
    """Qwen3-0.6B in bfloat16: prompts of 512 and of 16 x 64, and tokens after them."""
    _write(built("Qwen3ForCausalLM", _qwen3(), torch.bfloat16), (1, 512), (16, 64))


@program
def qwen3_train() -> None:
    """Qwen3-0.6B, 4 x 512, bf16 autocast."""
    model = built("Qwen3ForCausalLM", _qwen3())
    ids = tokens(4, 512)
    train(model, lambda: model(input_ids=ids, labels=ids).loss, torch.bfloat16)


@program
def resnet50() -> None:
    """ResNet-50, training 32 x 224 x 224 in fp16 autocast; inference in float32, channels last."""
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
    images, labels = torch.randn(32, 3, 224, 224), tokens(32, below=1000)
    train(model, lambda: model(pixel_values=images, labels=labels).loss, torch.float16)
    with torch.no_grad():
        model.eval().to(memory_format=torch.channels_last)
        model(pixel_values=images.contiguous(memory_format=torch.channels_last))


@program
def lstm_train() -> None:
    """A language model of two layers of LSTM, 32 x 128, float32."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10_000, 512)
            self.lstm = nn.LSTM(512, 512, 2, batch_first=True, dropout=0.1)
            self.head = nn.Linear(512, 10_000)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.lstm(self.embedding(ids))[0])

    model, ids = Model(), tokens(32, 16, below=10_000)
    train(model, lambda: functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()))


@program
def mlp_train() -> None:
    """A small perceptron, batches of 128 and of 1000, float32; AdamW and SGD."""
    for batch in (128, 1000):
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10))
        x, y = torch.randn(batch, 784), tokens(batch, below=10)
        train(model, lambda: functional.cross_entropy(model(x), y))  # noqa: B023
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(1280, outputs))
        self.second = nn.Sequential(
            nn.GroupNorm(32, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        made = self.first(x) + self.time(time)[:, :, None, None]
        return self.second(made) + self.shortcut(x)


class _Attention(nn.Module):
    """Attention of operators, over `x` or a text, after a layer norm."""

    def __init__(self, width: int, heads: int, text: int | None = None) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(text or width, width, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, text: torch.Tensor | None = None) -> torch.Tensor:
        x = self.norm(x)
        over = x if text is None else text
        q, k, v = (
            layer(of).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, of in ((self.query, x), (self.key, over), (self.value, over))
        )
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def _time(steps: torch.Tensor, width: int) -> torch.Tensor:
    half = torch.exp(torch.arange(width // 2) * (-9.2 / (width // 2)))
    angles = steps[:, None].float() * half
    return torch.cat([angles.cos(), angles.sin()], -1)


class _UNet(nn.Module):
    """The levels of Stable Diffusion's U-Net that differ: 320 x 64 x 64 with a text, 640 x 32 x 32."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 1280))
        self.begin = nn.Conv2d(4, 320, 3, padding=1)
        self.down, self.inner, self.up = (
            _Residual(320, 320),
            _Residual(320, 640),
            _Residual(960, 320),
        )
        self.attends, self.reads = _Attention(320, 8), _Attention(320, 8, 768)
        self.gate, self.merge = nn.Linear(320, 2560), nn.Linear(1280, 320)
        self.halve, self.whole = nn.Conv2d(320, 320, 3, 2, 1), nn.Conv2d(640, 640, 3, padding=1)
        self.end = nn.Sequential(nn.GroupNorm(32, 320), nn.SiLU(), nn.Conv2d(320, 4, 3, padding=1))

    def forward(self, x: torch.Tensor, steps: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        time = self.time(_time(steps, 320).to(x.dtype))
        x = self.down(self.begin(x), time)
        flat = x.flatten(2).transpose(1, 2)
        flat = flat + self.attends(flat)
        flat = flat + self.reads(flat, text)
        value, gate = self.gate(flat).chunk(2, -1)
        flat = flat + self.merge(value * functional.gelu(gate))
        x = flat.transpose(1, 2).unflatten(2, (64, 64)).contiguous()
        low = self.inner(self.halve(x), time)
        low = self.whole(functional.interpolate(low, scale_factor=2.0, mode="nearest"))
        return self.end(self.up(torch.cat([x, low], 1), time))


@program
def unet() -> None:
    """Two levels of a diffusion U-Net, 4 x 4 x 64 x 64: inference in float16, training in fp16 autocast."""
    x, steps, text = torch.randn(4, 4, 64, 64), tokens(4, below=1000), torch.randn(4, 77, 768)
    model = _UNet()
    train(model, lambda: functional.mse_loss(model(x, steps, text), x), torch.float16)
    with torch.no_grad():
        half = model.eval().half()
        made = half(x.half(), steps, text.half())
        (x.half() - 0.9 * made).clamp(-1, 1)


class _DiT(nn.Module):
    """A block of a diffusion transformer of width 1152 over 256 patches, modulated by time and class."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.classes = nn.Conv2d(4, 1152, 2, 2), nn.Embedding(1001, 1152)
        self.time = nn.Sequential(nn.Linear(256, 1152), nn.SiLU(), nn.Linear(1152, 1152))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(1152, 6 * 1152))
        self.norm = nn.LayerNorm(1152, elementwise_affine=False, eps=1e-6)
        self.attention = _Attention(1152, 16)
        self.mlp = nn.Sequential(nn.Linear(1152, 4608), nn.GELU("tanh"), nn.Linear(4608, 1152))
        self.end = nn.Linear(1152, 16)

    def forward(self, x: torch.Tensor, steps: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        flat = self.patches(x).flatten(2).transpose(1, 2)
        about = self.time(_time(steps, 256).to(x.dtype)) + self.classes(kind)
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(about)[:, None].chunk(6, -1)
        flat = flat + gate * self.attention(self.norm(flat) * (1 + scale) + shift)
        flat = flat + gate2 * self.mlp(self.norm(flat) * (1 + scale2) + shift2)
        made = self.end(flat).unflatten(1, (16, 16)).unflatten(-1, (4, 2, 2))
        return made.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)


@program
def dit() -> None:
    """A diffusion transformer, 8 x 4 x 32 x 32: training in bf16 autocast, inference in bfloat16."""
    x, steps, kind = torch.randn(8, 4, 32, 32), tokens(8, below=1000), tokens(8, below=1001)
    model = _DiT()
    train(model, lambda: functional.mse_loss(model(x, steps, kind), x), torch.bfloat16)
    with torch.no_grad():
        model.eval().bfloat16()(x.bfloat16(), steps, kind)


@program
def whisper() -> None:
    """Whisper base: thirty seconds in float16 and tokens after them; training 4 x 128 in bf16 autocast."""
    config = transformers.WhisperConfig(
        d_model=512, encoder_layers=2, decoder_layers=2, encoder_attention_heads=8, decoder_attention_heads=8,
        encoder_ffn_dim=2048, decoder_ffn_dim=2048,
    )  # fmt: skip
    model = built("WhisperForConditionalGeneration", config)
    sound, ids = torch.randn(4, 80, 3000), tokens(4, 128, below=51_000)
    train(model, lambda: model(input_features=sound, labels=ids).loss, torch.bfloat16)
    with torch.no_grad():
        half = model.eval().half()
        heard = half.model.encoder(sound[:1].half())
        known = half(encoder_outputs=heard, decoder_input_ids=ids[:1, :4], use_cache=True)
        half(
            encoder_outputs=heard,
            decoder_input_ids=ids[:1, :1],
            past_key_values=known.past_key_values,
            use_cache=True,
        )


@program
def t5() -> None:
    """T5-base: training 8 x 256 to 64 in bf16 autocast; inference in float32."""
    config = transformers.T5Config(
        d_model=768,
        d_ff=3072,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=12,
        decoder_start_token_id=0,
    )
    model = built("T5ForConditionalGeneration", config)
    ids, labels = tokens(8, 256), tokens(8, 64)
    train(model, lambda: model(input_ids=ids, labels=labels).loss, torch.bfloat16)
    with torch.no_grad():
        model.eval()(input_ids=ids[:1], decoder_input_ids=labels[:1])


class _Experts(nn.Module):
    """Eight experts, each of which gets a fixed number of tokens that are chosen by their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(1024, 8, bias=False)
        self.up = nn.Parameter(torch.randn(8, 1024, 2 * 1408) * 0.02)
        self.down = nn.Parameter(torch.randn(8, 1408, 1024) * 0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).float().softmax(-1)
        top, chosen = weights.topk(2, -1)
        top = top / top.sum(-1, keepdim=True)
        kept = torch.zeros_like(weights).scatter(1, chosen, top)
        places = kept.t().topk(x.shape[0] // 4, -1)
        order = places.indices.flatten()
        given = x.index_select(0, order).view(8, -1, 1024)
        gate, up = torch.bmm(given, self.up.to(x.dtype)).chunk(2, -1)
        made = torch.bmm(functional.silu(gate) * up, self.down.to(x.dtype)).flatten(0, 1)
        made = made * places.values.flatten()[:, None].to(x.dtype)
        counts = functional.one_hot(chosen, 8).sum((0, 1)).cumsum(0)
        return torch.zeros_like(x).index_add(0, order, made) + 0 * counts.sum()


@program
def moe() -> None:
    """A layer of experts over 4096 tokens: training in bfloat16, inference for 16 tokens."""
    model = _Experts().bfloat16()
    x = torch.randn(4096, 1024).bfloat16()
    train(model, lambda: model(x).float().square().mean())
    with torch.no_grad():
        model.eval()(x[:16])


def record(name: str, out: Path) -> int:
    """Record a program; returns how many calls are kept."""
    from torch_fl_tools.flaggems.recorded import ladder
    from torch_fl_tools.records import files

    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.rec"
        torch.manual_seed(0)
        with torch.flagos.record(whole, meta=True), torch.device(DEVICE):
            PROGRAMS[name]()
        calls = [call for same in ladder.selected(files.read(whole)) for call in same]
    files.write(out, calls, program=" ".join((PROGRAMS[name].__doc__ or "").split()))
    return len(calls)


def main() -> int:
    from torch_fl_tools.records import files

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}; default: all"
    )
    parser.add_argument("--out", type=Path, default=files.SHIPPED)
    parser.add_argument("--list", action="store_true", help="tell the programs; record nothing")
    options = parser.parse_args()
    if unknown := set(options.names) - PROGRAMS.keys():
        parser.error(f"no program is called {', '.join(sorted(unknown))}: --list tells them")
    if options.list:
        for name, one in PROGRAMS.items():
            print(f"{name:12} {' '.join((one.__doc__ or '').split())}")
        return 0
    for name in options.names or PROGRAMS:
        began = time.monotonic()
        path = options.out / f"{name}.rec.gz"
        kept = record(name, path)
        print(
            f"{name}: {kept} calls, {path.stat().st_size} bytes, {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
