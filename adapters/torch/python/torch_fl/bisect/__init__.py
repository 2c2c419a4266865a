"""What `flagos bisect` needs within the programs it runs, and in the files it writes.

`FLAGOS_BISECT` names the description of a run (`trial`). `agent` then keeps the routes that the run needs and
records the operators that are called, `marked` writes and compares what the program marks, `watch` compares single
calls, `measure` tells differences in numbers, and `program` finds a function that the program registers.
"""

import os

VARIABLE = "FLAGOS_BISECT"


def asked() -> bool:
    """Whether this process belongs to a run of `flagos bisect`."""
    return bool(os.environ.get(VARIABLE))
