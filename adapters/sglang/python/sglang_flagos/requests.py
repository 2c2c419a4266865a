"""Requests that would end the server are refused before the scheduler has them.

SGLang's scheduler serves all requests in one loop, and an exception in it ends the server, whatever the platform. What
it takes for granted is asked for here, in the process of the tokenizer, where a failure is the answer to one request.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from sglang_flagos import memory

_MISREAD = (AttributeError, IndexError, KeyError, OverflowError, TypeError, re.error)


async def generate(
    original: Callable[..., Any], self: Any, obj: Any, request: Any = None
) -> AsyncIterator[Any]:
    """Raises ValueError, which is the answer 400, for requests of other types than SGLang takes them for."""
    memory.require(self)
    begun = False
    try:
        async for part in original(self, obj, request):
            begun = True
            yield part
    except _MISREAD as error:
        if begun:
            raise
        raise ValueError(
            f"this request cannot be read ({type(error).__name__}: {error})"
        ) from error


def tokenized(original: Callable[..., Any], self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
    """Raises ValueError for a request whose numbers mean no token of the model."""
    made = original(self, obj, *args, **kwargs)
    wrong = next(problems(made, self.model_config.vocab_size), None)
    if wrong is not None:
        raise ValueError(wrong)
    return made


def dispatched(original: Callable[..., None], self: Any, obj: Any) -> None:
    """Raises ValueError for a message with values of other types than the scheduler takes them for."""
    from sglang.srt.managers.io_struct import msgpack_decode, msgpack_encode

    for one in getattr(obj, "batch", (obj,)):
        try:
            msgpack_decode(msgpack_encode(_without_objects(one)))
        except Exception as error:
            raise ValueError(f"{type(one).__name__}: a value of another type: {error}") from error
    original(self, obj)


_WHEN_IDLE = (
    "ReleaseMemoryOccupationReqInput",
    "UpdateWeightFromDiskReqInput",
    "UpdateWeightsFromDistributedReqInput",
    "UpdateWeightsFromTensorReqInput",
)


def received(original: Callable[..., None], self: Any, recv_reqs: list[Any]) -> None:
    """Holds requests that need an idle scheduler until it is.

    An overlapped scheduler has results of answered requests still to take in, and SGLang asserts that nothing runs.
    Where an administrator has paused it, requests stay in the middle, and nothing is held.
    """
    held = vars(self).setdefault("flagos_held", [])
    recv_reqs, held[:] = [*held, *recv_reqs], []
    if not (self._engine_paused or self.is_fully_idle()):
        held[:] = [one for one in recv_reqs if type(one).__name__ in _WHEN_IDLE]
        recv_reqs = [one for one in recv_reqs if type(one).__name__ not in _WHEN_IDLE]
    original(self, recv_reqs)


async def recorded(original: Callable[..., Any], self: Any) -> Any:
    """Raises ValueError where there is no recorder of experts: the scheduler would end by asking it."""
    if self.server_args.expert_distribution_recorder_mode is None:
        raise ValueError("this server was started without --expert-distribution-recorder-mode")
    return await original(self)


_MOST = 2**31 - 1  # of an int32
_OBJECTS = ("mm_inputs", "mm_data_mooncake", "time_stats")  # SGLang's own, which it pickles


def _without_objects(obj: Any) -> Any:
    import msgspec

    absent = {name: None for name in _OBJECTS if getattr(obj, name, None) is not None}
    return msgspec.structs.replace(obj, **absent) if absent else obj


def problems(made: Any, vocabulary: int) -> Iterator[str]:
    """What is wrong with a tokenized request."""
    ids = made.input_ids
    if getattr(made, "input_embeds", None) is not None:
        # It makes bfloat16 of them for a model of any type, and a batch with tokens of others has rows for them alone.
        yield "input_embeds: SGLang's server would end by them; write input_ids"
    if ids is not None and len(ids) == 0:
        yield "input_ids: there is no token"
    yield from _outside("input_ids", ids, vocabulary)
    params = made.sampling_params
    yield from _outside("stop_token_ids", params.stop_token_ids, vocabulary)
    for token, bias in (params.logit_bias or {}).items():
        if math.isnan(bias):
            yield f"logit_bias: the one of token {token} is no number"
    if params.top_k > _MOST:
        yield f"top_k: {params.top_k} is more than {_MOST}"
    if params.n < 1:
        yield f"n: {params.n} is none of 1 and more"
    if getattr(made, "custom_logit_processor", None):
        yield from _processor(made.custom_logit_processor)
    if not hasattr(made, "return_logprob"):
        return
    yield from _outside("token_ids_logprob", made.token_ids_logprob, vocabulary)
    if not 0 <= (made.top_logprobs_num or 0) <= vocabulary:
        yield f"top_logprobs_num: {made.top_logprobs_num} is not from 0 to {vocabulary}"
    if made.logprob_start_len is not None and made.logprob_start_len < -1:
        yield f"logprob_start_len: {made.logprob_start_len} is none of -1 and more"


def _processor(text: str) -> Iterator[str]:
    """SGLang makes the processor of its text in the scheduler. Texts come here only where the server serves them."""
    from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

    try:
        made = CustomLogitProcessor.from_str(text)
    except Exception as error:
        yield f"custom_logit_processor: it cannot be made ({type(error).__name__}: {error})"
        return
    if not callable(made):
        yield f"custom_logit_processor: {type(made).__name__} cannot be called"


def _outside(name: str, ids: Any, vocabulary: int) -> Iterator[str]:
    for token in ids or ():
        if not 0 <= token < vocabulary:
            yield f"{name}: {token} is no token of this model, which has 0 to {vocabulary - 1}"
            return
