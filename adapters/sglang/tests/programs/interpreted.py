"""What CUDA has, by Triton's interpreter over host memory, SGLang's kernels and flagos': ``interpreted.py FOLDER``.

The test starts it with TRITON_INTERPRET=1 and CUDA_VISIBLE_DEVICES="".
"""

from __future__ import annotations

import sys
from typing import Any

import serving
import tiny

from flagos.on_import import when_imported


def complete_interpreter() -> None:
    """A scalar is an array of one element, of which numpy 2.5 makes no number by itself."""
    from triton.runtime import interpreter

    described = interpreter._patch_lang_tensor

    def describe(tensor: Any, scope: Any) -> None:
        described(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda scalar: int(scalar.handle.data.item()))

    interpreter._patch_lang_tensor = describe


def complete_caps() -> None:
    """CUDA's tanh is torch's on the CPU."""
    from torch_fl.flaggems import libdevice

    sys.modules[CAPS].libdevice = libdevice.module()  # type: ignore[attr-defined]


CAPS = "sglang.kernels.ops.activation.softcap"
# Also in the process of the scheduler, which imports this program.
when_imported("triton.runtime.interpreter", complete_interpreter)
when_imported(CAPS, complete_caps)

if __name__ == "__main__":
    made = serving.engine(sys.argv[1])
    found = made.generate(
        input_ids=tiny.prompts()[1:4], sampling_params={**serving.GREEDY, "max_new_tokens": 8}
    )
    serving.report(made, tokens=[one["output_ids"] for one in found])
