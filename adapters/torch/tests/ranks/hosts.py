"""Two hosts that are network namespaces with a cable between them. Run once a rank: hosts.py HOST0 HOST1.

A rank enters its host, and a namespace of process numbers of its own, before it opens anything: from then on
neither the other one's network nor its processes are within reach, as with two machines.
"""

from __future__ import annotations

import ctypes
import datetime
import os
import socket
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from ranks.engine import simulated

from torch_fl import distributed

CLONE_NEWNET, CLONE_NEWPID = 0x40000000, 0x20000000
LONG = datetime.timedelta(seconds=60)
SHORT = datetime.timedelta(seconds=3)
ADDRESSES = ("10.77.0.1", "10.77.0.2")
CABLE = "cable"
RTMGRP_LINK = 1  # of linux/rtnetlink.h: what changes of links


def enter(host: str) -> None:
    """Goes on in a child that is on `host`."""
    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/run/netns/{host}", os.O_RDONLY)
    if libc.setns(network, CLONE_NEWNET) != 0 or libc.unshare(CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), f"entering {host}")
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)


def cable(state: str) -> None:
    subprocess.run(["ip", "link", "set", CABLE, state], check=True)


def make_group(life: int, store: dist.Store) -> None:
    """The default group, in keys of its own, as a launcher that starts again gives them."""
    dist.init_process_group(
        distributed.backend_string("auto"),
        store=dist.PrefixStore(f"life {life}", store),
        rank=int(os.environ["RANK"]),
        world_size=2,
        timeout=LONG,
    )


def check_collectives() -> None:
    rank = dist.get_rank()
    for device in ("flagos", "cpu"):
        x = torch.full((70_000,), float(rank + 1), device=device)
        dist.all_reduce(x)
        assert bool((x == 3).all()), device
        x = torch.full((3,), float(rank), device=device)
        whole = torch.empty(6, device=device)
        dist.all_gather_into_tensor(whole, x)
        assert whole.tolist() == [0, 0, 0, 1, 1, 1], device
        dist.broadcast(x, 1)
        assert x.tolist() == [1, 1, 1], device
    everyone = [None, None]
    dist.all_gather_object(everyone, ("from", rank))
    assert everyone == [("from", 0), ("from", 1)]
    dist.barrier()


def shm_serves_one_host_only() -> None:
    """The engine shm is refused with the reason, for tensors on the CPU and where it is asked for by name."""
    message = "serves processes of one host; rank 1 is on another one than rank 0"
    group = dist.new_group(backend="flagos")
    with pytest.raises(NotImplementedError, match=message):
        dist.all_reduce(torch.ones(3), group=group)


def the_cable_is_cut() -> None:
    """Both ranks are told by the timeout which call was not done, on flagos and by gloo."""
    group = dist.new_group(backend="flagos", timeout=SHORT)
    gloo = dist.new_group(backend="gloo", timeout=SHORT)
    x = torch.ones(1000, device="flagos")
    dist.all_reduce(x, group=group)
    torch.flagos.synchronize()
    dist.all_reduce(torch.ones(3), group=gloo)
    links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    links.bind((0, RTMGRP_LINK))
    links.settimeout(60)
    dist.barrier()
    if dist.get_rank() == 0:
        cable("down")
    links.recv(1 << 16)  # both ends are told that the cable is cut
    start = time.monotonic()
    try:
        dist.all_reduce(x, group=group)
        torch.flagos.synchronize()
        dist.all_reduce(x, group=group)
    except dist.DistBackendError as error:
        print(f"flagos after {time.monotonic() - start:.1f} s: {error}")
    start = time.monotonic()
    try:
        dist.all_reduce(torch.ones(3), group=gloo)
    except RuntimeError as error:
        print(f"gloo after {time.monotonic() - start:.1f} s: {str(error).splitlines()[0]}")


def main() -> None:
    rank = int(os.environ["RANK"])
    enter(sys.argv[1 + rank])
    os.environ |= {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "SIMULATED_CCL_ADDRESS": ADDRESSES[rank],
        "GLOO_SOCKET_IFNAME": CABLE,
    }
    library = simulated()
    store = dist.TCPStore(ADDRESSES[0], 29500, world_size=2, is_master=rank == 0, timeout=LONG)
    assert distributed.backend_string("auto") == "cpu:gloo,flagos:flagos"
    make_group(0, store)
    check_collectives()
    shm_serves_one_host_only()
    the_cable_is_cut()
    if rank == 0:
        cable("up")
    dist.destroy_process_group()
    make_group(1, store)
    check_collectives()
    dist.destroy_process_group()
    assert library is not None and library.simulated_misuses() == 0
    print("went on after the cable was mended")
    if rank == 0:
        store.wait(["done"], LONG)  # the store is this process's
    else:
        store.set("done", "")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
