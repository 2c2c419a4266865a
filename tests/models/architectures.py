"""Three models that together use the operators of most programs, each small enough for a test.

A model here is a torch.nn.Module with random weights and a function that turns one batch into a
scalar loss. Everything is drawn on the CPU from a seed, so that two devices start from the same
bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 256


@dataclass(frozen=True)
class Architecture:
    """How to build a model, feed it, and read it."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[Tensor, ...]]  # inputs, on the CPU
    logits: Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
    loss: Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with batch norm and a shortcut; halves the image when `stride` is 2."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.body(images) + self.shortcut(images))


class ResNet(nn.Module):
    """A residual network over 3×32×32 images with ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)
        )
        self.pool = nn.MaxPool2d(2)
        self.blocks = nn.Sequential(
            ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2)
        )
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.pool(self.stem(images)))
        pooled = functional.adaptive_avg_pool2d(features, 1).flatten(1)
        return self.head(self.dropout(pooled))


class CharacterLSTM(nn.Module):
    """A two-layer LSTM that predicts the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.lstm = nn.LSTM(32, 64, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(64, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.head(hidden)


def _qwen3() -> nn.Module:
    # Tied embeddings: moving the model to a device must not untie them.
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=128,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )


def _tokens(generator: torch.Generator) -> tuple[Tensor, ...]:
    return (torch.randint(VOCABULARY, (4, 32), generator=generator),)


def _images(generator: torch.Generator) -> tuple[Tensor, ...]:
    return (
        torch.randn(4, 3, 32, 32, generator=generator),
        torch.randint(10, (4,), generator=generator),
    )


def _next_byte_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    predicted = model(batch[0])[:, :-1].flatten(0, 1)
    return functional.cross_entropy(predicted, batch[0][:, 1:].flatten())


QWEN3 = Architecture(
    name="qwen3",
    build=_qwen3,
    batch=_tokens,
    logits=lambda model, batch: model(input_ids=batch[0]).logits,
    loss=lambda model, batch: model(input_ids=batch[0], labels=batch[0]).loss,
    optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3),
)
RESNET = Architecture(
    name="resnet",
    build=ResNet,
    batch=_images,
    logits=lambda model, batch: model(batch[0]),
    loss=lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1]),
    optimizer=lambda model: torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4
    ),
)
LSTM = Architecture(
    name="lstm",
    build=CharacterLSTM,
    batch=_tokens,
    logits=lambda model, batch: model(batch[0]),
    loss=_next_byte_loss,
    optimizer=lambda model: torch.optim.RMSprop(model.parameters(), lr=1e-3),
)
ARCHITECTURES = (QWEN3, RESNET, LSTM)
