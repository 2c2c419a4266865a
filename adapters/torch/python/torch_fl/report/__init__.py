"""What `flagos report` needs within the programs it runs.

`FLAGOS_REPORT` names a folder. In every process that registers the device, `agent` writes there what the process did,
as a file that is whole at any time: `counting` tells which implementations served, `memory` samples the allocator, and
`device_time` has torch.profiler collect the device's kernels for a while.
"""

from __future__ import annotations

import os

VARIABLE = "FLAGOS_REPORT"


def asked() -> bool:
    """Whether this process belongs to a program of `flagos report`."""
    return bool(os.environ.get(VARIABLE))
