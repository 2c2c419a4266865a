"""A checkpoint of transformers as the subject of ``flagos demo --model FOLDER``.

The folder is one that `save_pretrained` writes, or a download of a model: `config.json`, weights in safetensors, a
tokenizer. Nothing is downloaded, and no code of the folder is run. The model writes with the weights that it came
with, then learns one passage of the story that ships with the package, in float32 so that the CPU can be compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_fl_cli.demo_common import PROMPT, DemoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from torch_fl_cli.demo_common import Settings

SEQUENCE = 64  # tokens in one training sample
BATCH = 2  # samples in one training step
LEARNING_RATE = 1e-4
TOLERANCE = 2e-3
"""Greatest difference of a loss from the CPU's, in nats per token, on a chip, which sums in another order."""


class Checkpoint:
    """The model of a folder. Raises DemoError when the folder has none."""

    unit = "token"
    learning_rate = LEARNING_RATE
    writes_first = True
    samples = False  # the likeliest token each time: a chip's random numbers are not the CPU's

    def __init__(self, folder: Path, text: bytes) -> None:
        self._folder = folder
        _require(folder)
        tokenizer = self._load("AutoTokenizer", "tokenizer")
        self._decode = tokenizer.decode
        self.prompt: list[int] = list(tokenizer(PROMPT.decode().strip())["input_ids"])
        if not self.prompt:
            raise DemoError(f"the tokenizer of {folder} makes no token of {PROMPT.decode()!r}")
        self._story: list[int] = list(tokenizer(text.decode())["input_ids"])
        if len(self._story) < 2:
            raise DemoError(f"the tokenizer of {folder} makes no tokens of the story")
        # Loaded here, so that what is wrong is told before anything is run.
        self._state: Any = self._load_model()

    def _load(self, kind: str, what: str, **settings: Any) -> Any:
        import transformers

        try:
            # No code of the folder: that is the default, and no question about it is asked.
            return getattr(transformers, kind).from_pretrained(
                str(self._folder), local_files_only=True, trust_remote_code=False, **settings
            )
        except Exception as error:  # transformers and safetensors raise errors of many types
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise DemoError(f"the {what} of {self._folder} cannot be loaded: {lines[0]}") from error

    def _load_model(self) -> Any:
        model, loading = self._load("AutoModelForCausalLM", "model", output_loading_info=True)
        # transformers makes random weights for those that a file lacks, and goes on.
        if missing := sorted(loading["missing_keys"]):
            raise DemoError(
                f"{self._folder} is no whole checkpoint: {len(missing)} weights are missing, such as {missing[0]}"
            )
        return model.float()

    def model(self) -> Any:
        """The model on the CPU, with the weights of the folder."""
        model, self._state = self._state, None
        return model if model is not None else self._load_model()

    def perturb(self, model: Any) -> None:
        """Change one weight by a tenth of a percent."""
        model.get_input_embeddings().weight[self.prompt[-1], 0].mul_(1.001)

    def batches(self, settings: Settings) -> list[Tensor]:
        """The same samples for each step, from the beginning of the story: int64 [BATCH, SEQUENCE]."""
        import torch

        length = min(SEQUENCE, len(self._story) // BATCH)
        passage = torch.tensor(self._story[: BATCH * length]).view(BATCH, length)
        return [passage] * settings.steps

    def text(self, tokens: Sequence[int]) -> str:
        """The tokens as text."""
        return str(self._decode(list(tokens), skip_special_tokens=True))


def _require(folder: Path) -> None:
    if not folder.is_dir():
        raise DemoError(f"{folder} is no folder; --model takes a folder with a checkpoint")
    if not (folder / "config.json").is_file():
        raise DemoError(
            f"{folder} is no checkpoint of transformers: it has no config.json; `save_pretrained` "
            "of a model and its tokenizer writes one"
        )
    if not any(folder.glob("*.safetensors")):
        raise DemoError(f"{folder} has no weights: no file *.safetensors")
