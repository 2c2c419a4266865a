"""`flagos bisect` in a process of the program, as torch_fl calls it."""

from __future__ import annotations

from torch_fl.tools import Tool, load


class Bisected(Tool):
    """Gives the process its seeds, follows the plan, and has the run's observer do its part."""

    def __init__(self) -> None:
        self._observer: Tool | None = None

    def torch_imported(self) -> None:
        """Fix the seeds of the run. Raises ValueError if the variable names no run."""
        from torch_fl_tools.bisect import VARIABLE, seeds, trial

        run = trial.current()
        seeds.fix(run.seed)
        if run.observer is not None:
            observer = load(run.observer.tool, VARIABLE)
            self._observer = observer(run.folder, run.observer.settings)
            self._observer.torch_imported()

    def kernels_registered(self) -> None:
        """Follow the plan from before the first implementation."""
        from torch_fl_tools.bisect import agent

        agent.start()
        if self._observer is not None:
            self._observer.kernels_registered()

    def implementations_registered(self) -> None:
        """Have the agent look at the plan of them all."""
        from flagos import plan_listeners

        plan_listeners.published()

    def program_begins(self) -> None:
        """Have the observer begin last."""
        if self._observer is not None:
            self._observer.program_begins()
