"""Standing in for `run` and `[grid]` of a class that launches kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flagos import _core
from torch_fl.calls import Args, Kwargs
from torch_fl.launcher import knobs, reasons, source_hashes
from torch_fl.launcher.reasons import Unsupported


@dataclass
class Interception:
    """How one class is stood in for, and whether it is.

    name: what the class is called in `statistics`. kind: what the core calls it. owner: the class, once
    its module is loaded. texts: its functions that the native path repeats, by the names in `known`. bind:
    the role of each argument of a call. plan: what a call that was made stands for. function: the kernel's
    Python function, for reasons.
    """

    name: str
    kind: str
    owner: Callable[[], Any]
    texts: Callable[[Any], dict[str, Callable[..., Any]]]
    bind: Callable[[Any, int, tuple[str, ...]], list[str] | None]
    plan: Callable[[Any, Args, Kwargs, tuple[str, ...], Any], _core.LaunchPlan]
    function: Callable[[Any], Any]
    _run: list[Any] = field(default_factory=list)  # the class's own, while it is replaced

    def install(self) -> None:
        """Stand in for `run` and `[grid]`, unless the class is of a version that is not known."""
        if self._run or not _core.launch_enabled():
            return
        owner = self.owner()
        try:
            texts = {**self.texts(owner), "KernelInterface.__getitem__": owner.__getitem__}
        except AttributeError as error:
            reason: str | None = f"this version has no {error.name}"  # such as triton-ascend 3.2
        else:
            reason = source_hashes.mismatch(texts)
        if reason is not None:
            reasons.leave_alone(self.name, reason)
            return
        reasons.take_over(self.name)
        run, get_item = _core.launch_intercept(self.kind, owner, owner.run, self.bind, self.learn)
        self._run.append(owner.__dict__["run"])
        owner.run, owner.__getitem__ = run, get_item

    def uninstall(self) -> None:
        """Give the class its own methods back."""
        if self._run:
            owner = self.owner()
            owner.run = self._run.pop()
            del owner.__getitem__

    def installed(self) -> list[str]:
        """The class, if it is replaced."""
        return [self.name] if self._run else []

    def learn(
        self,
        called: Any,
        args: Args,
        kwargs: Kwargs,
        given: tuple[str, ...],
        result: Any,
        whole: bool,
    ) -> _core.LaunchPlan | None:
        """Makes the plan of a launch for calls like this one; returns `None` if they need the original path."""
        try:
            knobs.declare()
            return self.plan(called, args, kwargs, given, result) if whole else None
        except Exception as error:
            # The launch itself was made: failing to understand it must not become the caller's failure.
            message = str(error)
            if not isinstance(error, Unsupported):
                message = f"{type(error).__name__}: {error}"
            function = self.function(called)
            reasons.keep_kernel(f"{function.__module__}.{function.__name__}", message)
            return None
