"""The device, for commands that need it in their own process."""

from __future__ import annotations

from flagos.cli.output import CommandError
from flagos.messages import described


def require() -> None:
    """Register the device. Raises CommandError with the reason where it cannot be."""
    try:
        import torch_fl  # noqa: F401
    # Whatever the environment has wrong: a variable, a pack, a native module, torch itself.
    except Exception as error:
        raise CommandError(
            f"the flagos device cannot be loaded: {described(error)}",
            "correct what is named, or run `flagos doctor`",
        ) from error
