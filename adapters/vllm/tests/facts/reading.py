"""The facts of a release: what the adapter uses of it, by name. Nothing of vLLM is imported."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import vllm_flagos
from vllm_flagos import releases, torch_view
from vllm_flagos.kernels.table import KERNELS

ADAPTER = Path(vllm_flagos.__file__).parent
Facts = dict[str, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Module of vLLM whose Triton kernels operators replace → a part of a kernel's name, in small letters → the operator.
KERNELS_OF = {
    "v1.worker.block_table": {"computeslotmapping": "slot_mapping"},
    "v1.sample.rejection_sampler": {
        "rejectiongreedysample": "reject_greedily",
        "rejectionrandomsample": "reject_randomly",
        "samplerecoveredtokens": "recover_tokens",
        "expand": "expand_to_tokens",
    },
}
MASK = ("model_executor.layers.attention.mla_attention", "mask_empty_context")
# Names of types whose values are choices of a user: a new one needs a rule, or an operator.
CHOICES = {
    "QuantizationMethods": "model_executor/layers/quantization/__init__.py",
    "CacheDType": "config/cache.py",
    "MoEBackend": "config/kernel.py",
    "SpeculativeMethod": "config/speculative.py",
    "DistributedExecutorBackend": "config/parallel.py",
}
# Parts of vLLM that compute on the device; elsewhere ``torch.cuda`` is about CUDA.
_COMPUTING = (
    "v1/worker",
    "v1/sample",
    "v1/attention",
    "compilation",
    "distributed",
    "lora",
    "utils",
)


def read(sources: Path) -> Facts:
    """Every fact of the release in this folder, which has ``vllm/`` and, if it is whole, ``csrc/``."""
    root = sources / "vllm"
    found: Facts = {}
    found |= _pins(sources)
    found |= _imports(root)
    found |= _overridden(root)
    found |= _platform(root)
    found |= _configuration(root)
    found |= _choices(root)
    found |= _cuda(root)
    for module, paths in kernels(root).items():
        found |= {f"kernel {module}: {path}": operator for path, operator in paths.items()}
    found["parser of `vllm serve`"] = str(parser(root))
    found["warm-up of the first runner"] = str(warm_up(root))
    found["experts with a mask of padding"] = str(masks_padding(root))
    found["weights of integers with rows in any order"] = str(rows_in_any_order(root))
    found["graphs that end at layers with states"] = str(states_end_graphs(root))
    if (sources / "csrc").is_dir():
        found |= _operators(sources)
    return found


# ------------------------------------------------------------------------------- the table of releases


def release(sources: Path, number: str) -> releases.Release:
    """The release's entry of `vllm_flagos.releases`."""
    root = sources / "vllm"
    torch = _pins(sources).get("pin torch", "?")
    return releases.Release(
        tried=number,
        torch=releases.minor(torch),
        kernels={
            module: {path: operator for path, operator in of.items() if operator}
            for module, of in kernels(root).items()
        },
        first_runners_warm_up=warm_up(root),
        parser=parser(root) or "?",
        short_prompts_keep_states=short_prompts_keep_states(root),
        rows_in_any_order=rows_in_any_order(root),
        masks_empty_contexts=_resolve(root, *MASK) is not None,
        masks_padding=masks_padding(root),
        states_end_graphs=states_end_graphs(root),
    )


def kernels(root: Path) -> dict[str, dict[str, str]]:
    """Module → what it launches as Triton kernel → the operator in its place, or nothing."""
    found: dict[str, dict[str, str]] = {}
    for module, operators in KERNELS_OF.items():
        tree = _tree(_file(root, module))
        found[module] = {
            path: next((op for part, op in operators.items() if part in _plain(path)), "")
            for path in _launched(tree)
        }
    return found


def parser(root: Path) -> str | None:
    """The module of the parser of `vllm serve`."""
    for file in sorted((root / "entrypoints").rglob("cli_args.py")):
        if "make_arg_parser" in _names(_tree(file)):
            return _module(root, file)
    return None


def warm_up(root: Path) -> tuple[str, str] | None:
    """Module and function that compile the first model runner's kernels."""
    for file in sorted((root / "model_executor/warmup").glob("*.py")):
        for name, node in _names(_tree(file)).items():
            if name.startswith("warm_v1_block_table") and isinstance(node, ast.FunctionDef):
                return _module(root, file), name
    return None


def short_prompts_keep_states(root: Path) -> bool:
    """Whether gated delta nets take prompts of one token for further tokens."""
    file = _file(root, "v1.attention.backends.gdn_attn")
    return file.is_file() and "treat_short_extends_as_decodes" not in file.read_text()


def rows_in_any_order(root: Path) -> bool:
    """Whether rows of weights of integers may belong to groups in any order."""
    file = _file(root, "model_executor.kernels.linear.mixed_precision.MPLinearKernel")
    return file.is_file() and "has_g_idx" in file.read_text()


def states_end_graphs(root: Path) -> bool:
    """Whether a graph that ends while it is captured ends at layers with states."""
    file = _file(root, "model_executor.layers.mamba.mamba_mixer2")
    return file.is_file() and "eager_break_during_capture" in file.read_text()


def masks_padding(root: Path) -> bool:
    """Whether a mask leaves tokens that fill a batch up without experts."""
    file = _file(root, "model_executor.layers.fused_moe.router.fused_topk_router")
    return file.is_file() and "VLLM_MOE_SKIP_PADDING" in file.read_text()


def _launched(tree: ast.Module) -> Iterator[str]:
    """``kernel`` of ``kernel[grid](...)``, and ``holder.kernel`` of an object that launches the kernel it holds."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    held = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(
            isinstance(below, ast.FunctionDef) and below.name == "kernel" and _compiled(below)
            for below in node.body
        ):
            yield f"{node.name}.kernel"
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                for given in getattr(decorator, "keywords", ()):
                    if given.arg == "kernel":
                        held.add(ast.unparse(given.value))
                        yield f"{node.name}.kernel"
    launched = {
        node.func.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and isinstance(node.func.value, ast.Name)
    }
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    yield from sorted((launched & (functions | imported)) - held)


def _compiled(node: ast.FunctionDef) -> bool:
    return any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


# --------------------------------------------------------------------------------- what the adapter uses


def _imports(root: Path) -> Facts:
    """Every name that the adapter imports from vLLM, or puts an operator in the place of, with its signature."""
    found: Facts = {}
    for module, name in sorted(used()):
        there = _resolve(root, module, name)
        if name == "" or there is not None:
            key = f"vllm.{module}" + (f": {name}" if name else "")
            if name == "" and not _file(root, module).is_file():
                continue
            found[key] = "" if there is None else _shape(there)
    return found


def used() -> set[tuple[str, str]]:
    """What the adapter uses: (module of vLLM, name in it, or nothing for the module itself)."""
    found: set[tuple[str, str]] = set()
    for tree in _adapter():
        found |= _replaced(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm."):
                module = (node.module or "").removeprefix("vllm.")
                found |= {(module, alias.name) for alias in node.names}
            elif isinstance(node, ast.Call):
                words = [a.value for a in node.args if isinstance(a, ast.Constant)]
                texts = [word for word in words if isinstance(word, str)]
                name = ast.unparse(node.func)
                if name == "VLLM.function" and len(texts) == 2:
                    found.add((texts[0], texts[1]))
                elif name == "_module" and texts:
                    found.add((texts[0], ""))
                elif name == "import_module" and texts and texts[0].startswith("vllm."):
                    found.add((texts[0].removeprefix("vllm."), ""))
            elif isinstance(node, ast.Dict):
                found.update(_of_table(node))
    return found


def _replaced(tree: ast.Module) -> set[tuple[str, str]]:
    """What ``vars(module)["name"] = ...`` has another thing in the place of, in modules of vLLM."""
    modules = {
        alias.asname or alias.name: f"{(node.module or '').removeprefix('vllm.')}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm.")
        for alias in node.names
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            word = ast.unparse(node.value)
            module = modules.get(word.removeprefix("vars(").removesuffix(")"))
            if word.startswith("vars(") and module is not None:
                found.add((module, str(node.slice.value)))
    return found


def _of_table(node: ast.Dict) -> Iterator[tuple[str, str]]:
    """Of the tables of `vllm_flagos.completions`: module → name → operator."""
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and "." in str(key.value) and isinstance(value, ast.Dict):
            for name in value.keys:
                if isinstance(name, ast.Constant) and str(key.value).split(".")[0] in (
                    "v1",
                    "lora",
                    "model_executor",
                ):
                    yield str(key.value), str(name.value)


def _overridden(root: Path) -> Facts:
    """Each method of vLLM in whose place the adapter has its own: its signature, and a digest of its body."""
    found: Facts = {}
    for tree in _adapter():
        origins = {
            alias.asname or alias.name: ((node.module or "").removeprefix("vllm."), alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm.")
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            for base in node.bases:
                if ast.unparse(base) not in origins:
                    continue
                module, name = origins[ast.unparse(base)]
                for below in node.body:
                    if isinstance(below, ast.FunctionDef) and not below.name.startswith("__"):
                        theirs = _method(root, module, name, below.name)
                        if theirs is not None:
                            key = f"method {name}.{below.name}"
                            found[key] = f"{_shape(theirs)} {_digest(theirs)}"
    return found


def _method(root: Path, module: str, name: str, method: str) -> Function | None:
    """A method of a class, or of its bases."""
    node = _resolve(root, module, name)
    if not isinstance(node, ast.ClassDef):
        return None
    for below in node.body:
        if isinstance(below, (ast.FunctionDef, ast.AsyncFunctionDef)) and below.name == method:
            return below
    place, _ = _place(root, module, name)
    for base in node.bases:
        word = ast.unparse(base).partition("[")[0]
        found = _method(root, place, word, method) if word.isidentifier() else None
        if found is not None:
            return found
    return None


def _platform(root: Path) -> Facts:
    """The methods of a platform, and what vLLM reads of the platform that serves."""
    node = _resolve(root, "platforms.interface", "Platform")
    found = {
        f"platform {below.name}": _shape(below)
        for below in getattr(node, "body", ())
        if isinstance(below, ast.FunctionDef)
    }
    plugins = _tree(root / "plugins" / "__init__.py")
    for name, value in _names(plugins).items():
        if name.endswith("PLUGINS_GROUP") and isinstance(value, ast.Assign):
            found[f"plugins {name}"] = ast.unparse(value.value)
    for file in sorted(root.rglob("*.py")):
        source = file.read_text()
        asked = source.count("is_out_of_tree()")
        if asked and "platforms/" not in str(file.relative_to(root)):
            found[f"asks for platforms of others: {_module(root, file)}"] = str(asked)
    return found


def _configuration(root: Path) -> Facts:
    """The fields of the configuration that rules read: without one, a rule would never refuse."""
    found: Facts = {}
    for part, field in sorted(_fields()):
        name = "".join(word.capitalize() for word in part.split("_"))
        for file in sorted((root / "config").glob("*.py")):
            node = _names(_tree(file)).get(name)
            if isinstance(node, ast.ClassDef):
                for below in node.body:
                    if field in _defined(below):
                        kind = below.annotation if isinstance(below, ast.AnnAssign) else None
                        found[f"config {name}.{field}"] = "" if kind is None else ast.unparse(kind)
    return found


def _fields() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for function in ast.walk(_tree(ADAPTER / "rules.py")):
        if not isinstance(function, ast.FunctionDef):
            continue
        names: dict[str, str] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                pairs = list(
                    zip(node.targets[0].elts, getattr(node.value, "elts", ()), strict=False)
                )
            elif isinstance(node, ast.Assign):
                pairs = [(node.targets[0], node.value)]
            else:
                continue
            for target, value in pairs:
                word = ast.unparse(value)
                if isinstance(target, ast.Name) and re.fullmatch(r"config\.\w+_config", word):
                    names[target.id] = word.removeprefix("config.")
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute):
                of, field = ast.unparse(node.value), node.attr
            elif (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "getattr"
                and isinstance(node.args[1], ast.Constant)
            ):
                of, field = ast.unparse(node.args[0]), str(node.args[1].value)
            else:
                continue
            part = names.get(of) or (re.fullmatch(r"config\.(\w+_config)", of) or [None, None])[1]
            if part:
                found.add((part, field))
    return found


def _defined(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return (node.name,)
    if isinstance(node, ast.AnnAssign):
        return (ast.unparse(node.target),)
    return ()


def _choices(root: Path) -> Facts:
    found: Facts = {}
    for name, file in CHOICES.items():
        node = _names(_tree(root / file)).get(name) if (root / file).is_file() else None
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for word in sorted(set(re.findall(r"'([^']+)'", ast.unparse(node.value)))):
                found[f"choice {name} {word}"] = ""
    node = _resolve(root, "v1.attention.backends.registry", "AttentionBackendEnum")
    for below in getattr(node, "body", ()):
        if isinstance(below, ast.Assign):
            found[f"choice AttentionBackendEnum {ast.unparse(below.targets[0])}"] = ""
    return found


def _cuda(root: Path) -> Facts:
    """Which modules say ``torch.cuda`` where vLLM computes, and in what words; and which of these have flagos' view."""
    found: Facts = {}
    for file in sorted(root.rglob("*.py")):
        module = _module(root, file)
        of_ours = module in torch_view.MODULES
        if not of_ours and not str(file.relative_to(root)).startswith(_COMPUTING):
            continue
        words = sorted(set(re.findall(r"torch\.cuda\.(\w+)", file.read_text())))
        if words:
            found[f"torch.cuda in {module}" + (", with a view" if of_ours else "")] = " ".join(
                words
            )
    return found


def _operators(sources: Path) -> Facts:
    """The schemas of those operators of vLLM's libraries that flagos declares."""
    declared = {kernel.name for kernel in KERNELS}
    found: Facts = {}
    for file in sorted((sources / "csrc").rglob("*torch_bindings.cpp")):
        for given in re.findall(r"\bdef\(\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+)", file.read_text()):
            text = "".join(re.findall(r"\"((?:[^\"\\]|\\.)*)\"", given))
            name = text.partition("(")[0].strip()
            if name in declared:
                found[f"operator {name}"] = re.sub(r"\s+", " ", text).replace("( ", "(")
    return found


def _pins(sources: Path) -> Facts:
    """torch and transformers as the release wants them."""
    found: Facts = {}
    for file in (sources / "pyproject.toml", *sorted((sources / "requirements").glob("*.txt"))):
        if file.is_file() and file.name in ("pyproject.toml", "common.txt", "cuda.txt"):
            for name, pin in re.findall(
                r"^\W*(torch|transformers|compressed-tensors)\s*([=<>!][^\";#\n]*)",
                file.read_text(),
                re.M,
            ):
                found[f"pin {name}"] = pin.strip().removeprefix("==").strip()
    return found


# ------------------------------------------------------------------------------------------ sources


@cache
def _adapter() -> tuple[ast.Module, ...]:
    """Without its table of releases, whose names are of one release each."""
    files = (file for file in sorted(ADAPTER.rglob("*.py")) if file.name != "releases.py")
    return tuple(_tree(file) for file in files)


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def forget() -> None:
    """Reads files again that were read before."""
    _adapter.cache_clear()
    _tree.cache_clear()


def _file(root: Path, module: str) -> Path:
    path = root / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _module(root: Path, file: Path) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _names(tree: ast.Module) -> dict[str, ast.AST]:
    """What the top level of a module defines or imports, also below a condition."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        for below in ast.walk(node) if isinstance(node, (ast.If, ast.Try)) else (node,):
            if isinstance(below, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.setdefault(below.name, below)
            elif isinstance(below, ast.Assign):
                found |= {ast.unparse(target): below for target in below.targets}
            elif isinstance(below, ast.AnnAssign):
                found[ast.unparse(below.target)] = below
            elif isinstance(below, ast.ImportFrom):
                found |= {alias.asname or alias.name: below for alias in below.names}
    return found


def _resolve(root: Path, module: str, name: str) -> ast.AST | None:
    """The definition of a name of a module, also where the module only imports it; a submodule has none."""
    place, own = _place(root, module, name)
    file = _file(root, place)
    if not file.is_file():
        return None
    found = _names(_tree(file)).get(own)
    if found is None and name and _file(root, f"{module}.{name}").is_file():
        return ast.Module([], [])
    return found


def _place(root: Path, module: str, name: str) -> tuple[str, str]:
    """The module that defines a name, and the name there."""
    for _ in range(8):
        file = _file(root, module)
        if not file.is_file():
            return module, name
        node = _names(_tree(file)).get(name)
        if not isinstance(node, ast.ImportFrom):
            return module, name
        if node.level:
            parts = module.split(".")
            package = parts if file.name == "__init__.py" else parts[:-1]
            base = package[: len(package) - node.level + 1]
            module = ".".join([*base, *([node.module] if node.module else [])])
        elif (node.module or "").startswith("vllm."):
            module = (node.module or "").removeprefix("vllm.")
        else:
            return module, name
        name = next((a.name for a in node.names if (a.asname or a.name) == name), name)
    return module, name


def _shape(node: ast.AST) -> str:
    """A function's arguments; a class's bases and those of its constructor."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return f"({_arguments(node)})"
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        made = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        return f"class({bases})" + (f" made of ({_arguments(made[0])})" if made else "")
    return ""


def _arguments(node: Function) -> str:
    """Names and defaults, without annotations."""
    given = node.args
    words = [a.arg for a in (*given.posonlyargs, *given.args)]
    for at, default in enumerate(reversed(given.defaults), 1):
        words[-at] += f"={ast.unparse(default)}"
    if given.vararg:
        words.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        words.append("*")
    for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        words.append(one.arg + ("" if value is None else f"={ast.unparse(value)}"))
    return ", ".join([*words, *([f"**{given.kwarg.arg}"] if given.kwarg else [])])


def _digest(node: Function) -> str:
    """Of a body without its comments and documentation."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    text = "\n".join(map(ast.unparse, body))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
