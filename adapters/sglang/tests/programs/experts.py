"""SGLang's kernel of experts beside the reference in float64, by Triton's interpreter, which the test asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import interpreted  # noqa: F401  which completes the interpreter
import serving

COUNT, HIDDEN, MIDDLE = 4, 37, 19  # not multiples of the blocks
BLOCKS = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 16, "GROUP_SIZE_M": 1}
BOTH = [[-1, 2], [0, -1], [-1, -1], [3, 1], [1, 0]]
CASES: dict[str, dict[str, Any]] = {
    "all chosen": {"experts": [[3, 2], [0, 1], [3, 1], [3, 1], [1, 0]]},
    "some of other ranks": {"bias": True},
    "all of other ranks": {"experts": [[-1, -1]] * 5, "bias": True},
    "one of each token": {"experts": [[2], [0], [-1], [0], [3]], "weights_on_input": True},
    "no token": {"experts": []},
    "gelu of tanh": {"activation": "gelu_tanh"},
    "without gates": {"activation": "relu2_no_mul"},
    "a limit": {"limit": 0.3},
    "x in columns": {"columns": True},
    "a part of the weights": {"part": True},
    "a bias and weights on the input": {
        "experts": [[2], [0], [1], [0], [3]],
        "weights_on_input": True,
        "bias": True,
    },
}


if __name__ == "__main__":
    import torch
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang.srt.layers.moe.moe_runner.base import MoeRunnerConfig
    from sglang.srt.layers.moe.moe_runner.triton_utils import override_config

    from flagos import UnsupportedError
    from flagos_serving.references import experts as references
    from sglang_flagos.layers import experts as layers
    from sglang_flagos.operators import triton_experts

    def difference(
        experts: list[list[int]] = BOTH,
        activation: str = "silu",
        bias: bool = False,
        columns: bool = False,
        part: bool = False,
        **options: Any,
    ) -> float | str:
        chosen = torch.tensor(experts, dtype=torch.int32).reshape(
            -1, len(experts[0]) if experts else 2
        )
        x = torch.randn(len(experts), HIDDEN)
        rows = MIDDLE if activation.endswith("_no_mul") else 2 * MIDDLE
        w13, w2 = torch.randn(COUNT, rows, HIDDEN) / 6, torch.randn(COUNT, HIDDEN, MIDDLE) / 4
        biases = [torch.randn(COUNT, rows), torch.randn(COUNT, HIDDEN)] if bias else [None, None]
        wide = torch.rand(len(experts), 2 * chosen.shape[1])
        weights = wide[:, : chosen.shape[1]]
        args = [x, w13, w2, weights, chosen, *biases]

        def computed(function: Any, args: list[Any]) -> Any:
            return function(
                *(*args[:5], activation), bias13=args[5], bias2=args[6], **options
            )  # fmt: skip

        exact = computed(
            references.fused_experts,
            [a.double() if a is not None and a.is_floating_point() else a for a in args],
        )
        given = [None if a is None else a.contiguous().to("flagos") for a in args]
        if columns:
            given[0] = x.t().contiguous().to("flagos").t()
        if part:
            given[3] = wide.to("flagos")[:, : chosen.shape[1]]
        try:
            found = computed(triton_experts.fused_experts, given).cpu()
        except UnsupportedError as error:
            return str(error)
        return float((found - exact).abs().max()) if len(experts) else float(len(found))

    def of_limits(**limits: float) -> float:
        """The layer with a limit of its gates, beside SGLang's formula."""
        x, w13 = torch.randn(5, HIDDEN), torch.randn(COUNT, 2 * MIDDLE, HIDDEN)
        w2 = torch.eye(MIDDLE).expand(COUNT, MIDDLE, MIDDLE).contiguous()
        w2 = torch.nn.functional.pad(w2, (0, 0, 0, HIDDEN - MIDDLE))
        chosen = torch.tensor([[2], [0], [1], [0], [3]], dtype=torch.int32)
        gate, value = torch.einsum("th,trh->tr", x, w13[chosen[:, 0]]).double().chunk(2, dim=-1)
        (most,) = limits.values()
        before = gate.clamp(max=most) if "swiglu_limit" in limits else gate
        made = torch.nn.functional.silu(before).clamp(max=most)
        config = MoeRunnerConfig(**limits)
        topk = (torch.ones(5, 1).to("flagos"), chosen.to("flagos"), None)
        found = layers._forward(
            SimpleNamespace(moe_runner_config=config),
            SimpleNamespace(w13_weight=w13.to("flagos"), w2_weight=w2.to("flagos")),
            SimpleNamespace(hidden_states=x.to("flagos"), topk_output=topk),
        ).hidden_states.cpu()
        return float((found[:, :MIDDLE] - made * value.clamp(-most, most)).abs().max())

    torch.manual_seed(0)
    with override_config({**BLOCKS, "USE_TMA": True}):
        names = triton_experts._configurations(
            torch.empty(COUNT, 2 * MIDDLE, HIDDEN),
            torch.empty(COUNT, HIDDEN, MIDDLE),
            *(2, torch.float32, 5),
        )
        found = {name: difference(**case) for name, case in CASES.items()}
        found |= {name: of_limits(**{name: 2.0}) for name in ("swiglu_limit", "gemm1_clamp_limit")}
    serving.report(found=found, configurations=[sorted(one) for one in names])
