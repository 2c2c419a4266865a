//! Fused optimizers, and the scaling of gradients.

use flagos_core::error::Result;

use super::super::call::{Call, Value};
use super::super::dtype::DType;
use super::super::launch::Arg;
use super::super::objects::Number;
use super::super::view::{View, decline};
use super::operator::operators;

operators! {
    c"aten::_fused_adamw_" ["aclnnApplyAdamWV2", "aclnnAdds"] => |call| adam(call, true);
    c"aten::_fused_adamw_.tensor_lr" ["aclnnApplyAdamWV2", "aclnnAdds"] => |call| adam(call, true);
    c"aten::_fused_adam_" ["aclnnApplyAdamWV2", "aclnnAdds", "aclnnAdd"] => |call| adam(call, false);
    c"aten::_fused_adam_.tensor_lr" ["aclnnApplyAdamWV2", "aclnnAdds", "aclnnAdd"] => |call| adam(call, false);
    c"aten::_fused_sgd_" ["aclnnInplaceAdd", "aclnnInplaceMuls", "aclnnMuls", "aclnnAdd"] => sgd;
    c"aten::_fused_sgd_.tensor_lr" ["aclnnInplaceAdd", "aclnnInplaceMuls", "aclnnMuls", "aclnnAdd"] => sgd;
    c"aten::_amp_foreach_non_finite_check_and_unscale_" [
        "aclnnIsFinite", "aclnnAll", "aclnnLogicalNot", "aclnnCast", "aclnnMaximum", "aclnnInplaceMul",
    ] => unscale;
    c"aten::_amp_update_scale_" [
        "aclnnGtScalar", "aclnnAdds", "aclnnEqScalar", "aclnnMuls", "aclnnIsFinite", "aclnnLogicalAnd", "aclnnSWhere",
        "aclnnInplaceMaskedFillScalar", "aclnnInplaceCopy",
    ] => update_scale;
}

/// The learning rate: a number, or a tensor that is one on the host.
fn rate_of(call: &Call<'_>, place: usize) -> Result<f64> {
    match call.value(place)? {
        Value::Number(Number::Real(rate)) => Ok(rate),
        Value::Number(Number::Whole(rate)) => Ok(rate as f64),
        Value::Tensor(tensor) if tensor.is_on_host() => match tensor.number()? {
            Number::Real(rate) => Ok(rate),
            _ => decline("the learning rate is no real number"),
        },
        _ => decline("the learning rate is on the device, and CANN takes a number"),
    }
}

/// Whether the flag of a gradient scaler says not to update. Reading it is the only way: CANN's functions have no
/// condition.
fn overflowed(call: &Call<'_>, place: usize) -> Result<bool> {
    match call.optional(place)? {
        Some(found) => Ok(call.read_f32(found)? != 0.0),
        None => Ok(false),
    }
}

/// A temporary of the gradient and `factor` times the weight.
fn decayed(call: &Call<'_>, gradient: View, weight: View, factor: f64) -> Result<View> {
    let sum = call.temporary(gradient.dtype, &gradient.sizes)?;
    call.run(
        "aclnnAdd",
        &[
            Arg::Tensor(gradient),
            Arg::Tensor(weight),
            Arg::Scalar(Number::Real(factor)),
            Arg::Tensor(sum),
        ],
    )?;
    Ok(sum)
}

/// `_fused_adamw_(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps,
/// amsgrad, maximize, grad_scale, found_inf)`: the steps are counted already. `decoupled`: the weights decay by
/// themselves, not through the gradient.
fn adam(call: &Call<'_>, decoupled: bool) -> Result<()> {
    let [weights, gradients, averages, squares, greatest, steps] =
        [0, 1, 2, 3, 4, 5].map(|place| call.tensors(place));
    let (weights, gradients, averages, squares) = (weights?, gradients?, averages?, squares?);
    let (greatest, steps) = (greatest?, steps?);
    let real = |place: usize| call.real(place).map(|number| number.unwrap_or(0.0));
    let adam = Adam {
        rate: rate_of(call, 6)?,
        betas: [real(7)?, real(8)?],
        decay: real(9)?,
        epsilon: real(10)?,
        amsgrad: call.flag(11)?,
        maximize: call.flag(12)?,
        decoupled,
    };
    if overflowed(call, 14)? {
        return Ok(());
    }
    let scale = call.optional(13)?;
    // All is looked at before anything is written.
    check_alike([&weights, &gradients, &averages, &squares])?;
    for row in 0..weights.len() {
        // CANN takes at least one dimension.
        let row = |list: &[Option<View>]| match list.get(row).copied().flatten() {
            Some(view) if view.sizes.is_empty() => view.with(&[1], &[1]).map(Some),
            view => Ok(view),
        };
        let (Some(weight), Some(gradient), Some(average), Some(square), Some(step)) = (
            row(&weights)?,
            row(&gradients)?,
            row(&averages)?,
            row(&squares)?,
            row(&steps)?,
        ) else {
            return decline("a list has a gap");
        };
        if weight.is_empty() {
            continue;
        }
        if let Some(scale) = scale {
            call.run(
                "aclnnInplaceDiv",
                &[
                    Arg::Tensor(gradient),
                    Arg::Tensor(call.cast(scale, gradient.dtype)?),
                ],
            )?;
        }
        let greatest = row(&greatest)?;
        adam.update(call, weight, gradient, [average, square], greatest, step)?;
    }
    Ok(())
}

/// Declines lists of different types, and of others than real ones.
fn check_alike(lists: [&Vec<Option<View>>; 4]) -> Result<()> {
    for (row, weight) in lists[0].iter().enumerate() {
        let first = weight.map(|weight| weight.dtype);
        let alike = lists
            .iter()
            .all(|list| list.get(row).copied().flatten().map(|view| view.dtype) == first);
        if !alike || !matches!(first, Some(DType::F32 | DType::F16 | DType::Bf16)) {
            return decline(
                "Adam of weights, gradients and averages of different types, or of other types than real ones",
            );
        }
    }
    Ok(())
}

/// The numbers of a step of Adam.
struct Adam {
    rate: f64,
    betas: [f64; 2],
    decay: f64,
    epsilon: f64,
    amsgrad: bool,
    maximize: bool,
    decoupled: bool,
}

impl Adam {
    /// Updates a weight, and its averages of gradients and of their squares.
    fn update(
        &self,
        call: &Call<'_>,
        weight: View,
        gradient: View,
        [average, square]: [View; 2],
        greatest: Option<View>,
        step: View,
    ) -> Result<()> {
        let (maximize, decoupled, decay) = (self.maximize, self.decoupled, self.decay);
        let mut used = gradient;
        if decay != 0.0 && !decoupled {
            // What maximizes takes the negative of this gradient.
            let factor = if maximize { -decay } else { decay };
            used = decayed(call, gradient, weight, factor)?;
        }
        // torch counts this update already, and CANN adds it to the count.
        let step = step.with(&[1], &[1])?;
        let before = call.temporary(step.dtype, &[1])?;
        let (minus_one, one) = (
            Arg::Scalar(Number::Whole(-1)),
            Arg::Scalar(Number::Whole(1)),
        );
        call.run(
            "aclnnAdds",
            &[Arg::Tensor(step), minus_one, one, Arg::Tensor(before)],
        )?;
        call.run(
            "aclnnApplyAdamWV2",
            &[
                Arg::Tensor(weight),
                Arg::Tensor(average),
                Arg::Tensor(square),
                Arg::from(greatest.filter(|_| self.amsgrad)),
                Arg::Tensor(used),
                Arg::Tensor(before),
                Arg::Real(self.rate),
                Arg::Real(self.betas[0]),
                Arg::Real(self.betas[1]),
                Arg::Real(if decoupled { decay } else { 0.0 }),
                Arg::Real(self.epsilon),
                Arg::flag(self.amsgrad),
                Arg::flag(maximize),
            ],
        )
    }
}

/// `_fused_sgd_(self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize,
/// is_first_step, grad_scale, found_inf)`.
fn sgd(call: &Call<'_>) -> Result<()> {
    let (weights, gradients, buffers) = (call.tensors(0)?, call.tensors(1)?, call.tensors(2)?);
    let real = |place: usize| call.real(place).map(|number| number.unwrap_or(0.0));
    let sgd = Sgd {
        decay: real(3)?,
        momentum: real(4)?,
        dampening: real(6)?,
        rate: rate_of(call, 5)?,
        nesterov: call.flag(7)?,
        is_first: call.flag(9)?,
        sign: if call.flag(8)? { -1.0 } else { 1.0 },
    };
    // All is looked at before anything is written.
    let dtypes = |list: &[Option<View>]| -> Vec<_> {
        list.iter()
            .map(|view| view.map(|view| view.dtype))
            .collect()
    };
    let of_weights = dtypes(&weights);
    if of_weights.contains(&None)
        || of_weights != dtypes(&gradients)
        || (sgd.momentum != 0.0 && of_weights != dtypes(&buffers))
    {
        return decline("SGD of weights, gradients and momenta of different types");
    }
    if overflowed(call, 11)? {
        return Ok(());
    }
    let scale = call.optional(10)?;
    let mut momenta = buffers.into_iter().flatten();
    for (weight, gradient) in weights
        .into_iter()
        .flatten()
        .zip(gradients.into_iter().flatten())
    {
        let buffer = momenta.next();
        if weight.is_empty() {
            continue;
        }
        if let Some(scale) = scale {
            let scale = call.cast(scale, gradient.dtype)?.with(&[], &[])?;
            call.run(
                "aclnnInplaceDiv",
                &[Arg::Tensor(gradient), Arg::Tensor(scale)],
            )?;
        }
        sgd.update(call, weight, gradient, buffer)?;
    }
    Ok(())
}

/// The numbers of a step of SGD.
struct Sgd {
    decay: f64,
    momentum: f64,
    dampening: f64,
    rate: f64,
    nesterov: bool,
    is_first: bool,
    /// Of the gradient: -1 where the step maximizes.
    sign: f64,
}

impl Sgd {
    /// Updates a weight, and its momentum in `buffer`.
    fn update(
        &self,
        call: &Call<'_>,
        weight: View,
        gradient: View,
        buffer: Option<View>,
    ) -> Result<()> {
        let (rate, sign, momentum) = (self.rate, self.sign, self.momentum);
        let number = |number: f64| Arg::Scalar(Number::Real(number));
        let add = |to: View, view: View, factor: f64| {
            call.run(
                "aclnnInplaceAdd",
                &[Arg::Tensor(to), Arg::Tensor(view), number(factor)],
            )
        };
        // The gradient but for its sign.
        let mut used = gradient;
        if self.decay != 0.0 {
            used = decayed(call, gradient, weight, sign * self.decay)?;
        }
        let Some(buffer) = buffer.filter(|_| momentum != 0.0) else {
            return add(weight, used, -rate * sign);
        };
        if self.is_first {
            call.run(
                "aclnnMuls",
                &[Arg::Tensor(used), number(sign), Arg::Tensor(buffer)],
            )?;
        } else {
            call.run("aclnnInplaceMuls", &[Arg::Tensor(buffer), number(momentum)])?;
            add(buffer, used, sign * (1.0 - self.dampening))?;
        }
        if self.nesterov {
            add(weight, used, -rate * sign)?;
            add(weight, buffer, -rate * momentum)
        } else {
            add(weight, buffer, -rate)
        }
    }
}

/// `_amp_foreach_non_finite_check_and_unscale_(self, found_inf, inv_scale)`.
fn unscale(call: &Call<'_>) -> Result<()> {
    let (found, inverse) = (call.tensor(1)?, call.tensor(2)?);
    let gradients: Vec<_> = call
        .tensors(0)?
        .into_iter()
        .flatten()
        .filter(|view| !view.is_empty())
        .collect();
    if gradients.is_empty() {
        return Ok(());
    }
    let finite = call.temporary(DType::Bool, &[gradients.len() as i64])?;
    for (place, gradient) in gradients.iter().enumerate() {
        let each = call.temporary(DType::Bool, &gradient.sizes)?;
        call.run(
            "aclnnIsFinite",
            &[Arg::Tensor(*gradient), Arg::Tensor(each)],
        )?;
        let dims: Vec<i64> = (0..gradient.sizes.len() as i64).collect();
        let all = finite.select(0, place as i64)?;
        call.run(
            "aclnnAll",
            &[
                Arg::Tensor(each),
                Arg::Ints(&dims),
                Arg::flag(false),
                Arg::Tensor(all),
            ],
        )?;
        let factor = call.cast(inverse, gradient.dtype)?.with(&[], &[])?;
        call.run(
            "aclnnInplaceMul",
            &[Arg::Tensor(*gradient), Arg::Tensor(factor)],
        )?;
    }
    let all = call.temporary(DType::Bool, &[1])?;
    call.run(
        "aclnnAll",
        &[
            Arg::Tensor(finite),
            Arg::Ints(&[0]),
            Arg::flag(true),
            Arg::Tensor(all),
        ],
    )?;
    let infinite = call.temporary(DType::Bool, &[1])?;
    call.run(
        "aclnnLogicalNot",
        &[Arg::Tensor(all), Arg::Tensor(infinite)],
    )?;
    let infinite = call.cast(infinite, found.dtype)?;
    let found = found.with(&[1], &[1])?;
    call.run(
        "aclnnMaximum",
        &[
            Arg::Tensor(found),
            Arg::Tensor(infinite),
            Arg::Tensor(found),
        ],
    )
}

/// `_amp_update_scale_(self, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor, growth_interval)`.
fn update_scale(call: &Call<'_>) -> Result<()> {
    let flat = |place: usize| call.tensor(place)?.with(&[1], &[1]);
    let (scale, tracker, found) = (flat(0)?, flat(1)?, flat(2)?);
    let (Some(growth), Some(backoff)) = (call.real(3)?, call.real(4)?) else {
        return decline("no factors");
    };
    let interval = call.int(5)?;
    let flag = || call.temporary(DType::Bool, &[1]);
    let number = |number: i64| Arg::Scalar(Number::Whole(number));
    let overflowed = flag()?;
    call.run(
        "aclnnGtScalar",
        &[Arg::Tensor(found), number(0), Arg::Tensor(overflowed)],
    )?;
    let steps = call.temporary(tracker.dtype, &[1])?;
    call.run(
        "aclnnAdds",
        &[
            Arg::Tensor(tracker),
            number(1),
            number(1),
            Arg::Tensor(steps),
        ],
    )?;
    let due = flag()?;
    call.run(
        "aclnnEqScalar",
        &[Arg::Tensor(steps), number(interval), Arg::Tensor(due)],
    )?;
    let times = |factor: f64| {
        let product = call.temporary(scale.dtype, &[1])?;
        let factor = Arg::Scalar(Number::Real(factor));
        call.run(
            "aclnnMuls",
            &[Arg::Tensor(scale), factor, Arg::Tensor(product)],
        )?;
        Ok::<_, flagos_core::error::Error>(product)
    };
    let (larger, smaller) = (times(growth)?, times(backoff)?);
    // A scale grows only while it stays finite.
    let finite = flag()?;
    call.run("aclnnIsFinite", &[Arg::Tensor(larger), Arg::Tensor(finite)])?;
    let grows = flag()?;
    call.run(
        "aclnnLogicalAnd",
        &[Arg::Tensor(due), Arg::Tensor(finite), Arg::Tensor(grows)],
    )?;
    let calm = call.temporary(scale.dtype, &[1])?;
    call.run(
        "aclnnSWhere",
        &[
            Arg::Tensor(grows),
            Arg::Tensor(larger),
            Arg::Tensor(scale),
            Arg::Tensor(calm),
        ],
    )?;
    call.run(
        "aclnnSWhere",
        &[
            Arg::Tensor(overflowed),
            Arg::Tensor(smaller),
            Arg::Tensor(calm),
            Arg::Tensor(scale),
        ],
    )?;
    for begins_again in [due, overflowed] {
        call.run(
            "aclnnInplaceMaskedFillScalar",
            &[Arg::Tensor(steps), Arg::Tensor(begins_again), number(0)],
        )?;
    }
    call.copy(tracker, steps)
}
