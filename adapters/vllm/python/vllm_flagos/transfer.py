"""The cache of prompts that one engine computed, in another one: ``kv_connector="FlagosConnector"``.

An engine of role ``kv_producer`` keeps whole blocks of its prompts, the latest ``kv_buffer_size`` bytes of them, in the
memory of its host, and announces them in a store at ``kv_ip:kv_port``. One of role ``kv_consumer`` asks for what is
announced of a prompt and computes the rest; each rank gets what the producer's rank of the same number has, over a
process group of flagos of the two. It never waits for a prompt that is not announced.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

logger = logging.getLogger(__name__)
_START = timedelta(seconds=300)  # within which the other engine has to be there
_PATIENCE = timedelta(seconds=60)  # for an answer
_POLL_S = 0.005


@dataclass
class Transfers(KVConnectorMetadata):
    """What a step is to keep, and what it is to fetch before it: keys with blocks of the cache."""

    kept: list[tuple[str, list[int]]] = field(default_factory=list)
    # With the number of blocks that are left out at the beginning.
    fetched: list[tuple[str, int, list[int]]] = field(default_factory=list)


class FlagosConnector(KVConnectorBase_V1):
    """See the module. Half of it is in the scheduler's process, the other one in each rank's."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        given = vllm_config.kv_transfer_config
        self._produces = given.kv_role == "kv_producer"
        self._size = int(vllm_config.cache_config.block_size)
        self._ranks = int(vllm_config.parallel_config.tensor_parallel_size)
        self._at = (str(_option(given, "kv_ip", "127.0.0.1")), int(given.kv_port))
        self._most = int(_option(given, "kv_buffer_size", 1e9))
        self._keys: dict[str, tuple[str, int]] = {}  # of prompts, with the number of their blocks
        self._blocks: dict[str, list[int]] = {}
        self._next = Transfers()
        self._opened: dist.TCPStore | None = None
        self._failed: set[int] = set()
        self._worker: Keeper | Fetcher | None = None
        if role == KVConnectorRole.WORKER:
            kind = Keeper if self._produces else Fetcher
            self._worker = kind(self._at, get_tensor_model_parallel_rank(), self._ranks, self._most)

    # The scheduler's half.

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """The tokens that the producer has beyond those that are computed."""
        if self._produces:
            return 0, False
        key, blocks = self._named(request)
        more = blocks * self._size - num_computed_tokens
        if more <= 0:
            return 0, False
        if self._opened is None:
            self._opened = connect(self._at)
        ready = self._opened.check([f"ready/{key}/{rank}" for rank in range(self._ranks)])
        return (more if ready else 0), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Notes what the next step is to keep or fetch."""
        key, count = self._named(request)
        if self._produces:
            if count:
                self._keys[request.request_id] = (key, count)
        elif num_external_tokens:
            first = count - num_external_tokens // self._size
            self._next.fetched.append((key, first, list(blocks.get_block_ids()[0][first:count])))

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """What the step keeps: prompts whose last whole block it computes."""
        scheduled = scheduler_output.num_scheduled_tokens
        for new in scheduler_output.scheduled_new_reqs:
            self._blocks[new.req_id] = list(new.block_ids[0])
            self._advance(new.req_id, new.num_computed_tokens + scheduled[new.req_id])
        old = scheduler_output.scheduled_cached_reqs
        for at, name in enumerate(old.req_ids):
            if name not in self._keys:
                continue
            more = old.new_block_ids[at]
            if name in old.resumed_req_ids:
                self._blocks[name] = []
            self._blocks[name] += [] if more is None else more[0]
            self._advance(name, old.num_computed_tokens[at] + scheduled[name])
        made, self._next = self._next, Transfers()
        return made

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """Blocks may be freed: what is kept of them is a copy."""
        self._keys.pop(request.request_id, None)
        self._blocks.pop(request.request_id, None)
        return False, None

    def _advance(self, name: str, tokens: int) -> None:
        if name in self._keys and tokens >= self._keys[name][1] * self._size:
            key, count = self._keys.pop(name)
            self._next.kept.append((key, self._blocks.pop(name)[:count]))

    def _named(self, request: Any) -> tuple[str, int]:
        """A key of all that a prompt's cache depends on, and the number of whole blocks before its last token."""
        prompt = request.prompt_token_ids
        count = 0 if prompt is None else (len(prompt) - 1) // self._size
        lora = request.lora_request
        more = [
            [(one.identifier, one.mm_position.offset) for one in request.mm_features],
            None if lora is None else [lora.lora_name, lora.lora_path],
            getattr(request, "cache_salt", None),
        ]
        text = json.dumps([(prompt or [])[: count * self._size], *more])
        return hashlib.sha256(text.encode()).hexdigest(), count

    # The half of a rank.

    def register_kv_caches(self, kv_caches: dict[str, Tensor]) -> None:
        """The caches of all layers, whose first dimension is the block."""
        assert self._worker is not None
        self._worker.begin([kv_caches[name] for name in sorted(kv_caches)])

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Fetches what the step needs."""
        if isinstance(self._worker, Fetcher):
            for key, first, blocks in self._get_connector_metadata().fetched:
                if not self._worker.fetch(key, first, blocks):
                    self._failed.update(blocks)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks that the producer no longer had."""
        failed, self._failed = self._failed, set()
        return failed

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: all layers are there before the first."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing: all layers are kept after the last."""

    def wait_for_save(self) -> None:
        """Keeps what the step completed."""
        if isinstance(self._worker, Keeper):
            for key, blocks in self._get_connector_metadata().kept:
                self._worker.keep(key, blocks)

    def shutdown(self) -> None:
        """Ends the thread that answers."""
        if isinstance(self._worker, Keeper):
            self._worker.end()


def connect(at: tuple[str, int], *, first: bool = False) -> dist.TCPStore:
    """The store of both engines; ``first``: makes it. Raises RuntimeError that names the address."""
    try:
        return dist.TCPStore(
            *at, is_master=first, wait_for_workers=False, timeout=_START, multi_tenant=False
        )
    except Exception as error:
        role = "cannot listen" if first else "finds no engine of role kv_producer"
        raise RuntimeError(
            f"FlagosConnector {role} at {at[0]}:{at[1]}, which kv_ip and kv_port of --kv-transfer-config name: {error}"
        ) from error


def _option(given: Any, name: str, default: Any) -> Any:
    """An entry of ``kv_connector_extra_config``, or vLLM 0.26's field, which 0.33 no longer has."""
    return given.get_from_extra_config(name, getattr(given, name, default))


class _Pair:
    """Two ranks of the same number, of which the producer's is the first."""

    def __init__(self, at: tuple[str, int], rank: int, ranks: int, most: int) -> None:
        self.at, self.rank, self.ranks, self.most = at, rank, ranks, most
        self.caches: list[Tensor] = []
        self.store: dist.TCPStore | None = None

    def form(self) -> str:
        """What both have to have in common."""
        return json.dumps([self.ranks, [[list(c.shape[1:]), str(c.dtype)] for c in self.caches]])

    def group(self, store: dist.TCPStore, place: int) -> Any:
        """The process group of the pair."""
        from torch_fl.distributed import registration

        registration.register()
        options = dist.distributed_c10d._DistributedBackendOptions()
        options.store = dist.PrefixStore(f"pair/{self.rank}", store)
        options.group_rank, options.group_size = place, 2
        options.global_ranks_in_group = [0, 1]
        options.group_id = f"kv{self.rank}"
        options.timeout = _START
        return registration.create(options)


class Keeper(_Pair):
    """The producer's rank: keeps copies, and answers in a thread of its own."""

    def begin(self, caches: list[Tensor]) -> None:
        """Opens the store and begins to answer."""
        self.caches, self.bytes = caches, 0
        self.kept: OrderedDict[str, list[Tensor]] = OrderedDict()
        self.lock, self.over = threading.Lock(), threading.Event()
        self.store = connect(self.at, first=self.rank == 0)
        self.store.set(f"form/{self.rank}", self.form())
        self.thread = threading.Thread(target=self._answer, daemon=True, name="kv-transfer")
        self.thread.start()

    def keep(self, key: str, blocks: list[int]) -> None:
        """Copies blocks to the host's memory and announces them; the oldest give place."""
        assert self.store is not None
        copies = [cache[blocks].cpu() for cache in self.caches]
        size = sum(copy.nbytes for copy in copies)
        if size > self.most:
            return
        gone = []
        with self.lock:
            self.bytes += size - sum(copy.nbytes for copy in self.kept.pop(key, []))
            self.kept[key] = copies
            while self.bytes > self.most:
                oldest, copies = self.kept.popitem(last=False)
                self.bytes -= sum(copy.nbytes for copy in copies)
                gone.append(oldest)
        for oldest in gone:
            self.store.delete_key(f"ready/{oldest}/{self.rank}")
        self.store.set(f"ready/{key}/{self.rank}", "1")

    def end(self) -> None:
        """Waits for the thread."""
        self.over.set()
        self.thread.join(timeout=5)

    def _answer(self) -> None:
        device = self.caches[0].device
        torch.accelerator.set_device_index(device.index or 0)
        store = connect(self.at)  # of its own: a store that waits for one thread lets no other in
        group, number = None, 1
        while not self.over.is_set():
            if not store.check([f"want/{self.rank}/{number}"]):
                self.over.wait(_POLL_S)  # a store's own wait tells of each timeout
                continue
            key = store.get(f"want/{self.rank}/{number}").decode()
            with self.lock:
                copies = self.kept.get(key)
            store.set(f"answer/{self.rank}/{number}", "" if copies is None else "1")
            store.delete_key(f"want/{self.rank}/{number}")
            number += 1
            try:
                group = self.group(store, 0) if group is None else group
                for copy in copies or ():
                    group.send([copy.to(device)], 1, 0).wait()
            except RuntimeError as error:
                logger.error("the other engine of FlagosConnector is gone: %s", error)
                return


class Fetcher(_Pair):
    """The consumer's rank."""

    def begin(self, caches: list[Tensor]) -> None:
        """Notes the caches; the store is opened with the first block that is fetched."""
        self.caches = caches
        self.peer: Any = None

    def fetch(self, key: str, first: int, blocks: list[int]) -> bool:
        """Writes the producer's blocks from ``first`` on to these. False if it no longer has them.

        Raises RuntimeError if the engines have caches of different forms.
        """
        if self.store is None:
            self.store = connect(self.at)
            theirs = self.store.get(f"form/{self.rank}").decode()
            if theirs != self.form():
                raise RuntimeError(
                    "the engines of FlagosConnector differ in their caches: [ranks, [shape of a block, type] of each "
                    f"layer] is {theirs} at kv_producer and {self.form()} at kv_consumer; start both with the same "
                    "model, --tensor-parallel-size, --block-size and --kv-cache-dtype"
                )
        number = self.store.add(f"asked/{self.rank}", 1)
        self.store.set(f"want/{self.rank}/{number}", key)
        self.store.wait([f"answer/{self.rank}/{number}"], _PATIENCE)
        has = self.store.get(f"answer/{self.rank}/{number}") != b""
        self.store.delete_key(f"answer/{self.rank}/{number}")
        if self.peer is None:
            self.peer = self.group(self.store, 1)
        if has:
            for cache in self.caches:
                got = cache.new_empty((first + len(blocks), *cache.shape[1:]))
                self.peer.recv([got], 0, 0).wait()
                cache[blocks] = got[first:]
        return has
