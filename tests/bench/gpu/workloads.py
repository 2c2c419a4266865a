"""Whole models by name, without dropout: what one step of each does on a device.

`WORKLOADS[name](device)` builds a model from torch's current seed on the CPU, moves it, and returns its step: a call
that submits one training step or one generation, and returns a number of it (a tensor on the device).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]


def trained(
    model: Any, device: str, loss: Callable[[], Any], autocast: bool = True, **adam: Any
) -> Step:
    """A step of training by AdamW with the options `adam`, which returns its loss."""
    import torch

    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **adam)

    def step() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    return step


def _language(name: str, device: str, batch: int, length: int, config: Any, **more: Any) -> Step:
    import torch
    import transformers

    model = getattr(transformers, name)(config)
    ids = torch.randint(0, config.vocab_size, (batch, length)).to(device)
    return trained(model, device, lambda: model(input_ids=ids, labels=ids, **more).loss, fused=True)


def _bert(device: str, batch: int, length: int) -> Step:
    from transformers import BertConfig

    config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return _language("BertForMaskedLM", device, batch, length, config)


def bert_train(device: str) -> Step:
    """BERT-base, 8 x 256, bf16 autocast."""
    return _bert(device, 8, 256)


def bert_large_batch(device: str) -> Step:
    """BERT-base, 64 x 512, bf16 autocast: the device is never idle."""
    return _bert(device, 64, 512)


def _qwen3() -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=151_936, tie_word_embeddings=True, layer_types=None,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip


def qwen3_train(device: str) -> Step:
    """Qwen3-0.6B, 4 x 512, bf16 autocast."""
    return _language("Qwen3ForCausalLM", device, 4, 512, _qwen3(), use_cache=False)


def gpt2_train(device: str) -> Step:
    """GPT-2, 8 x 512, bf16 autocast."""
    from transformers import GPT2Config

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return _language("GPT2LMHeadModel", device, 8, 512, config, use_cache=False)


def _llama_of(device: str, width: int, layers: int, batch: int, length: int) -> Step:
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
                         num_attention_heads=width // 128)  # fmt: skip
    return _language("LlamaForCausalLM", device, batch, length, config, use_cache=False)


def llama_train(device: str) -> Step:
    """Llama of width 2048 with 8 layers, 2 x 1024, bf16 autocast."""
    return _llama_of(device, 2048, 8, 2, 1024)


def llama_wide(device: str) -> Step:
    """Llama of width 4096 with 4 layers, trained, 4 x 2048, bf16 autocast: the device is never idle."""
    return _llama_of(device, 4096, 4, 4, 2048)


def t5_train(device: str) -> Step:
    """T5-base, 8 x 256 to 64, bf16 autocast."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=768, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12,
                      dropout_rate=0.0, decoder_start_token_id=0)  # fmt: skip
    model = T5ForConditionalGeneration(config)
    ids, labels = (torch.randint(0, 30_000, shape).to(device) for shape in ((8, 256), (8, 64)))
    return trained(model, device, lambda: model(input_ids=ids, labels=labels).loss, fused=True)


def vit_train(device: str) -> Step:
    """ViT-base, 16 x 224 x 224, bf16 autocast."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_labels=1000))
    images, labels = (
        torch.randn(16, 3, 224, 224).to(device),
        torch.randint(0, 1000, (16,)).to(device),
    )
    return trained(
        model, device, lambda: model(pixel_values=images, labels=labels).loss, fused=True
    )


def mlp_train(device: str) -> Step:
    """A perceptron, batches of 128, float32."""
    import torch
    from torch import nn
    from torch.nn import functional

    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    x, y = torch.randn(128, 784).to(device), torch.randint(0, 10, (128,)).to(device)
    return trained(model, device, lambda: functional.cross_entropy(model(x), y), False, fused=True)


def tiny_mlp_train(device: str) -> Step:
    """20 steps of six layers of width 64, batches of 64, float32, AdamW over lists of tensors: what the host costs."""
    import torch
    from torch import nn
    from torch.nn import functional

    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(64, 64), nn.GELU()]
    model = nn.Sequential(*layers)
    x, y = (torch.randn(64, 64).to(device) for _ in range(2))
    step = trained(model, device, lambda: functional.mse_loss(model(x), y), False, foreach=True)
    return lambda: [step() for _ in range(20)][-1]


def lstm_train(device: str) -> Step:
    """A language model of two LSTM layers of width 512, 16 x 64, float32, clipped gradients."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10_000, 512)
            self.lstm = nn.LSTM(512, 512, 2, batch_first=True)
            self.head = nn.Linear(512, 10_000)

        def forward(self, ids: Any) -> Any:
            return self.head(self.lstm(self.embedding(ids))[0])

    model = Model().to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids, labels = (torch.randint(0, 10_000, (16, 64)).to(device) for _ in range(2))

    def step() -> Any:
        loss = functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def cnn_train(device: str) -> Step:
    """A residual network of eight blocks of 64 to 256 channels, 64 x 32 x 32, fp16 autocast with GradScaler, SGD."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self, width: int, wider: int) -> None:
            super().__init__()
            stride = 1 if width == wider else 2
            self.body = nn.Sequential(
                nn.Conv2d(width, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(),
                nn.Conv2d(wider, wider, 3, 1, 1, bias=False), nn.BatchNorm2d(wider),
            )  # fmt: skip
            self.beside = nn.Identity() if stride == 1 else nn.Conv2d(width, wider, 1, stride)

        def forward(self, x: Any) -> Any:
            return functional.relu(self.body(x) + self.beside(x))

    widths = [64, 64, 64, 64, 128, 128, 128, 256, 256]
    blocks = [Block(a, b) for a, b in itertools.pairwise(widths)]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)
    )  # fmt: skip
    model.to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler(device)
    images = torch.randn(64, 3, 32, 32).to(device, memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (64,)).to(device)

    def step() -> Any:
        with torch.autocast(device, torch.float16):
            loss = functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step


def compiled_forward(device: str) -> Step:
    """20 forwards of BERT of four layers of width 256, 4 x 32, bfloat16, by torch.compile(mode="reduce-overhead")."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    model = BertModel(config, add_pooling_layer=False).to(device, torch.bfloat16).eval()
    compiled = torch.compile(model, mode="reduce-overhead")
    ids = torch.randint(0, config.vocab_size, (4, 32)).to(device)

    def step() -> Any:
        with torch.no_grad():
            for _ in range(20):
                y = compiled(input_ids=ids).last_hidden_state
            return y.float().abs().mean()

    return step


def _written(model: Any, device: str, batch: int, prompt: int, tokens: int) -> Step:
    import torch

    model.to(device, torch.bfloat16).eval()
    ids = torch.randint(0, model.config.vocab_size, (batch, prompt)).to(device)

    def step() -> Any:
        with torch.no_grad():
            known = model(input_ids=ids, use_cache=True)
            for _ in range(tokens):
                chosen = known.logits[:, -1].argmax(-1, keepdim=True)
                known = model(
                    input_ids=chosen, past_key_values=known.past_key_values, use_cache=True
                )
        return known.logits.float().abs().mean()

    return step


def qwen3_write(device: str) -> Step:
    """Qwen3-0.6B in bfloat16: a prompt of 4 x 128, and 32 tokens after it."""
    from transformers import Qwen3ForCausalLM

    return _written(Qwen3ForCausalLM(_qwen3()), device, 4, 128, 32)


def gpt2_write(device: str) -> Step:
    """GPT-2 in bfloat16: a prompt of 4 x 128, and 32 tokens after it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return _written(GPT2LMHeadModel(GPT2Config()), device, 4, 128, 32)


def encoder_train(device: str) -> Step:
    """Four encoder layers of width 256, 8 x 64, float32, AdamW over lists of tensors."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    x = torch.randn(8, 64, 256).to(device)
    return trained(model, device, lambda: model(x).square().mean(), False, foreach=True)


def _llama() -> Any:
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=16, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=4096, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def llama_decode(device: str) -> Step:
    """32 steps of one token through 16 small Llama layers, bfloat16, over a static cache."""
    import torch
    from transformers import StaticCache

    model = _llama().to(device, torch.bfloat16).eval()
    cache = StaticCache(config=model.config, max_cache_len=64)
    first = torch.randint(0, 4096, (1, 1)).to(device)
    places = [torch.tensor([place]).to(device) for place in range(32)]

    def step() -> Any:
        ids = first
        cache.reset()
        with torch.no_grad():
            for place in places:
                known = model(
                    input_ids=ids, past_key_values=cache, cache_position=place,
                    position_ids=place[None], use_cache=True,
                )  # fmt: skip
                ids = known.logits[:, -1].argmax(-1, keepdim=True)
        return known.logits.float().abs().mean()

    return step


def llama_generate(device: str) -> Step:
    """`generate` of 32 tokens after 16 by 16 small Llama layers, bfloat16, with the dynamic cache."""
    import torch

    model = _llama().to(device, torch.bfloat16).eval()
    ids = torch.randint(0, 4096, (1, 16)).to(device)

    def step() -> Any:
        with torch.no_grad():
            made = model.generate(
                ids, max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0
            )
        return (made * torch.arange(1, 1 + made.shape[1], device=device)).float().sum()

    return step


def hessian(device: str) -> Step:
    """The Hessian of the loss of a small perceptron, by torch.func: many small calls within transforms."""
    import torch
    from torch.func import functional_call, vmap

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    parameters = {name: one.detach().to(device) for name, one in model.named_parameters()}
    x, y = torch.randn(16, 8).to(device), torch.randn(16, 1).to(device)

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return (functional_call(model, weights, (x,)) - y).square().mean()

    second = vmap(torch.func.hessian(loss), in_dims=(None, 0, 0))

    def step() -> Any:
        found = second(parameters, x, y)
        return sum(block.abs().mean() for row in found.values() for block in row.values())

    return step


def sorting(device: str) -> Step:
    """20 rounds of searchsorted, topk, sort and FFT over 64 x 512."""
    import torch

    x = torch.randn(64, 512).to(device)
    edges = torch.linspace(-3, 3, 64).to(device)

    def step() -> Any:
        total = torch.zeros((), device=device)
        for _ in range(20):
            places = torch.searchsorted(edges, x)
            best, at = x.topk(8)
            ordered, order = x.sort(dim=-1)
            back = torch.fft.irfft(torch.fft.rfft(ordered))
            total = (
                total
                + best.sum()
                + back.square().mean()
                + (places[:, 0] + at[:, 0] + order[:, 0]).sum()
            )
        return total

    return step


def smoke(device: str) -> Step:
    """Operators of many kinds, in float32 and bfloat16, with a gradient."""
    import torch
    from torch.nn import functional

    parts = []
    for dtype in (torch.float32, torch.bfloat16):
        x, y = (torch.randn(64, 512).to(device, dtype) for _ in range(2))
        w = torch.randn(512, 256).to(device, dtype).requires_grad_()
        ids = torch.arange(64).to(device) % 7
        parts.append((x, y, w, ids))

    def step() -> Any:
        total = torch.zeros((), device=device)
        for x, y, w, ids in parts:
            hidden = functional.gelu(x @ w) + functional.silu(x[:, :256] * y[:, 256:])
            hidden = torch.where(hidden > 0, hidden, hidden * 0.5) + w[ids]
            hidden = torch.softmax(hidden, -1) * functional.embedding(ids, w)
            hidden = torch.cat([hidden, hidden.tanh()], -1).sum(-1) + torch.rsqrt(
                hidden.abs() + 1
            ).mean(-1)
            total = total + hidden.float().sum()
        total.backward()
        made = total.detach() + sum(w.grad.float().abs().mean() for _, _, w, _ in parts)
        for _, _, w, _ in parts:
            w.grad = None
        return made

    return step


WORKLOADS: dict[str, Callable[[str], Step]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        qwen3_train, bert_train, gpt2_train, llama_train, t5_train, vit_train, mlp_train, tiny_mlp_train, lstm_train,
        cnn_train, qwen3_write, gpt2_write, encoder_train, llama_decode, llama_generate, bert_large_batch, llama_wide,
        compiled_forward, hessian, sorting, smoke,
    )
}  # fmt: skip
