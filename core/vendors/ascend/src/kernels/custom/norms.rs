//! Normalization, and dropout.

use flagos_core::error::{Error, Result};

use super::super::call::Call;
use super::super::dtype::DType;
use super::super::launch::Arg;
use super::super::objects::Number;
use super::super::view::{View, decline};
use super::elementwise::ONE;
use super::operator::operators;

operators! {
    c"aten::native_batch_norm" ["aclnnBatchNorm", "aclnnInplaceAdds", "aclnnRsqrt"] => |call| batch_norm(call, Some([3, 4]), 5);
    c"aten::_native_batch_norm_legit" ["aclnnBatchNorm", "aclnnInplaceAdds", "aclnnRsqrt"] => |call| batch_norm(call, Some([3, 4]), 5);
    c"aten::_native_batch_norm_legit.no_stats" ["aclnnBatchNorm", "aclnnInplaceAdds", "aclnnRsqrt"] => |call| batch_norm(call, None, 3);
    c"aten::native_batch_norm_backward" ["aclnnBatchNormBackward", "aclnnMul", "aclnnInplaceReciprocal", "aclnnInplaceAdds"] => batch_norm_backward;
    c"aten::native_dropout" ["aclnnInplaceBernoulli", "aclnnCast", "aclnnMul", "aclnnInplaceMuls"] => dropout;
    c"aten::native_dropout_backward" ["aclnnMul", "aclnnInplaceMuls", "aclnnCast"] => dropout_backward;
}

/// `native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)`. `statistics` are the
/// places of the running ones, `training` is that of the flag that momentum and eps follow.
fn batch_norm(call: &Call<'_>, statistics: Option<[usize; 2]>, training: usize) -> Result<()> {
    let (input, output) = (call.tensor(0)?, call.output(0)?);
    let trains = call.flag(training)?;
    let [mean, variance] = match statistics {
        Some([mean, variance]) => [call.optional(mean)?, call.optional(variance)?],
        None => [None, None],
    };
    if input.is_empty() || input.sizes.len() < 2 {
        return decline("batch norm of nothing, or of fewer than two dimensions");
    }
    let channels = input.sizes[1];
    let saved = |place: usize| {
        let view = call.output(place)?;
        // In evaluation torch saves nothing.
        if view.is_empty() {
            call.temporary(DType::F32, &[channels])
        } else {
            Ok(view)
        }
    };
    let (weight, bias) = (call.optional(1)?, call.optional(2)?);
    if weight.is_some() != bias.is_some() {
        return decline("batch norm with a weight alone, or a bias alone");
    }
    let statistic = |view: Option<View>, number: Number| match view {
        Some(view) => Ok::<_, Error>(view),
        None => {
            let view = call.temporary(DType::F32, &[channels])?;
            call.run(
                "aclnnInplaceFillScalar",
                &[Arg::Tensor(view), Arg::Scalar(number)],
            )?;
            Ok(view)
        }
    };
    let epsilon = call.real(training + 2)?.unwrap_or(1e-5);
    let deviations = saved(2)?;
    let spread = if trains && call.library.saves_variance() {
        call.temporary(DType::F32, &[channels])?
    } else {
        deviations
    };
    call.run(
        "aclnnBatchNorm",
        &[
            Arg::Tensor(input),
            Arg::from(weight),
            Arg::from(bias),
            Arg::Tensor(statistic(mean, Number::Whole(0))?),
            Arg::Tensor(statistic(variance, ONE)?),
            Arg::flag(trains),
            Arg::Real(call.real(training + 1)?.unwrap_or(0.1)),
            Arg::Real(epsilon),
            Arg::Tensor(output),
            Arg::Tensor(saved(1)?),
            Arg::Tensor(spread),
        ],
    )?;
    if spread.is_same(&deviations) {
        return Ok(());
    }
    add(call, spread, epsilon)?;
    call.run(
        "aclnnRsqrt",
        &[Arg::Tensor(spread), Arg::Tensor(deviations)],
    )
}

/// Adds a number to a tensor of float32 in place.
fn add(call: &Call<'_>, view: View, number: f64) -> Result<()> {
    let number = Arg::Scalar(Number::Real(number));
    call.run(
        "aclnnInplaceAdds",
        &[Arg::Tensor(view), number, Arg::Scalar(Number::Real(1.0))],
    )
}

/// The variances behind the inverse deviations that torch saves, where CANN saved variances.
fn spread_of(call: &Call<'_>, deviations: View, epsilon: f64) -> Result<View> {
    if !call.library.saves_variance() {
        return Ok(deviations);
    }
    let spread = call.temporary(DType::F32, &deviations.sizes)?;
    let deviations = call.cast(deviations, DType::F32)?;
    call.run(
        "aclnnMul",
        &[
            Arg::Tensor(deviations),
            Arg::Tensor(deviations),
            Arg::Tensor(spread),
        ],
    )?;
    call.run("aclnnInplaceReciprocal", &[Arg::Tensor(spread)])?;
    add(call, spread, -epsilon)?;
    Ok(spread)
}

/// `native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
/// output_mask)`.
fn batch_norm_backward(call: &Call<'_>) -> Result<()> {
    let input = call.tensor(1)?;
    if input.is_empty() || input.sizes.len() < 2 {
        return decline("batch norm of nothing, or of fewer than two dimensions");
    }
    let wanted = call.bools(9)?;
    let channels = input.sizes[1];
    // CANN writes all that the mask names; the weight's and the bias's gradients come together.
    let gradient = |place: usize| match call.optional_output(place)? {
        Some(view) => Ok(Some(view)),
        None => match (wanted.get(1), wanted.get(2)) {
            (Some(0), Some(0)) | (None, _) | (_, None) => Ok(None),
            _ => call.temporary(DType::F32, &[channels]).map(Some),
        },
    };
    let saved =
        |place: usize| Ok::<_, Error>(call.optional(place)?.filter(|view| !view.is_empty()));
    let (trains, epsilon) = (call.flag(7)?, call.real(8)?.unwrap_or(1e-5));
    let spread = match saved(6)? {
        Some(deviations) if trains => Some(spread_of(call, deviations, epsilon)?),
        saved => saved,
    };
    let mask = match wanted {
        [input, 0, 0] => [*input, 0, 0],
        [input, ..] => [*input, 1, 1],
        [] => return decline("no mask"),
    };
    call.run(
        "aclnnBatchNormBackward",
        &[
            Arg::Tensor(call.tensor(0)?),
            Arg::Tensor(input),
            Arg::from(call.optional(2)?),
            Arg::from(call.optional(3)?),
            Arg::from(call.optional(4)?),
            Arg::from(saved(5)?),
            Arg::from(spread),
            Arg::flag(trains),
            Arg::Real(epsilon),
            Arg::Bools(&mask),
            Arg::from(call.optional_output(0)?),
            Arg::from(gradient(1)?),
            Arg::from(gradient(2)?),
        ],
    )
}

/// `native_dropout(input, p, train)`: the result and which elements are kept.
fn dropout(call: &Call<'_>) -> Result<()> {
    let (input, output, mask) = (call.tensor(0)?, call.output(0)?, call.output(1)?);
    let p = call.real(1)?.unwrap_or(0.0);
    let trains = !matches!(
        call.value(2)?,
        super::super::call::Value::Number(Number::Bool(false))
    );
    if input.is_empty() {
        return Ok(());
    }
    if !trains || !(0.0..1.0).contains(&p) {
        return decline("dropout of all elements, or outside of training");
    }
    let (seed, offset) = call.random();
    let kept = call.temporary(input.dtype, &input.sizes)?;
    call.run_once(
        "aclnnInplaceBernoulli",
        &[
            Arg::Tensor(kept),
            Arg::Scalar(Number::Real(1.0 - p)),
            Arg::Word(seed >> 1),
            Arg::Word(offset),
        ],
    )?;
    call.run(
        "aclnnCast",
        &[
            Arg::Tensor(kept),
            Arg::Word(DType::Bool.acl() as u64),
            Arg::Tensor(mask),
        ],
    )?;
    call.run(
        "aclnnMul",
        &[Arg::Tensor(input), Arg::Tensor(kept), Arg::Tensor(output)],
    )?;
    call.run(
        "aclnnInplaceMuls",
        &[
            Arg::Tensor(output),
            Arg::Scalar(Number::Real(1.0 / (1.0 - p))),
        ],
    )
}

/// `native_dropout_backward(grad_output, mask, scale)`.
fn dropout_backward(call: &Call<'_>) -> Result<()> {
    let (gradient, output) = (call.tensor(0)?, call.output(0)?);
    if output.is_empty() {
        return Ok(());
    }
    let mask = call.cast(call.tensor(1)?, gradient.dtype)?;
    call.run(
        "aclnnMul",
        &[
            Arg::Tensor(gradient),
            Arg::Tensor(mask),
            Arg::Tensor(output),
        ],
    )?;
    let scale = call.real(2)?.unwrap_or(1.0);
    call.run(
        "aclnnInplaceMuls",
        &[Arg::Tensor(output), Arg::Scalar(Number::Real(scale))],
    )
}
