"""Completes modules of other libraries at the moment they are imported.

Inductor asks the device module for its code generators, so those are lazy by nature. Others have no
such hook: Dynamo's tables are filled by whoever imports them, and some libraries know devices by a
list of names.
"""

from __future__ import annotations

import importlib
from functools import partial

from flagos.on_import import when_imported
from torch_fl.flagos import late_names
from torch_fl.native import native

_COMPLETIONS = {
    "torch._subclasses.fake_tensor": "torch_fl.compile.fake_kernels",
    "torch._prims.rng_prims": "torch_fl.compile.random_states",
    "torch._functorch.partitioners": "torch_fl.compile.random_states",
    "torch._decomp.decompositions_for_rng": "torch_fl.compile.random_decompositions",
    "torch._inductor.codecache": "torch_fl.compile.cache_key",
    "torch._dynamo.variables.streams": "torch_fl.compile.current_streams",
    "torch._dynamo.device_interface": "torch_fl.compile.device_interface",
    "torch._dynamo.backends.registry": "torch_fl.compile.backend",
    "torch._inductor": "torch_fl.compile.ahead_of_time",
    "torch._inductor.compile_fx": "torch_fl.compile.refusal",
    "torch._inductor.package.package": "torch_fl.compile.ahead_of_time",
    "torch.testing._internal.distributed.fake_pg": "torch_fl.distributed.fake",
    "torch.testing._internal.optests.autograd_registration": "torch_fl.compile.opcheck",
    "torch.nn.attention.flex_attention": "torch_fl.compile.flex_attention",
    "torch._inductor.kernel.flex.flex_attention": "torch_fl.compile.flex_lowering",
    "torch.distributed.distributed_c10d": "torch_fl.distributed.registration",
    "torch.distributed._symmetric_memory": "torch_fl.distributed.fused_matmul",
    "torch.distributed.checkpoint.filesystem": "torch_fl.distributed.checkpoint",
    "torch.distributed.tensor": "torch_fl.distributed.attention",
    "torch.distributed.tensor._random": "torch_fl.distributed.random",
    "accelerate": "torch_fl.integrations.accelerate",
    "deepspeed.accelerator.real_accelerator": "torch_fl.integrations.trainers",
    "lightning.fabric.connector": "torch_fl.integrations.lightning",
    "lightning.pytorch.trainer.connectors.accelerator_connector": "torch_fl.integrations.lightning",
    "lightning_fabric.connector": "torch_fl.integrations.lightning",
    "pytorch_lightning.trainer.connectors.accelerator_connector": "torch_fl.integrations.lightning",
    "safetensors": "torch_fl.integrations.safetensors",
    "transformers.training_args": "torch_fl.integrations.transformers",
    "triton.runtime.jit": "torch_fl.launcher.jit",
    "triton.compiler.compiler": "torch_fl.launcher.compiled",
    "flag_gems.utils.libentry": "torch_fl.launcher.entry",
}
"""Modules of other libraries, each with the module here whose `register()` completes it."""

_CODE_GENERATORS = ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen")
"""Names under which torch._inductor asks a device module for its code generators."""


def install() -> None:
    """Complete the loaded modules now and the others when they are imported. Imports nothing itself."""
    if native().compiled_by == "host code":
        for name in _CODE_GENERATORS:
            late_names.provide(name, partial(_code_generator, name))
    of_the_device = native().completions
    for module, completion in (*_COMPLETIONS.items(), *of_the_device.items()):
        when_imported(module, partial(_complete, completion))


def _code_generator(name: str) -> object:
    return getattr(importlib.import_module("torch_fl.compile.inductor"), name)


def _complete(completion: str) -> None:
    importlib.import_module(completion).register()
