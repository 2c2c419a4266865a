"""Whether `torch.cuda` computes with flagos loaded what it computes without.

    python -m tests.gpu.beside_cuda [--samples N] [--ops PATTERN] [--device cuda|cpu] [--perturb]

Three processes run samples of PyTorch's OpInfos, forward and backward, on CUDA: two without flagos
and one with it. An operator whose two runs without flagos agree in every bit has to agree with the
third. `--perturb` is the control: it changes one value in the process with flagos.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


def _digest(value: Any) -> str:
    import torch
    from torch.utils import _pytree as pytree

    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            digest.update(f"{leaf.dtype} {tuple(leaf.shape)} {leaf.device.type}".encode())
            if leaf.layout != torch.strided:
                leaf = leaf.to_dense()
            bits = leaf.detach().resolve_conj().resolve_neg().cpu().contiguous()
            digest.update(
                bits.flatten().view(torch.uint8).numpy().tobytes() if bits.numel() else b""
            )
        else:
            digest.update(str(leaf).encode())
    return digest.hexdigest()


def _run_sample(op: Any, sample: Any) -> str:
    import torch
    from torch.utils import _pytree as pytree

    torch.manual_seed(3)
    try:
        output = op(sample.input, *sample.args, **sample.kwargs)
        tensors = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        targets = [
            leaf
            for leaf in pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        outputs = [tensor for tensor in tensors if tensor.requires_grad]
        gradients: Any = ()
        if outputs and targets:
            ones = [torch.ones_like(tensor) for tensor in outputs]
            gradients = torch.autograd.grad(outputs, targets, ones, allow_unused=True)
        return _digest((output, gradients))
    except Exception as error:  # a refusal has to be the same with and without flagos
        return type(error).__name__


def _worker(options: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    loaded = hasattr(torch, "flagos") and torch.flagos.is_available()
    digests: dict[str, list[str]] = {}
    for op in op_db:
        name = op.full_name
        if not fnmatchcase(name, options.ops) or "empty" in name:
            continue  # uninitialised memory differs from itself
        if torch.float32 not in op.supported_dtypes(options.device):
            continue
        backward = torch.float32 in op.supported_backward_dtypes(options.device)
        torch.manual_seed(0)
        try:
            samples = op.sample_inputs(options.device, torch.float32, requires_grad=backward)
            chosen = list(islice(samples, options.samples))
        except Exception as error:  # a generator that fails says nothing about the device
            digests[name] = [f"no samples: {type(error).__name__}"]
            continue
        digests[name] = [_run_sample(op.op, sample) for sample in chosen]
    if options.perturb and loaded:
        digests["add"] = ["perturbed"]
    Path(options.worker).write_text(json.dumps({"flagos": loaded, "digests": digests}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=3, help="samples of each operator")
    parser.add_argument("--ops", default="*", help="shell pattern of operator names")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--perturb", action="store_true", help="the control: must be noticed")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _worker(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        runs = {"first": "0", "second": "0", "beside flagos": "1"}
        command = [sys.executable, "-m", "tests.gpu.beside_cuda", *sys.argv[1:]]
        processes = {
            name: subprocess.Popen(
                [*command, "--worker", str(Path(folder) / name)],
                cwd=_ROOT,
                env={
                    **os.environ,
                    "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload,
                    "OMP_NUM_THREADS": "1",
                },
            )
            for name, autoload in runs.items()
        }
        statuses = [process.wait() for process in processes.values()]  # all of them end
        if any(statuses):
            return 1
        found = {name: json.loads((Path(folder) / name).read_text()) for name in runs}
    if [found[name]["flagos"] for name in runs] != [False, False, True]:
        print(f"flagos was not loaded where it should be: {[found[n]['flagos'] for n in runs]}")
        return 1
    first, second, beside = (found[name]["digests"] for name in runs)
    stable = [name for name in first if first[name] == second[name]]
    different = [name for name in stable if beside.get(name) != first[name]]
    samples = sum(len(first[name]) for name in stable)
    print(
        f"{len(stable)} operators ({samples} samples) agree with themselves without flagos, "
        f"{len(first) - len(stable)} do not; beside flagos {len(different)} of the stable ones differ"
    )
    for name in different:
        print(f"  DIFFERENT {name}")
    return 1 if different or not stable else 0


if __name__ == "__main__":
    sys.exit(main())
