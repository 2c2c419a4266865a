"""Greedy tokens: ``greedy.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import sys

import serving
import tiny

if __name__ == "__main__":
    import torch

    before = {
        name: getattr(torch.cuda, name) for name in ("Stream", "Event", "stream", "set_stream")
    }
    model = serving.llm(sys.argv[1], **json.loads(sys.argv[2]))
    found = serving.tokens(model, tiny.prompts())
    kept = all(getattr(torch.cuda, name) is value for name, value in before.items())
    runner = device = "unknown"
    executor = getattr(model.llm_engine, "model_executor", None)  # another process may have it
    if hasattr(executor, "driver_worker"):
        worker = executor.driver_worker.worker
        runner, device = type(worker.model_runner).__module__, str(worker.device)
    result = {}
    if model.llm_engine.log_stats:
        counted = {metric.name: metric for metric in model.get_metrics()}
        result = {"preemptions": counted["vllm:num_preemptions"].value}
    serving.report(
        model, tokens=found, torch_cuda_kept=kept, runner=runner, device=device, **result
    )
