"""A simulated capture for the host vendor, which has none: `serving` installs it where SIMULATED_GRAPHS is set.

A graph keeps torch's calls of its capture, and repeats them with the same tensors, so that results lie at the same
addresses, as a device does. What waits for the device during a capture is an error.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch._C import DispatchKey
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Of vLLM's operators these are repeated as a whole: references of theirs look at numbers, as no kernel does.
WHOLE = (
    *("moe_forward", "moe_forward_shared"),
    *("unified_kv_cache_update", "unified_mla_kv_cache_update"),
)
WAITS = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero")
counted = {"captured": 0, "replayed": 0}


class Recording(TorchDispatchMode):
    """Adds every call of the dispatcher to the graph that is captured, of vLLM's own operators what they call.

    Such an operator may end a graph, run something, and begin the next one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.graph: Graph | None = None
        self.depth = 0  # of calls of the dispatcher, which leave the mode as they found it

    def begin(self, graph: Graph) -> None:
        self.graph = graph
        if not self.depth:
            self.__enter__()

    def end(self) -> None:
        self.graph = None
        if not self.depth:
            self.__exit__(None, None, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        by_parts = func.namespace == "vllm" and name not in WHOLE
        self.depth += 1
        try:
            if by_parts:
                with self:  # whose calls of the operator itself would come here again
                    result = func._op_dk(DispatchKey.PrivateUse1, *args, **kwargs)
            else:
                result = func(*args, **kwargs)
        finally:
            self.depth -= 1
        if by_parts or self.graph is None:
            return result
        leaves = tree_leaves(result)
        to_host = [one for one in leaves if isinstance(one, Tensor) and one.device.type == "cpu"]
        if name in WAITS or (name == "_to_copy" and to_host):
            raise RuntimeError(f"{func} waits for the device during a capture")
        self.graph.calls.append((func, args, kwargs, leaves))
        return result


class Graph:
    """As `torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        recording.begin(self)

    def capture_end(self) -> None:
        recording.end()
        counted["captured"] += 1

    def replay(self) -> None:
        counted["replayed"] += 1
        for func, args, kwargs, before in self.calls:
            for old, new in zip(before, tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class graph:
    """As `torch.cuda.graph`."""

    def __init__(self, of: Graph, pool: Any = None, stream: Any = None) -> None:
        self.of = of

    def __enter__(self) -> None:
        self.of.capture_begin()

    def __exit__(self, *error: Any) -> None:
        self.of.capture_end()


recording = Recording()


def simulate() -> None:
    """Puts the simulation in the place of the device's graphs."""
    import vllm.platforms

    assert vllm.platforms.current_platform.device_type == "flagos"
    from vllm_flagos import platform, rules, torch_view

    cuda = torch_view.view().cuda
    cuda.CUDAGraph, cuda.graph = Graph, graph
    for module in (platform, rules):
        module.captures_graphs = lambda: True
    platform.FlagosPlatform.graph_pool_handle = staticmethod(lambda: (0, 1))
