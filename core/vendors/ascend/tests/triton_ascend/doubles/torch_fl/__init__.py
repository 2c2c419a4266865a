"""What torch_fl does for a back end of Triton's, without the rest of the package."""

from flagos.on_import import when_imported
from flagos_ascend.triton_ascend import BackEnd


def _complete() -> None:
    from flagos_ascend.triton_ascend import activation

    activation.register()


BackEnd().install()
when_imported("triton.runtime.driver", _complete)
