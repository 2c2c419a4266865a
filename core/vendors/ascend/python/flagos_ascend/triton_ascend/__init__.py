"""triton-ascend on flagos' devices, without torch_npu and without a change of any installed file.

On a vendor whose Triton backend is `ascend`, `activation.register` is called when a program imports Triton. It makes a
driver of flagos' the active one:

- the driver of 3.2.0 has no extension point: a subclass of it is made active in memory, and the functions by which its
  module builds launchers are replaced in that module (`launcher_3_2_0`);
- from 3.2.1 on there is a registry of frameworks, in which flagos is one more (`registry`).

Both launch by the same C++ (`source`), which knows no torch: memory for a launch comes from `memory`. Modules that
import torch_npu by name see the few names that they use (`names`).
"""

from __future__ import annotations

from typing import ClassVar


class BackEnd:
    """What torch_fl asks of this package, by the entry point `ascend` of the group `torch_fl.triton`."""

    completions: ClassVar = {"triton.runtime.driver": "flagos_ascend.triton_ascend.activation"}
    """Modules of Triton, each with the module here whose `register()` completes it."""

    def install(self) -> None:
        """Called when the device is registered, before any of the modules that `names` knows is imported."""
        from flagos_ascend.triton_ascend import names

        names.install()
