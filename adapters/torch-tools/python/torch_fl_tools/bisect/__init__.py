"""`flagos bisect`: which operators' routes make a program fail, and which of their calls.

The command: `search` (delta debugging over sets), `process` (one run of the program), `state` (what is known so far, on
disk), `session` (the search over the plan), `calls` (the call that differs), `findings` (what was found), `report`
(that in words). None of them imports torch but `plan`, which is a process of its own.

So is every run of the program. `FLAGOS_BISECT` names the description of the run (`trial`), and `within` is called by
torch_fl: `agent` keeps the routes that the run needs and records the operators that are called, `marked` writes and
compares what the program marks, `watch` compares single calls, `measure` tells differences in numbers, and `program`
finds a function that the program registers.

`flagos accuracy` searches by the same session, with an observer in the program's processes in place of marks (a tool of
the group `torch_fl.tools` that the run's description names), and a judge of what it wrote.
"""

VARIABLE = "FLAGOS_BISECT"
