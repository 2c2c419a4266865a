//! Operators on each element by itself.

use flagos_core::error::Result;

use super::super::call::{Call, Value};
use super::super::dtype::{Category, DType};
use super::super::launch::Arg;
use super::super::objects::Number;
use super::super::rows::Promotion;
use super::super::view::{View, decline, dense};
use super::operator::operators;

operators! {
    c"aten::gelu" ["aclnnGeluV2"] => gelu;
    c"aten::nan_to_num" ["aclnnNanToNum"] => nan_to_num;
    c"aten::_prelu_kernel" ["aclnnPrelu"] => prelu;
    c"aten::_prelu_kernel_backward" [
        "aclnnGtScalar", "aclnnMul", "aclnnInplaceMaskedFillScalar", "aclnnSWhere",
    ] => prelu_backward;
    c"aten::div.Tensor_mode" ["aclnnDivMod"] => divide;
    c"aten::masked_fill.Scalar" ["aclnnInplaceMaskedFillScalar", "aclnnInplaceCopy"] => masked_fill;
    c"aten::masked_fill.Tensor" ["aclnnInplaceMaskedFillTensor", "aclnnInplaceCopy"] => masked_fill;
    c"aten::argmax" ["aclnnArgMax"] => |call| arg(call, "aclnnArgMax");
    c"aten::argmin" ["aclnnArgMin"] => |call| arg(call, "aclnnArgMin");
    c"aten::max.dim" ["aclnnMaxDim", "aclnnInplaceCopy"] => |call| greatest(call, "aclnnMaxDim");
    c"aten::min.dim" ["aclnnMinDim", "aclnnInplaceCopy"] => |call| greatest(call, "aclnnMinDim");
    c"aten::kthvalue" ["aclnnKthvalue"] => kth_value;
    c"aten::isin.Tensor_Tensor" ["aclnnEqTensor", "aclnnAny"] => isin;
    c"aten::searchsorted.Tensor" ["aclnnSearchSorted"] => search_sorted;
    c"aten::bucketize.Tensor" ["aclnnSearchSorted"] => bucketize;
    c"aten::cat" ["aclnnCat"] => cat;
    c"aten::stack" ["aclnnStack"] => stack;
    c"aten::isnan" ["aclnnNeTensor"] => is_nan;
}

/// `gelu(self, approximate)`: 1 is the approximation by tanh.
fn gelu(call: &Call<'_>) -> Result<()> {
    let approximate = match call.value(1)? {
        Value::Text(text) => text.to_bytes() == b"tanh",
        _ => false,
    };
    let view = call.tensor(0)?;
    call.write_dense(call.output(0)?, |output| {
        call.run(
            "aclnnGeluV2",
            &[
                Arg::Tensor(view),
                Arg::flag(approximate),
                Arg::Tensor(output),
            ],
        )
    })
}

/// `nan_to_num(self, nan, posinf, neginf)`: what is left out is 0 and the ends of the type's range.
fn nan_to_num(call: &Call<'_>) -> Result<()> {
    let view = call.tensor(0)?;
    let largest = match view.dtype {
        DType::F32 => f64::from(f32::MAX),
        DType::F16 => 65504.0,
        DType::Bf16 => f64::from(f32::from_bits(0x7f7f_0000)),
        _ => return decline(format!("nan_to_num of {}", view.dtype)),
    };
    call.run(
        "aclnnNanToNum",
        &[
            Arg::Tensor(view),
            Arg::Real(call.real(1)?.unwrap_or(0.0)),
            Arg::Real(call.real(2)?.unwrap_or(largest)),
            Arg::Real(call.real(3)?.unwrap_or(-largest)),
            Arg::Tensor(call.output(0)?),
        ],
    )
}

/// The weight of a channel each, which torch gives with as many dimensions as the input, as CANN takes it.
fn weights(call: &Call<'_>, place: usize) -> Result<View> {
    let weight = call.dense(call.tensor(place)?)?;
    weight.reshaped(&[weight.elements()])
}

fn prelu(call: &Call<'_>) -> Result<()> {
    call.run(
        "aclnnPrelu",
        &[
            Arg::Tensor(call.tensor(0)?),
            Arg::Tensor(weights(call, 1)?),
            Arg::Tensor(call.output(0)?),
        ],
    )
}

/// `_prelu_kernel_backward(grad_output, self, weight)`: torch wants the weight's gradient for each element, and CANN's own
/// function gives their sums.
fn prelu_backward(call: &Call<'_>) -> Result<()> {
    let (gradient, view, weight) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let (to_view, to_weight) = (call.output(0)?, call.output(1)?);
    let positive = call.temporary(DType::Bool, &view.sizes)?;
    call.run(
        "aclnnGtScalar",
        &[
            Arg::Tensor(view),
            Arg::Scalar(Number::Whole(0)),
            Arg::Tensor(positive),
        ],
    )?;
    call.run(
        "aclnnMul",
        &[
            Arg::Tensor(view),
            Arg::Tensor(gradient),
            Arg::Tensor(to_weight),
        ],
    )?;
    call.run(
        "aclnnInplaceMaskedFillScalar",
        &[
            Arg::Tensor(to_weight),
            Arg::Tensor(positive),
            Arg::Scalar(Number::Whole(0)),
        ],
    )?;
    let weighted = call.temporary(gradient.dtype, &gradient.sizes)?;
    call.run(
        "aclnnMul",
        &[
            Arg::Tensor(weight),
            Arg::Tensor(gradient),
            Arg::Tensor(weighted),
        ],
    )?;
    call.run(
        "aclnnSWhere",
        &[
            Arg::Tensor(positive),
            Arg::Tensor(gradient),
            Arg::Tensor(weighted),
            Arg::Tensor(to_view),
        ],
    )
}

/// The operands of an operator on two tensors, in one type. Numbers become tensors without dimensions.
fn operands(call: &Call<'_>) -> Result<(View, View)> {
    let mut promotion = Promotion::default();
    for place in 0..2 {
        match call.value(place)? {
            Value::Tensor(tensor) => promotion.tensor(&tensor)?,
            Value::Number(number) => promotion.number(number)?,
            _ => return decline(format!("argument {place} is no number")),
        }
    }
    let Some(common) = promotion.result()? else {
        return decline("no operand has a type");
    };
    let operand = |place: usize| match call.value(place)? {
        Value::Tensor(tensor) if tensor.is_on_host() => call.filled(tensor.number()?, common),
        Value::Tensor(tensor) => call.cast(tensor.view()?, common),
        Value::Number(number) => call.filled(number, common),
        _ => decline(format!("argument {place} is no number")),
    };
    Ok((operand(0)?, operand(1)?))
}

/// `div.Tensor_mode(self, other, rounding_mode)`.
fn divide(call: &Call<'_>) -> Result<()> {
    let output = call.output(0)?;
    let mode = match call.value(2)? {
        Value::None => 0,
        Value::Text(text) if text.to_bytes() == b"trunc" => 1,
        Value::Text(text) if text.to_bytes() == b"floor" => 2,
        _ => return decline("another rounding than trunc and floor"),
    };
    let divisor = match call.value(1)? {
        Value::Number(number) => Some(number),
        Value::Tensor(tensor) if tensor.is_on_host() => Some(tensor.number()?),
        _ => None,
    };
    if output.dtype.category() < Category::Real && divisor == Some(Number::Whole(0)) {
        return decline("a division of integers by 0, which the CPU refuses");
    }
    let (mut left, mut right) = operands(call)?;
    if mode == 0 && left.dtype.category() < Category::Real {
        (left, right) = (
            call.cast(left, output.dtype)?,
            call.cast(right, output.dtype)?,
        );
    }
    call.run(
        "aclnnDivMod",
        &[
            Arg::Tensor(left),
            Arg::Tensor(right),
            Arg::int(mode),
            Arg::Tensor(output),
        ],
    )
}

/// `masked_fill(self, mask, value)`: CANN has the one in place.
fn masked_fill(call: &Call<'_>) -> Result<()> {
    let (view, mask, output) = (call.tensor(0)?, call.tensor(1)?, call.output(0)?);
    if output.is_empty() {
        return Ok(());
    }
    if !view.is_same(&output) {
        call.copy(output, view)?;
    }
    let value = call.value(2)?;
    match value {
        Value::Number(number) => call.run(
            "aclnnInplaceMaskedFillScalar",
            &[Arg::Tensor(output), Arg::Tensor(mask), Arg::Scalar(number)],
        ),
        Value::Tensor(tensor) if tensor.is_on_host() => call.run(
            "aclnnInplaceMaskedFillScalar",
            &[
                Arg::Tensor(output),
                Arg::Tensor(mask),
                Arg::Scalar(tensor.number()?),
            ],
        ),
        _ => {
            let value = call.cast(call.tensor(2)?, output.dtype)?;
            call.run(
                "aclnnInplaceMaskedFillTensor",
                &[Arg::Tensor(output), Arg::Tensor(mask), Arg::Tensor(value)],
            )
        }
    }
}

/// `argmax(self, dim, keepdim)`: without a dimension the place in the tensor as a row.
fn arg(call: &Call<'_>, function: &str) -> Result<()> {
    let (view, output) = (call.tensor(0)?, call.output(0)?);
    let (view, dim, keeps, output) = match call.value(1)? {
        Value::None => {
            let row = call.dense(view)?;
            (
                row.reshaped(&[row.elements()])?,
                0,
                false,
                output.reshaped(&[])?,
            )
        }
        _ if view.sizes.is_empty() => (view.reshaped(&[1])?, 0, false, output),
        _ => (view, call.int(1)?, call.flag(2)?, output),
    };
    if output.is_empty() {
        return Ok(());
    }
    call.run(
        function,
        &[
            Arg::Tensor(view),
            Arg::int(dim),
            Arg::flag(keeps),
            Arg::Tensor(output),
        ],
    )
}

/// `max.dim(self, dim, keepdim)`: CANN's places are of int32.
fn greatest(call: &Call<'_>, function: &str) -> Result<()> {
    let (mut view, output, places) = (call.tensor(0)?, call.output(0)?, call.output(1)?);
    if output.is_empty() {
        return Ok(());
    }
    let (mut dim, mut keeps) = (call.int(1)?, call.flag(2)?);
    if view.sizes.is_empty() {
        (view, dim, keeps) = (view.reshaped(&[1])?, 0, false);
    }
    let short = call.temporary(DType::I32, &places.sizes)?;
    call.run(
        function,
        &[
            Arg::Tensor(view),
            Arg::int(dim),
            Arg::flag(keeps),
            Arg::Tensor(output),
            Arg::Tensor(short),
        ],
    )?;
    call.copy(places, short)
}

/// `kthvalue(self, k, dim, keepdim)`: CANN's tensors have at least one dimension, results too.
fn kth_value(call: &Call<'_>) -> Result<()> {
    let (view, values, places) = (call.tensor(0)?, call.output(0)?, call.output(1)?);
    if values.is_empty() {
        return Ok(());
    }
    let alone = values.sizes.is_empty();
    let row = |view: View| {
        if view.sizes.is_empty() {
            view.reshaped(&[1])
        } else {
            Ok(view)
        }
    };
    call.run(
        "aclnnKthvalue",
        &[
            Arg::Tensor(row(view)?),
            Arg::int(call.int(1)?),
            Arg::int(if alone { 0 } else { call.int(2)? }),
            Arg::flag(alone || call.flag(3)?),
            Arg::Tensor(row(values)?),
            Arg::Tensor(row(places)?),
        ],
    )
}

/// The most elements of the table in which `isin` compares each with each.
const MOST_COMPARED: i64 = 1 << 26;

/// `isin.Tensor_Tensor(elements, test_elements, assume_unique, invert)`: each is compared with each.
fn isin(call: &Call<'_>) -> Result<()> {
    let (elements, tested, output) = (call.tensor(0)?, call.tensor(1)?, call.output(0)?);
    let (rows, columns) = (elements.elements(), tested.elements());
    if rows == 0 || columns == 0 || rows.saturating_mul(columns) > MOST_COMPARED {
        return decline("isin of nothing, or of too many elements to compare each with each");
    }
    let Some(common) = elements.dtype.promoted(tested.dtype) else {
        return decline("torch does not promote these types");
    };
    let elements = call.dense(call.cast(elements, common)?)?;
    let elements = elements.reshaped(&[rows, 1])?;
    let tested = call.dense(call.cast(tested, common)?)?;
    let tested = tested.reshaped(&[1, columns])?;
    let equal = call.temporary(DType::Bool, &[rows, columns])?;
    call.run(
        "aclnnEqTensor",
        &[
            Arg::Tensor(elements),
            Arg::Tensor(tested),
            Arg::Tensor(equal),
        ],
    )?;
    let found = if output.is_contiguous() {
        output
    } else {
        call.temporary(DType::Bool, &output.sizes)?
    };
    let row = found.reshaped(&[rows])?;
    call.run(
        "aclnnAny",
        &[
            Arg::Tensor(equal),
            Arg::Ints(&[1]),
            Arg::flag(false),
            Arg::Tensor(row),
        ],
    )?;
    if call.flag(3)? {
        return call.run(
            "aclnnLogicalNot",
            &[Arg::Tensor(found), Arg::Tensor(output)],
        );
    }
    if found.is_same(&output) {
        Ok(())
    } else {
        call.copy(output, found)
    }
}

/// `searchsorted.Tensor(sorted_sequence, self, out_int32, right, side, sorter)`.
fn search_sorted(call: &Call<'_>) -> Result<()> {
    let right = match call.value(4)? {
        Value::Text(side) => side.to_bytes() == b"right",
        _ => call.flag(3)?,
    };
    search(
        call,
        call.tensor(0)?,
        call.tensor(1)?,
        call.flag(2)?,
        right,
        call.optional(5)?,
    )
}

/// `bucketize.Tensor(self, boundaries, out_int32, right)`.
fn bucketize(call: &Call<'_>) -> Result<()> {
    search(
        call,
        call.tensor(1)?,
        call.tensor(0)?,
        call.flag(2)?,
        call.flag(3)?,
        None,
    )
}

fn search(
    call: &Call<'_>,
    sorted: View,
    values: View,
    short: bool,
    right: bool,
    sorter: Option<View>,
) -> Result<()> {
    if sorted.dtype != values.dtype {
        return decline("the sorted values are of another type than those that are looked for");
    }
    call.run(
        "aclnnSearchSorted",
        &[
            Arg::Tensor(sorted),
            Arg::Tensor(values),
            Arg::flag(short),
            Arg::flag(right),
            Arg::from(sorter),
            Arg::Tensor(call.output(0)?),
        ],
    )
}

/// The tensors of a list in the type of the result; with `skips` those that have elements.
fn listed(call: &Call<'_>, output: View, skips: bool) -> Result<Vec<Option<View>>> {
    let mut views = Vec::new();
    for view in call.tensors(0)?.into_iter().flatten() {
        if !(skips && view.is_empty()) {
            views.push(Some(call.cast(view, output.dtype)?));
        }
    }
    Ok(views)
}

/// `cat(tensors, dim)`.
fn cat(call: &Call<'_>) -> Result<()> {
    let output = call.output(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let views = listed(call, output, true)?;
    call.run(
        "aclnnCat",
        &[
            Arg::Tensors(&views),
            Arg::int(call.int(1)?),
            Arg::Tensor(output),
        ],
    )
}

/// `stack(tensors, dim)`.
fn stack(call: &Call<'_>) -> Result<()> {
    let output = call.output(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let views = listed(call, output, false)?;
    call.run(
        "aclnnStack",
        &[
            Arg::Tensors(&views),
            Arg::int(call.int(1)?),
            Arg::Tensor(output),
        ],
    )
}

/// Only what is not a number differs from itself.
fn is_nan(call: &Call<'_>) -> Result<()> {
    let (view, output) = (call.tensor(0)?, call.output(0)?);
    if output.is_empty() {
        return Ok(());
    }
    call.run(
        "aclnnNeTensor",
        &[Arg::Tensor(view), Arg::Tensor(view), Arg::Tensor(output)],
    )
}

/// A contiguous tensor of the same elements with a dimension more in front.
pub(super) fn batched(view: View) -> Result<View> {
    let mut sizes = vec![1];
    sizes.extend_from_slice(&view.sizes);
    let mut strides = vec![
        dense(&view.sizes).first().copied().unwrap_or(1) * view.sizes.first().copied().unwrap_or(1),
    ];
    strides.extend_from_slice(&view.strides);
    view.with(&sizes, &strides)
}

/// 1 and 0 of this type.
pub(super) const ONE: Number = Number::Whole(1);
