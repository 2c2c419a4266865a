"""vLLM replaces a function of torch.cuda at its import."""

import threading

import torch

prev_set_stream = torch.cuda.set_stream
_current_stream_tls = threading.local()


def _patched_set_stream(stream):
    _current_stream_tls.value = stream
    prev_set_stream(stream)


torch.cuda.set_stream = _patched_set_stream
