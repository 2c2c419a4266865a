"""The part of torch_fl that knows triton-ascend, which is the real one, without the rest of the package."""

import os

from flagos.on_import import when_imported

__path__.append(os.environ["TORCH_FL_SOURCE"])


from torch_fl import triton_ascend  # noqa: E402


def _complete() -> None:
    from torch_fl.triton_ascend import activation

    activation.register()


triton_ascend.install()
when_imported("triton.runtime.driver", _complete)
