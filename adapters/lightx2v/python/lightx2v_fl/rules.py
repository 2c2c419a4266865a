"""Rules for a LightX2V configuration, checked before a model is loaded.

    >>> for problem in check(json.load(open("wan_t2v.json"))):
    ...     print(problem)

``flagos lightx2v check`` uses these rules, and so does the start of a program under ``PLATFORM=flagos``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from lightx2v_fl import tables
from lightx2v_fl.device import FLAGOS, VARIABLE, device_name
from lightx2v_fl.fields import (
    CHOICES,
    KINDS,
    LOOKALIKES,
    PARALLEL_KINDS,
    POSITIVE,
    WAN,
    WAN_T2V,
    WORDS,
    Choice,
)

#: The similarity from which a name counts as a misspelling.
_SLIP = 0.86


class ConfigurationError(ValueError):
    """Raised for a configuration that would fail, or run other kernels than it names."""


@dataclass(frozen=True)
class Problem:
    """One wrong field, with a fix."""

    field: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}; {self.fix}"

    def as_data(self) -> dict[str, str]:
        """The problem as plain data, for ``--json``."""
        return asdict(self)


_MISSING = "it is missing"
_MEANT = "did you mean {}?"


def check(
    config: Mapping[str, Any],
    *,
    model_cls: str | None = None,
    task: str | None = None,
    device: str | None = None,
) -> list[Problem]:
    """The problems of `config`, the worst first.

    `model_cls` and `task` are LightX2V's command-line arguments; fields of the configuration override them.
    `device` is the torch device LightX2V runs on, by default the value of FLAGOS_LIGHTX2V_DEVICE.
    """
    model_cls = config.get("model_cls", model_cls)
    task = config.get("task", task)
    device = device_name() if device is None else device
    parallel = config.get("parallel") or {}
    problems = [
        *_slips(config, (*KINDS, *CHOICES), ""),
        *_kinds(config, KINDS, ""),
        *(_words(config, "") if _is_wan(str(model_cls or "")) else ()),
        *_choices(config, device, str(model_cls or "")),
        *_missing(config, str(model_cls or ""), task),
        *(_quantization(config) if _is_wan(str(model_cls or "")) else ()),
        *_loras(config),
        *(() if config.get("disagg_mode") else _ranks(parallel)),
        *_offload(config, device),
        *_encoders(config, device),
    ]
    if isinstance(parallel, Mapping) and parallel:
        problems += [
            *_slips(parallel, tuple(PARALLEL_KINDS), "parallel."),
            *_kinds(parallel, PARALLEL_KINDS, "parallel."),
            *_words(parallel, "parallel."),
        ]
        if not any(problem.field.startswith("parallel") for problem in problems):
            problems += _parallel(config, parallel, device)
    # A misspelt field is also a missing one: only the misspelling is reported.
    meant = {problem.fix for problem in problems}
    return [
        problem
        for problem in dict.fromkeys(problems)
        if not (problem.message.startswith(_MISSING) and _MEANT.format(problem.field) in meant)
    ]


def check_text(text: str, **options: Any) -> list[Problem]:
    """`check` of a JSON text. An error of its syntax is the only problem reported."""
    twice: list[Problem] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        config = dict(pairs)
        if len(config) < len(pairs):
            names = [name for name, _ in pairs]
            repeated = dict.fromkeys(name for name in names if names.count(name) > 1)
            twice.extend(Problem(n, "it is there twice", "leave one of them") for n in repeated)
        return config

    try:
        config = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        return [
            Problem(f"line {error.lineno}", f"this is no JSON: {error.msg}", "correct the file")
        ]
    except RecursionError:
        return [Problem("line 1", "it is nested too deeply to be read", "correct the file")]
    if not isinstance(config, dict):
        return [Problem("line 1", "a configuration is a JSON object", "write {...}")]
    return [*twice, *check(config, **options)]


def line_of(text: str, field: str) -> int | None:
    """The line of a JSON text on which `field` stands."""
    name = f'"{field.rsplit(".", 1)[-1]}"'
    return next((n for n, line in enumerate(text.splitlines(), 1) if name in line), None)


def located(problem: Problem, path: str, text: str) -> str:
    """The problem with file and line."""
    line = line_of(text, problem.field)
    return f"{path}:{line}: {problem}" if line is not None else f"{path}: {problem}"


def require_valid(config: Mapping[str, Any], path: str | None = None) -> None:
    """Raises ConfigurationError with every problem; `path` is the file the configuration is from."""
    problems = [*check(config), *_absent(config)]
    if not problems:
        return
    text = ""
    if path is not None and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    lines = [located(p, path, text) if path is not None else str(p) for p in problems]
    raise ConfigurationError(
        "this configuration does not fit PLATFORM=flagos (flagos lightx2v configs lists ready ones, "
        "FLAGOS_LIGHTX2V_CHECK=0 starts all the same):\n  " + "\n  ".join(lines)
    )


def _absent(config: Mapping[str, Any]) -> Iterator[Problem]:
    """LoRA files that do not exist on this machine. Checked only when the program starts here."""
    for _, path in _named_files(config):
        if path is not None and not os.path.exists(path):
            yield Problem("lora_configs", f"there is no file {path}", "write the path of the LoRA")


def _slips(config: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> Iterator[Problem]:
    """Unknown names that are similar to the name of a missing field."""
    absent = [name for name in known if name not in config]
    for name in config:
        near = get_close_matches(str(name), absent, n=1, cutoff=_SLIP)
        if name not in known and name not in LOOKALIKES and near:
            yield Problem(
                f"{prefix}{name}", "there is no such field", _MEANT.format(prefix + near[0])
            )


def _kinds(
    config: Mapping[str, Any], kinds: Mapping[str, type | tuple[type, ...]], prefix: str
) -> Iterator[Problem]:
    for name, kind in kinds.items():
        value = config.get(name)
        accepted = kind if isinstance(kind, tuple) else (kind,)
        if value is None or (name == "parallel" and value is False):
            continue
        # In Python bool is a subclass of int.
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            words = " or ".join(_JSON_NAMES[k] for k in accepted)
            yield Problem(
                f"{prefix}{name}", f"{json.dumps(value, default=str)} is wrong", f"write {words}"
            )
        elif name in POSITIVE and isinstance(value, int) and value < 1:
            yield Problem(f"{prefix}{name}", f"{value} is wrong", "write 1 or more")


_JSON_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
    list: "a list",
    dict: "an object {...}",
}


def _words(config: Mapping[str, Any], prefix: str) -> Iterator[Problem]:
    for name, words in WORDS.items():
        if not name.startswith(prefix) or ("." in name) != bool(prefix):
            continue
        value = config.get(name.removeprefix(prefix))
        if isinstance(value, str) and value not in words:
            yield Problem(name, f"{value!r} is unknown", _suggest(value, words))


def _suggest(value: str, words: tuple[str, ...]) -> str:
    near = get_close_matches(value, words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"write one of {', '.join(words)}"


def _choices(config: Mapping[str, Any], device: str, model_cls: str) -> Iterator[Problem]:
    for name, choice in CHOICES.items():
        if name in config:
            yield from _choice(name, config[name], choice, device)
        elif device == FLAGOS and choice.default is not None and _is_wan(model_cls):
            yield Problem(
                name,
                f"{_MISSING}, and LightX2V's default {choice.default!r} needs tensors of the chip's "
                "own device",
                f"write {choice.ours!r}",
            )


def _choice(name: str, value: Any, choice: Choice, device: str) -> Iterator[Problem]:
    portable = (choice.ours, *choice.portable)
    if value in portable:
        return
    if value in choice.native:
        if device == FLAGOS:
            yield Problem(
                name,
                f"{value!r} needs tensors of the chip's own device",
                f"write {choice.ours!r}, or set {VARIABLE} to that device",
            )
        return
    near = get_close_matches(str(value), (*portable, *choice.native), n=1)
    fix = f"did you mean {near[0]!r}?" if near else f"write {choice.ours!r}"
    yield Problem(name, f"neither LightX2V nor flagos has a kernel {value!r}", fix)


def _is_wan(model_cls: str) -> bool:
    return model_cls.startswith(("wan2.1", "wan2.2"))


def _missing(config: Mapping[str, Any], model_cls: str, task: str | None) -> Iterator[Problem]:
    if not _is_wan(model_cls) or config.get("disagg_mode"):  # a part of the model alone
        return
    in_the_command_line = task != "t2v" or bool(config.get("target_shape"))
    needed = WAN if in_the_command_line else WAN + WAN_T2V
    for name in needed:
        if name in config:
            continue
        if name in CHOICES:
            yield Problem(name, _MISSING, f"write {CHOICES[name].ours!r}")
        else:
            yield Problem(name, f"{_MISSING}, and {model_cls} needs it", "write it")


def _quantization(config: Mapping[str, Any]) -> Iterator[Problem]:
    scheme = config.get("dit_quant_scheme", "Default")
    quantized = config.get("dit_quantized", False)
    if scheme != "Default" and quantized is False:
        yield Problem(
            "dit_quantized",
            f"LightX2V takes dit_quant_scheme {scheme!r} only with it",
            "write true",
        )
    if quantized is True and scheme == "Default":
        yield Problem(
            "dit_quant_scheme", "it is missing beside dit_quantized", f"write {tables.LINEAR!r}"
        )
    if quantized is True and config.get("lora_configs") and not config.get("lora_dynamic_apply"):
        yield Problem(
            "lora_dynamic_apply",
            "LightX2V does not merge a LoRA where dit_quantized is true",
            "write true, or take dit_quantized and dit_quant_scheme out",
        )


def _named_files(config: Mapping[str, Any]) -> Iterator[tuple[Any, str | None]]:
    """Each LoRA of the configuration, and the file it names."""
    given = config.get("lora_configs")
    for lora in given if isinstance(given, list) else ():
        path = lora.get("path") if isinstance(lora, Mapping) else None
        yield lora, path if isinstance(path, str) and path else None


def _loras(config: Mapping[str, Any]) -> Iterator[Problem]:
    for lora, path in _named_files(config):
        if path is None:
            yield Problem(
                "lora_configs",
                f"{json.dumps(lora, default=str)} names no file",
                'write {"path": "...", "strength": 1.0}',
            )
            continue
        strength = lora.get("strength", 1.0)
        if isinstance(strength, bool) or not isinstance(strength, int | float):
            yield Problem(
                "lora_configs", f"the strength {strength!r} of {path} is wrong", "write a number"
            )


def _ranks(parallel: Any) -> Iterator[Problem]:
    """Several ranks without `parallel`: each would make the same video, all on one device."""
    started = os.environ.get("WORLD_SIZE", "")
    if not parallel and started.isdigit() and int(started) > 1:
        yield Problem(
            "parallel",
            f"it is missing, but {started} ranks were started",
            f'write {{"seq_p_size": {started}}} or another split, or start one rank',
        )


def _offload(config: Mapping[str, Any], device: str) -> Iterator[Problem]:
    offloads = config.get("cpu_offload", False)
    if config.get("lazy_load") and not offloads:
        yield Problem("lazy_load", "it needs cpu_offload", "write cpu_offload: true")
    if config.get("lazy_load") and config.get("offload_granularity") == "model":
        yield Problem(
            "lazy_load", "it goes by block or phase", "write offload_granularity: 'block'"
        )
    if device == "cpu" and not (offloads and config.get("offload_granularity") == "model"):
        yield Problem(
            "cpu_offload",
            "on the device 'cpu' LightX2V takes every weight for an offloaded one",
            "write cpu_offload: true and offload_granularity: 'model'",
        )


def _encoders(config: Mapping[str, Any], device: str) -> Iterator[Problem]:
    for encoder in ("t5", "clip"):
        if device == FLAGOS and config.get(f"{encoder}_quantized") is True:
            yield Problem(
                f"{encoder}_quantized",
                "LightX2V's quantized encoders are kernels for tensors of the chip's own device",
                f"write false, and {encoder}_cpu_offload: true for less memory, or set {VARIABLE} to "
                "that device",
            )


def _parallel(
    config: Mapping[str, Any], parallel: Mapping[str, Any], device: str
) -> Iterator[Problem]:
    sizes = {
        name: int(parallel.get(name, 1)) for name in ("seq_p_size", "cfg_p_size", "tensor_p_size")
    }
    for name, size in sizes.items():
        if size < 1:
            yield Problem(f"parallel.{name}", f"{size} ranks are none", "write 1 or more")
    if sizes["cfg_p_size"] not in (1, 2):
        yield Problem("parallel.cfg_p_size", "there are two passes to share", "write 1 or 2")
    ranks = sizes["seq_p_size"] * sizes["cfg_p_size"] * sizes["tensor_p_size"]
    started = os.environ.get("WORLD_SIZE")
    if started is not None and started.isdigit() and int(started) != ranks:
        yield Problem(
            "parallel",
            f"seq_p_size x cfg_p_size x tensor_p_size is {ranks}, but {started} ranks were started",
            f"start torchrun --nproc_per_node={ranks}, or change the sizes",
        )
    heads = config.get("num_heads")
    split = sizes["tensor_p_size"] * (
        1 if parallel.get("seq_p_attn_type") == "ring" else sizes["seq_p_size"]
    )
    if isinstance(heads, int) and heads % split:
        yield Problem(
            "parallel",
            f"{heads} heads cannot be shared by {split} ranks",
            "use a divisor, or seq_p_attn_type: 'ring'",
        )
    if parallel.get("seq_p_attn_type") == "ring" and parallel.get("seq_p_head_parallel"):
        yield Problem("parallel.seq_p_head_parallel", "ring attention has none", "write false")
    if device == FLAGOS and parallel.get("seq_p_prepost_backend") == "triton":
        yield Problem(
            "parallel.seq_p_prepost_backend", "it takes tensors of cuda alone", "write 'torch'"
        )
    if device == FLAGOS and config.get("load_from_rank0") and sizes["tensor_p_size"] == 1:
        yield Problem(
            "load_from_rank0",
            "LightX2V hands the weights on as tensors of cuda",
            f"take it out, or set {VARIABLE}=cuda",
        )
    for name in ("seq_p_fp8_comm", "seq_p_fp4_comm", "seq_p_quant_scheme"):
        if device == FLAGOS and parallel.get(name):
            yield Problem(
                f"parallel.{name}",
                "LightX2V compresses with CUDA kernels of other packages",
                f"take it out, or set {VARIABLE}=cuda",
            )
