"""`flagos report`: runs a program, and makes a page of what served it and what that cost.

The command: `program` (its run), `data` (what its processes left, as one structure), `page` (that structure as a page),
`pictures` (its pictures). None of them imports torch.

`FLAGOS_REPORT` names a folder. In every process that registers the device torch_fl calls `within`, and `agent` writes
there what the process did, as a file that is whole at any time: `counting` tells which implementations served, `memory`
samples the allocator, and `device_time` has torch.profiler collect the device's kernels for a while.
"""

VARIABLE = "FLAGOS_REPORT"
DEVICE_SECONDS = "device_seconds"
"""The file in the folder that says how long the device's kernels are collected."""
