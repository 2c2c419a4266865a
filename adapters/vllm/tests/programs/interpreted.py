"""vLLM's own Triton kernels, interpreted over host memory: ``interpreted.py FOLDER OPTIONS``.

The test starts it with TRITON_INTERPRET=1 and CUDA_VISIBLE_DEVICES="", by which vLLM uses Triton without a driver.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import serving
import tiny


def complete_interpreter() -> None:
    """A scalar is an array of one element, of which numpy 2.5 makes no number by itself."""
    from triton.runtime import interpreter

    described = interpreter._patch_lang_tensor

    def describe(tensor: Any, scope: Any) -> None:
        described(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda scalar: int(scalar.handle.data.item()))

    interpreter._patch_lang_tensor = describe


def prepare() -> None:
    """Lets vLLM sample by the interpreter."""
    import vllm.v1.sample.ops.topk_topp_sampler as sampler
    import vllm.v1.worker.gpu.sample.gumbel as gumbel

    from torch_fl.flaggems import libdevice

    complete_interpreter()
    # One of its kernels calls a method that the interpreter's integers lack.
    sampler.HAS_TRITON = False
    gumbel.tldevice = libdevice.module()  # the interpreter has no library of the device


def by_triton() -> set[str]:
    """The operators that were called, and that vLLM's Triton kernels serve."""
    import flagos

    called = [op for op, counted in flagos.counters().items() if counted["calls"]]
    winners = {op: flagos.explain(op).data["winner"] or "" for op in called}
    return {op for op, winner in winners.items() if winner.startswith("triton.")}


if __name__ == "__main__":
    prepare()
    model = serving.llm(sys.argv[1], **json.loads(sys.argv[2]))
    runner = type(model.llm_engine.model_executor.driver_worker.worker.model_runner).__module__
    import flagos

    warmed = by_triton()
    winner = flagos.explain("vllm::paged_attention").data["winner"]
    found = serving.tokens(model, tiny.prompts()[1:4], new=4)
    serving.report(
        model,
        tokens=found,
        runner=runner,
        winner=winner,
        warmed=sorted(warmed),
        late=sorted(by_triton() - warmed),
    )
