"""``flagos lightx2v``: ready configurations, and a check of your own."""

from __future__ import annotations

import argparse
import json
from importlib import resources
from pathlib import Path

from flagos.cli.output import CommandError, add_command, print_json, print_table
from lightx2v_fl import rules
from lightx2v_fl.device import device_name

_CONFIGS = """
Without names they are listed. With names they are copied into a folder, where LightX2V can be given
them, and where you can change them.

example:
  $ flagos lightx2v configs wan_t2v_bf16 --to .
  $ PLATFORM=flagos python -m lightx2v.infer --model_cls wan2.1 --task t2v --model_path Wan2.1-T2V-1.3B \\
      --config_json wan_t2v_bf16.json --prompt "a boat in the rain" --save_result_path boat.mp4
"""
_CHECK = """
Names every field that is wrong, misspelt or missing, with its line and what to write. The same check
runs when a program starts under PLATFORM=flagos. Exits with 1 when something is wrong.

example:
  $ flagos lightx2v check my_config.json --model-cls wan2.1 --task t2v
  my_config.json:9: rms_norm_typ: there is no such field; did you mean rms_norm_type?
"""


def parser() -> argparse.ArgumentParser:
    """The command line, with the two commands below it."""
    result = argparse.ArgumentParser(
        prog="flagos lightx2v",
        description="Ready configurations for LightX2V, and a check of your own.",
        epilog="`flagos lightx2v <command> --help` shows examples.",
    )
    commands = result.add_subparsers(metavar="<command>", required=True)
    listing = add_command(
        commands,
        "configs",
        configs,
        summary="list or copy ready configurations for LightX2V",
        details=_CONFIGS,
    )
    listing.add_argument("names", nargs="*", help="configurations to copy; 'all' copies every one")
    listing.add_argument("--to", metavar="DIR", help="the folder to copy to (default: this one)")
    listing.add_argument("--force", action="store_true", help="overwrite files that exist")
    judging = add_command(
        commands,
        "check",
        check,
        summary="check a configuration for LightX2V",
        details=_CHECK,
    )
    judging.add_argument("files", nargs="+", metavar="FILE")
    judging.add_argument(
        "--model-cls", default="wan2.1", help="LightX2V's option (default: wan2.1)"
    )
    judging.add_argument("--task", default="t2v", help="LightX2V's option (default: t2v)")
    judging.add_argument(
        "--device", help="the device (default: the value of FLAGOS_LIGHTX2V_DEVICE)"
    )
    return result


def run(arguments: list[str]) -> int:
    """Runs one command line. Returns 0 for success, 1 for a failure."""
    options = parser().parse_args(arguments)
    return int(options.run(options))


def ready() -> dict[str, str]:
    """The ready configurations: their texts by name."""
    folder = resources.files("lightx2v_fl.configs")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda f: f.name
    )
    return {file.name.removesuffix(".json"): file.read_text(encoding="utf-8") for file in files}


def configs(options: argparse.Namespace) -> int:
    """Lists or copies configurations."""
    found = ready()
    if options.names or options.to:
        return _copy(found, options)
    if options.json:
        print_json({name: json.loads(text) for name, text in found.items()})
        return 0
    print_table(
        ("name", "GPUs", "what it does"), [_row(n, json.loads(t)) for n, t in found.items()]
    )
    return 0


def _row(name: str, config: dict[str, object]) -> tuple[str, str, str]:
    parallel = config.get("parallel") or {}
    assert isinstance(parallel, dict)
    ranks = 1
    parts = [
        {"flagos": "bf16", "flagos-fp8": "fp8", "flagos-int8": "int8"}[
            str(config["dit_quant_scheme"])
        ]
    ]
    for field, words in (
        ("cfg_p_size", "both passes of the guidance at once"),
        ("seq_p_size", f"the sequence shared ({parallel.get('seq_p_attn_type', 'ulysses')})"),
        ("tensor_p_size", "weights shared"),
    ):
        if field in parallel:
            ranks *= int(parallel[field])
            parts.append(words)
    if config["cpu_offload"]:
        parts.append(f"weights on the host, by {config['offload_granularity']}")
    if config.get("lora_configs"):
        parts.append("a LoRA (write its path)")
    return name, str(ranks), ", ".join(parts)


def _copy(found: dict[str, str], options: argparse.Namespace) -> int:
    names = list(found) if options.names in ([], ["all"]) else options.names
    unknown = [name for name in names if name.removesuffix(".json") not in found]
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], found, n=1)
        hint = f"did you mean {near[0]}?" if near else "flagos lightx2v configs lists them"
        raise CommandError(f"there is no configuration {unknown[0]!r}", hint)
    folder = Path(options.to or ".")
    folder.mkdir(parents=True, exist_ok=True)
    targets = {
        folder / f"{name.removesuffix('.json')}.json": name.removesuffix(".json") for name in names
    }
    existing = [path for path in targets if path.exists()]
    if existing and not options.force:
        raise CommandError(f"{existing[0]} exists", "give --force to overwrite, or another --to")
    for path, name in targets.items():
        path.write_text(found[name], encoding="utf-8")
    if options.json:
        print_json([str(path) for path in targets])
    else:
        for path in targets:
            print(path)
    return 0


def check(options: argparse.Namespace) -> int:
    """Checks configurations."""
    try:
        device = device_name(options.device)
    except ValueError as error:
        raise CommandError(str(error), "or leave it out: the device is flagos") from error
    results = {}
    for name in options.files:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise CommandError(
                f"{name} cannot be read: {reason}", "flagos lightx2v configs has ready ones"
            ) from error
        problems = rules.check_text(
            text, model_cls=options.model_cls, task=options.task, device=device
        )
        results[name] = [{**p.as_data(), "line": rules.line_of(text, p.field)} for p in problems]
        if not options.json:
            for problem in problems:
                print(rules.located(problem, name, text))
            if not problems:
                print(f"{name}: OK")
    if options.json:
        print_json(results)
    return 1 if any(results.values()) else 0
