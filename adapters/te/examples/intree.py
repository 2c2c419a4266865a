"""An implementation in the program itself.

    $ python adapters/te/examples/intree.py

A program written for TransformerEngine-FL differs in the import line alone:
`transformer_engine.plugin.core` there.
"""

import torch

from te_fl.core import (
    BackendImplKind,
    OpImpl,
    OpManager,
    OpRegistry,
    SelectionPolicy,
    set_global_policy,
)


def my_rmsnorm_fwd(input, weight, eps=1e-5, **kwargs):
    print("  >>> my_rmsnorm_fwd called")
    rsigma = torch.rsqrt(input.square().mean(-1, keepdim=True) + eps)
    return input * rsigma * weight, rsigma


# Optional: asked before the implementation is chosen.
my_rmsnorm_fwd._is_available = lambda: True

registry = OpRegistry()
registry.register_impl(
    OpImpl(
        op_name="rmsnorm_fwd",
        impl_id="vendor.mybackend",  # unique for the operator
        kind=BackendImplKind.VENDOR,
        vendor="mybackend",
        fn=my_rmsnorm_fwd,
        priority=200,  # among implementations of the same kind, the highest is taken
    )
)

manager = OpManager(registry)
set_global_policy(SelectionPolicy(prefer="vendor"))

output, rsigma = manager.call("rmsnorm_fwd", torch.randn(2, 4, 8), torch.ones(8), eps=1e-5)
print(f"output {tuple(output.shape)}, rsigma {tuple(rsigma.shape)}")
