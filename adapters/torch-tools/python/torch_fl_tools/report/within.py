"""`flagos report` in a process of the program, as torch_fl calls it."""

from __future__ import annotations

from torch_fl.tools import Tool


class Reported(Tool):
    """Observes the process from the device's registration to its end."""

    def implementations_registered(self) -> None:
        """Begin to observe. Raises ValueError if the variable names no folder of a report."""
        from torch_fl_tools.report import agent

        agent.start()
