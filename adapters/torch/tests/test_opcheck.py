"""torch.library.opcheck with tensors of the device."""

from __future__ import annotations

import pytest
import torch
from torch.library import Library, custom_op, opcheck


def test_a_custom_operator_passes():
    @custom_op("flagos_opcheck::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda context, gradient: gradient * 2)
    results = opcheck(twice, (torch.ones(3, device="flagos", requires_grad=True),))
    assert set(results.values()) == {"SUCCESS"}


def test_a_kernel_that_is_differentiated_by_accident_is_found():
    library = Library("flagos_opcheck_kernel", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "PrivateUse1")
    x = torch.ones(3, device="flagos", requires_grad=True)
    twice = torch.ops.flagos_opcheck_kernel.twice.default
    with pytest.raises(Exception, match="no kernel for autograd"):
        opcheck(twice, (x,), test_utils="test_autograd_registration")
