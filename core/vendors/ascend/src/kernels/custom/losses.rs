//! Losses.

use flagos_core::error::Result;

use super::super::call::Call;
use super::super::launch::Arg;
use super::super::objects::Number;
use super::super::view::View;
use super::elementwise::ONE;
use super::operator::operators;

operators! {
    c"aten::nll_loss_forward" ["aclnnNLLLoss", "aclnnInplaceFillScalar"] => |call| forward(call, "aclnnNLLLoss");
    c"aten::nll_loss_backward" ["aclnnNLLLossBackward", "aclnnInplaceFillScalar"] => |call| backward(call, "aclnnNLLLossBackward");
    c"aten::nll_loss2d_forward" ["aclnnNLLLoss2d", "aclnnInplaceFillScalar"] => |call| forward(call, "aclnnNLLLoss2d");
    c"aten::nll_loss2d_backward" ["aclnnNLLLoss2dBackward", "aclnnInplaceFillScalar"] => |call| backward(call, "aclnnNLLLoss2dBackward");
    c"aten::huber_loss" ["aclnnSmoothL1Loss", "aclnnInplaceMuls"] => huber;
    c"aten::huber_loss_backward" ["aclnnSmoothL1LossBackward", "aclnnInplaceMuls"] => huber_backward;
}

/// The weights of the classes, all 1 where torch has none: not every version of CANN takes none.
fn weights(call: &Call<'_>, input: &View, weights: Option<View>) -> Result<View> {
    if let Some(weights) = weights {
        return Ok(weights);
    }
    let dim = if input.sizes.len() == 1 { 0 } else { 1 };
    let ones = call.temporary(input.dtype, &[input.sizes[dim]])?;
    call.run(
        "aclnnInplaceFillScalar",
        &[Arg::Tensor(ones), Arg::Scalar(ONE)],
    )?;
    Ok(ones)
}

/// `nll_loss_forward(self, target, weight, reduction, ignore_index)`: the loss and the sum of the weights.
fn forward(call: &Call<'_>, function: &str) -> Result<()> {
    let input = call.tensor(0)?;
    call.run(
        function,
        &[
            Arg::Tensor(input),
            Arg::Tensor(call.tensor(1)?),
            Arg::Tensor(weights(call, &input, call.optional(2)?)?),
            Arg::int(call.int(3)?),
            Arg::int(call.int(4)?),
            Arg::Tensor(call.output(0)?),
            Arg::Tensor(call.output(1)?),
        ],
    )
}

/// `nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight)`.
fn backward(call: &Call<'_>, function: &str) -> Result<()> {
    let input = call.tensor(1)?;
    call.run(
        function,
        &[
            Arg::Tensor(call.tensor(0)?),
            Arg::Tensor(input),
            Arg::Tensor(call.tensor(2)?),
            Arg::Tensor(weights(call, &input, call.optional(3)?)?),
            Arg::int(call.int(4)?),
            Arg::int(call.int(5)?),
            Arg::Tensor(call.tensor(6)?),
            Arg::Tensor(call.output(0)?),
        ],
    )
}

/// `huber_loss(self, target, reduction, delta)`: `delta` times the smooth loss whose `beta` it is.
fn huber(call: &Call<'_>) -> Result<()> {
    let (output, delta) = (call.output(0)?, call.real(3)?.unwrap_or(1.0));
    call.run(
        "aclnnSmoothL1Loss",
        &[
            Arg::Tensor(call.tensor(0)?),
            Arg::Tensor(call.tensor(1)?),
            Arg::int(call.int(2)?),
            Arg::Real(delta),
            Arg::Tensor(output),
        ],
    )?;
    times(call, output, delta)
}

/// `huber_loss_backward(grad_output, self, target, reduction, delta)`.
fn huber_backward(call: &Call<'_>) -> Result<()> {
    let (output, delta) = (call.output(0)?, call.real(4)?.unwrap_or(1.0));
    call.run(
        "aclnnSmoothL1LossBackward",
        &[
            Arg::Tensor(call.tensor(0)?),
            Arg::Tensor(call.tensor(1)?),
            Arg::Tensor(call.tensor(2)?),
            Arg::int(call.int(3)?),
            Arg::Real(delta),
            Arg::Tensor(output),
        ],
    )?;
    times(call, output, delta)
}

fn times(call: &Call<'_>, view: View, factor: f64) -> Result<()> {
    let factor = Arg::Scalar(Number::Real(factor));
    call.run("aclnnInplaceMuls", &[Arg::Tensor(view), factor])
}
