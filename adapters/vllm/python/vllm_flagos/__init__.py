"""vLLM on flagos: ``VLLM_PLUGINS=flagos vllm serve ...``.

vLLM finds this package through its entry points. Importing it imports neither torch nor vLLM.
"""

from __future__ import annotations

from vllm_flagos._version import __version__

__all__ = ["__version__", "general", "platform", "register_operators"]


def platform() -> str | None:
    """Entry point of ``vllm.platform_plugins``: the name of the platform's class, or None where it is not asked for.

    vLLM swallows what this function raises and takes another platform instead. So it raises nothing: where flagos is
    asked for and cannot serve, it names a class whose constructor raises the reason.
    """
    from vllm_flagos import activation

    return activation.platform_class()


def general() -> None:
    """Entry point of ``vllm.general_plugins``: completes vLLM in every process that flagos serves."""
    from vllm_flagos import activation

    if activation.platform_class() == activation.PLATFORM:
        from vllm_flagos import answers, kernels, torch_view

        activation.require()
        kernels.declare()
        torch_view.restore()
        answers.install()


def register_operators() -> None:
    """Registers the operators with the plan of this process, for ``flagos ops``. Imports torch, but not vLLM.

    It registers nothing with torch: a vLLM that this process may import under another platform does that.
    """
    from vllm_flagos import operators  # noqa: F401  each is registered where it is declared
    from vllm_flagos.kernels import describe

    describe()
