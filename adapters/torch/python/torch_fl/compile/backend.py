"""`torch.compile(model, backend="flagos")`: Inductor, under the device's own name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.backends import registry


def flagos(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Compile `graph` with Inductor; `mode` and `options` are those of torch.compile."""
    import torch._inductor as inductor
    from torch._inductor.compile_fx import compile_fx

    patches = dict(inductor.list_mode_options(mode)) if mode else {}
    patches.update(options or {})
    return compile_fx(graph, inputs, config_patches=patches or None)


def register() -> None:
    """Put the backend into Dynamo's table. The default backend serves the device just as well."""
    registry.register_backend(flagos)
