"""FlagGems where there is no GPU: its kernels run by Triton's interpreter, on the CPU's memory.

`TRITON_INTERPRET=1` makes Triton interpret kernels with numpy instead of compiling them. What FlagGems
expects of a device beside that is answered here, through the module variables it keeps the answers in;
torch.cuda stays as it is. Its kernels are its generic ones for NVIDIA, with seeds from the host's generator.
Three parts are left out: `LibEntry`,
whose cache is of compiled kernels; tuning, where the first configuration serves; and the functions of
CUDA's libdevice, for which torch's on the CPU are called.

This is for looking at values. It is some thousand times slower than a GPU.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch

from flagos.on_import import when_imported

_SWITCH = "TRITON_INTERPRET"
_VENDOR = "GEMS_VENDOR"
_MULTIPROCESSORS = 4  # as many programs as this are made where a kernel fills the device
_CAPABILITY = (8, 0)  # of no tensor maps and no clusters, which the interpreter lacks


def wanted() -> bool:
    """Whether Triton interprets kernels in this process."""
    return os.environ.get(_SWITCH) == "1"


def prepare() -> None:
    """Have FlagGems find the interpreter when it is imported."""
    os.environ[_VENDOR] = "nvidia"  # whose kernels are the generic ones
    when_imported("flag_gems.runtime.backend", _describe_device)
    when_imported("_nvidia.heuristics_config_utils", _describe_to_heuristics)
    when_imported("flag_gems.utils.libentry", _leave_out_caches)
    when_imported("flag_gems.utils.pointwise_dynamic", _accept_interpreted)
    when_imported("flag_gems.utils.random_utils", _draw_seeds)


class _Host:
    """The CPU, as FlagGems asks `torch.cuda` about a device."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def device(device: Any) -> Any:
        return nullcontext()

    @staticmethod
    def synchronize(device: Any = None) -> None:
        return None

    @staticmethod
    def get_device_name(device: Any = None) -> str:
        return "Triton's interpreter"

    @staticmethod
    def get_device_capability(device: Any = None) -> tuple[int, int]:
        return _CAPABILITY

    @staticmethod
    def get_device_properties(device: Any = None) -> Any:
        return SimpleNamespace(
            name=_Host.get_device_name(),
            major=_CAPABILITY[0],
            minor=_CAPABILITY[1],
            multi_processor_count=_MULTIPROCESSORS,
            L2_cache_size=1 << 20,
            total_memory=1 << 32,
        )


class _Torch:
    """torch, with the host for a GPU."""

    cuda = _Host

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _describe_device() -> None:
    from torch_fl.flaggems import libdevice

    backend: Any = sys.modules["flag_gems.runtime.backend"]
    vendor = backend.get_vendor_module("nvidia")
    vendor.vendor_info = dataclasses.replace(
        vendor.vendor_info, device_name="cpu", triton_extra_name="flagos_host"
    )
    # Kernels of one architecture use what only it has.
    vars(vendor).pop("ARCH_MAP", None)
    # Since 5.3 FlagGems keeps what it found of the device in an object of the module.
    getattr(backend, "_state", backend).torch_device_object = _Host()
    library = libdevice.module()
    sys.modules[library.__name__] = library


def _describe_to_heuristics() -> None:
    heuristics: Any = sys.modules["_nvidia.heuristics_config_utils"]
    heuristics.torch = _Torch()


def _leave_out_caches() -> None:
    from triton.runtime.autotuner import Autotuner

    class FirstConfiguration(Autotuner):  # type: ignore[misc, unused-ignore]
        """Runs the first configuration that is not pruned, and measures none."""

        def _bench(self, *args: Any, config: Any, **meta: Any) -> list[float]:
            return [1.0, 1.0, 1.0]

    def libtuner(configs: Any, key: Any, **options: Any) -> Callable[[Any], Any]:
        known = {name: options.get(name) for name in _TUNER_OPTIONS}
        return lambda fn: FirstConfiguration(fn, fn.arg_names, configs, key, **known)

    libentry: Any = sys.modules["flag_gems.utils.libentry"]
    libentry.libentry = lambda: lambda fn: fn
    libentry.libtuner = libtuner
    # What is decorated with Triton's own.
    Autotuner._bench = FirstConfiguration._bench


def _draw_seeds() -> None:
    """Draws numbers for FlagGems: it uses the seed and offset of a GPU's generator, which the host's does not have."""

    def seed_and_offset(
        increment: int, generator: torch.Generator | None = None
    ) -> tuple[int, int]:
        from torch_fl.flagos import random

        generator = generator or random.default_generators()[0]
        drawn = torch.empty((), dtype=torch.int64, device=generator.device)
        return int(drawn.random_(generator=generator)), 0

    utils: Any = sys.modules["flag_gems.utils.random_utils"]
    utils.philox_backend_seed_offset = seed_and_offset


_TUNER_OPTIONS = ("reset_to_zero", "restore_value", "pre_hook", "post_hook", "prune_configs_by")


def _accept_interpreted() -> None:
    from triton.runtime.interpreter import InterpretedFunction

    pointwise: Any = sys.modules["flag_gems.utils.pointwise_dynamic"]
    pointwise.JITFunction = InterpretedFunction
    # What generated kernels are made from.
    InterpretedFunction.src = property(lambda function: _text(function.fn))
    InterpretedFunction.cache_key = property(lambda function: _key(function.fn))
    InterpretedFunction.__globals__ = property(lambda function: function.fn.__globals__)
    _complete_interpreter()


def _complete_interpreter() -> None:
    """Adds attributes that FlagGems relies on and that kernels interpreted by Triton 3.6 lack."""
    import triton.language as tl
    from triton.runtime import interpreter

    # FlagGems' buffers are objects with an address, which cannot be copied to the CPU and need not be.
    executor = interpreter.GridExecutor
    executor._init_args_hst = lambda executor, args, kwargs: (args, kwargs)
    executor._restore_args_dev = lambda *_: None
    # Numbers that are not integers are scalars, too.
    convert, semantic = interpreter._implicit_cvt, interpreter.interpreter_semantic
    interpreter._implicit_cvt = lambda arg: (
        semantic.to_tensor(arg) if type(arg) is float else convert(arg)
    )
    # A scalar is an array of one element, of which numpy 2.5 makes no number by itself.
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda scalar: int(scalar.handle.data.item()))

    interpreter._patch_lang_tensor = patched
    _combine_masks()
    # Types that are compile-time constants come without the wrapper.
    tl.dtype.value = property(lambda kind: kind)
    function = interpreter.InterpretedFunction
    function.__call__ = _rewritten_first(function.__call__)


def _combine_masks() -> None:
    """`and`, `or` and `not` of tensors go from element to element, as compiled; Python's own take one tensor of two."""
    import triton.language as tl
    from triton.runtime import interpreter

    semantic = interpreter.interpreter_semantic
    combined = {"and": semantic.logical_and, "or": semantic.logical_or}

    def combine(name: str, *values: Callable[[], Any]) -> Any:
        result = value = None
        for each in values:
            value = each()
            if isinstance(value, tl.tensor):
                result = value if result is None else combined[name](result, value)
            elif bool(value) == (name == "or"):
                return value
        return value if result is None else result

    def negate(value: Any) -> Any:
        return semantic.not_(value) if isinstance(value, tl.tensor) else not value

    class Transformer(interpreter.ASTTransformer):  # type: ignore[misc, unused-ignore]
        """Triton's own, which also replaces these operators."""

        def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
            name = "and" if isinstance(node.op, ast.And) else "or"
            nothing = ast.parse("lambda: 0", mode="eval").body
            assert isinstance(nothing, ast.Lambda)
            later = [ast.Lambda(nothing.args, self.visit(value)) for value in node.values]
            return _called(_COMBINE, [ast.Constant(name), *later])

        def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
            self.generic_visit(node)
            return _called(_NEGATE, [node.operand]) if isinstance(node.op, ast.Not) else node

        def visit_Assign(self, node: ast.Assign) -> ast.AST:
            node.value = self.visit(node.value)
            assigned: ast.AST = super().visit_Assign(node)
            return assigned

    interpreter.FunctionRewriter.ast_transformer = Transformer()
    # Names that the rewriter gives to the functions that it rewrites.
    setattr(interpreter, _COMBINE, combine)
    setattr(interpreter, _NEGATE, negate)


_COMBINE, _NEGATE = "_flagos_combine", "_flagos_negate"


def _called(name: str, args: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), args, [])


def _rewritten_first(call: Callable[..., Any]) -> Callable[..., Any]:
    """Functions of modules that import no `triton.language` are given one by rewriting them."""

    def rewritten(function: Any, *args: Any, **kwargs: Any) -> Any:
        function.rewrite()
        return call(function, *args, **kwargs)

    return rewritten


@cache
def _text(fn: Callable[..., Any]) -> str:
    from triton.runtime.jit import JITFunction

    text: str = JITFunction(fn).src
    return text


@cache
def _key(fn: Callable[..., Any]) -> str:
    return hashlib.sha256(_text(fn).encode()).hexdigest()
