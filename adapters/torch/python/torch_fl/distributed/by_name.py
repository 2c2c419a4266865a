"""Functions of torch.distributed that ask for a backend of torch's own by its name, or for the machine's device.

`monitored_barrier` is for gloo there and `split_group` for what serves CUDA. For groups of the backend
`flagos` they are the functions below, and for all others what they were.
`barrier` waits by a tensor of the machine's accelerator, which is flagos. For groups without the backend `flagos`, such
as gloo's on the CPU, it is the function below.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

BACKEND = "flagos"

# The number of splits of each group.
_splits: weakref.WeakKeyDictionary[dist.ProcessGroup, int] = weakref.WeakKeyDictionary()


def install() -> None:
    """Put the functions in the place of torch's. Idempotent."""
    for ours in (monitored_barrier, split_group, barrier):
        theirs = getattr(c10d, ours.__name__)
        if theirs.__module__ == __name__:
            continue
        function = _for_its_group(ours, theirs, of_flagos=ours is not barrier)
        for module in (c10d, dist):
            setattr(module, ours.__name__, function)


def _for_its_group(
    ours: Callable[..., Any], theirs: Callable[..., Any], of_flagos: bool
) -> Callable[..., Any]:
    @functools.wraps(theirs, assigned=("__name__", "__qualname__", "__doc__"))
    def chosen(*arguments: Any, **named: Any) -> Any:
        group = arguments[0] if arguments else named.get("group", named.get("parent_pg"))
        return (ours if _is_ours(group) == of_flagos else theirs)(*arguments, **named)

    return chosen


def _is_ours(group: dist.ProcessGroup | None) -> bool:
    """Whether a group, by default the first one, uses the backend `flagos`."""
    known = c10d._world.pg_map.get(c10d._get_default_group() if group is None else group)
    return known is not None and BACKEND in known[0]


def barrier(
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    device_ids: list[int] | None = None,
) -> dist.Work | None:
    """Waits for every rank of the group, on a device that the group serves.

    `device_ids` are of that device; the CPU has none, so they are ignored there as without flagos. Returns the work if
    `async_op`.
    """
    if c10d._rank_not_in_group(group):
        c10d._warn_not_in_group("barrier")
        return None
    of: Any = c10d._get_default_group() if group is None else group
    options: Any = dist.BarrierOptions()
    options.asyncOp = async_op
    kind = c10d._get_object_coll_device(of)
    if isinstance(device_ids, list) and kind != "cpu":
        options.device_ids = device_ids
        options.device = torch.device(kind, device_ids[0])
    else:
        options.device = getattr(of, "bound_device_id", None) or torch.device(kind)
    work: dist.Work | None = of.barrier(opts=options)
    if async_op:
        return work
    if work is not None:
        work.wait()
    return None


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """Waits for every rank of the group, and says on each which did not come.

    `timeout` is of the group by default; a number is of seconds. With `wait_all_ranks`, rank 0 names all that
    are missing, and not the first one alone. Raises torch.distributed.DistBackendError.
    """
    if c10d._rank_not_in_group(group):
        c10d._warn_not_in_group("monitored_barrier")
        return
    if isinstance(timeout, int | float):
        warnings.warn(f"the timeout of a barrier is a timedelta: {timeout} seconds", stacklevel=3)
        timeout = timedelta(seconds=timeout)
    if timeout is None:
        timeout = c10d._get_default_timeout(dist.Backend(BACKEND))
    c10d._check_valid_timeout(timeout)
    of: Any = c10d._get_default_group() if group is None else group
    of.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def split_group(
    parent_pg: dist.ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> dist.ProcessGroup | None:
    """The part of a group that this rank is in, as a group of its own; None for a rank in no part.

    `split_ranks` has ranks of the parent, each at most once, and is the same on all of them. Raises ValueError
    when it is not such.
    """
    parent: Any = c10d._get_default_group() if parent_pg is None else parent_pg
    ranks = c10d._world.pg_group_ranks.get(parent)
    if ranks is None:
        raise ValueError(f"Group {parent} is not registered")
    if dist.get_rank() not in ranks:
        raise ValueError(f"Global rank {dist.get_rank()} is not part of the parent group {parent}")
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    seen: set[int] = set()
    for part in split_ranks:
        if not part:
            raise ValueError("the split group cannot be empty")
        wrong = [rank for rank in part if rank not in ranks.values()]
        if wrong:
            raise ValueError(
                f"rank {wrong[0]} of split_ranks is not one of the {len(ranks)} of the group"
            )
        if len(set(part)) != len(part) or seen & set(part):
            raise ValueError("the split group cannot have duplicate ranks")
        seen |= set(part)
    mine = next((sorted(part) for part in split_ranks if ranks[dist.get_rank()] in part), None)
    # All ranks of the parent count alike, also those in no part and those in other groups.
    number = _splits[parent] = _splits.get(parent, 0) + 1
    if mine is None:
        return None
    name: Any = f"{parent.group_name}:split{number}:{'.'.join(map(str, mine))}"
    made: dist.ProcessGroup = parent.split_group(
        mine,
        timeout=timeout,
        opts=pg_options,
        group_name=name,
        group_desc=group_desc or f"{parent.group_desc}:split",
    )
    global_ranks = {of_group: of_world for of_world, of_group in ranks.items()}
    backend, _ = c10d._world.pg_map[parent]
    c10d._world.pg_map[made] = (backend, made.get_group_store())
    c10d._world.pg_names[made] = name
    c10d._register_process_group(name, made)
    c10d._world.pg_backend_config[made] = c10d._world.pg_backend_config[parent]
    tag = f"ptd:{name}"
    c10d._world.tags_to_pg.setdefault(tag, []).append(made)
    c10d._world.pg_to_tag[made] = tag
    c10d._world.pg_group_ranks[made] = {global_ranks[rank]: at for at, rank in enumerate(mine)}
    return made
