"""`flagos bisect` in a process of the program, as torch_fl calls it."""

from __future__ import annotations

from torch_fl.tools import Tool


class Bisected(Tool):
    """Gives the process its seeds, and follows the plan."""

    def torch_imported(self) -> None:
        """Fix the seeds of the run. Raises ValueError if the variable names no run."""
        from torch_fl_tools.bisect import seeds, trial

        seeds.fix(trial.current().seed)

    def kernels_registered(self) -> None:
        """Follow the plan from before the first implementation."""
        from torch_fl_tools.bisect import agent

        agent.start()

    def implementations_registered(self) -> None:
        """Have the agent look at the plan of them all."""
        from flagos import plan_listeners

        plan_listeners.published()
