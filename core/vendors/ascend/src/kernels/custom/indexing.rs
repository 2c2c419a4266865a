//! Elements by their places.

use flagos_core::error::Result;

use super::super::call::{Call, Value};
use super::super::dtype::DType;
use super::super::launch::Arg;
use super::super::view::{View, decline};
use super::operator::operators;

operators! {
    c"aten::index.Tensor" ["aclnnIndex"] => index;
    c"aten::index_put" ["aclnnIndexPutImpl", "aclnnInplaceCopy"] => index_put;
    c"aten::_index_put_impl_" ["aclnnIndexPutImpl", "aclnnInplaceCopy"] => index_put;
    c"aten::embedding_dense_backward" ["aclnnEmbeddingDenseBackward", "aclnnInplaceZero"] => embedding_backward;
    c"aten::index_copy" ["aclnnIndexCopy", "aclnnInplaceCopy"] => index_copy;
    c"aten::scatter.reduce" ["aclnnScatter"] => scatter_reduce;
    c"aten::scatter.value_reduce" ["aclnnScatterValue"] => scatter_reduce;
    c"aten::masked_scatter" ["aclnnInplaceMaskedScatter", "aclnnInplaceCopy"] => masked_scatter;
}

/// The indices as CANN takes them: an empty one stands for a whole dimension. The host has made places of masks.
fn indices(call: &Call<'_>, place: usize) -> Result<Vec<Option<View>>> {
    let mut views = call.tensors(place)?;
    for view in &mut views {
        match view {
            None => *view = Some(View::nothing(DType::I64)?),
            Some(view) if !matches!(view.dtype, DType::I64 | DType::I32) => {
                return decline(format!("indices of {}", view.dtype));
            }
            Some(_) => {}
        }
    }
    Ok(views)
}

/// `index.Tensor(self, indices)`.
fn index(call: &Call<'_>) -> Result<()> {
    let output = call.output(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let indices = indices(call, 1)?;
    call.run(
        "aclnnIndex",
        &[
            Arg::Tensor(call.tensor(0)?),
            Arg::Tensors(&indices),
            Arg::Tensor(output),
        ],
    )
}

/// `index_put(self, indices, values, accumulate, unsafe)`.
fn index_put(call: &Call<'_>) -> Result<()> {
    let (view, values, output) = (call.tensor(0)?, call.value(2)?, call.output(0)?);
    if output.is_empty() {
        return Ok(());
    }
    let accumulates = call.flag(3)?;
    let indices = indices(call, 1)?;
    let values = match values {
        Value::Tensor(tensor) if tensor.is_on_host() => {
            call.filled(tensor.number()?, output.dtype)?
        }
        _ => call.tensor(2)?,
    };
    // CANN takes at least one dimension.
    let values = if values.sizes.is_empty() {
        values.reshaped(&[1])?
    } else {
        values
    };
    if !view.is_same(&output) {
        call.copy(output, view)?;
    }
    if values.is_empty()
        || call
            .tensors(1)?
            .iter()
            .flatten()
            .any(|index| index.is_empty())
    {
        return Ok(());
    }
    call.run(
        "aclnnIndexPutImpl",
        &[
            Arg::Tensor(output),
            Arg::Tensors(&indices),
            Arg::Tensor(values),
            Arg::flag(accumulates),
            Arg::flag(true),
        ],
    )
}

/// `embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)`.
fn embedding_backward(call: &Call<'_>) -> Result<()> {
    let (mut gradient, output) = (call.tensor(0)?, call.output(0)?);
    if output.is_empty() {
        return Ok(());
    }
    if gradient.is_empty() {
        return call.run("aclnnInplaceZero", &[Arg::Tensor(output)]);
    }
    // One index alone: the gradient has the dimension of the vector only.
    if gradient.sizes.len() == 1 {
        gradient = call.dense(gradient)?.reshaped(&[1, gradient.elements()])?;
    }
    call.run(
        "aclnnEmbeddingDenseBackward",
        &[
            Arg::Tensor(gradient),
            Arg::Tensor(call.tensor(1)?),
            Arg::int(call.int(2)?),
            Arg::int(call.int(3)?),
            Arg::flag(call.flag(4)?),
            Arg::Tensor(output),
        ],
    )
}

/// `index_copy(self, dim, index, source)`.
fn index_copy(call: &Call<'_>) -> Result<()> {
    let (view, output) = (call.tensor(0)?, call.output(0)?);
    let (index, source) = (call.tensor(2)?, call.tensor(3)?);
    if output.is_empty() {
        return Ok(());
    }
    if index.is_empty() || source.is_empty() || view.sizes.is_empty() {
        return decline("index_copy of nothing, or without dimensions");
    }
    if view.is_same(&output) {
        return call.run(
            "aclnnInplaceIndexCopy",
            &[
                Arg::Tensor(output),
                Arg::int(call.int(1)?),
                Arg::Tensor(index),
                Arg::Tensor(source),
            ],
        );
    }
    call.run(
        "aclnnIndexCopy",
        &[
            Arg::Tensor(view),
            Arg::int(call.int(1)?),
            Arg::Tensor(index),
            Arg::Tensor(source),
            Arg::Tensor(output),
        ],
    )
}

/// `scatter.reduce(self, dim, index, src, reduce)`, and with a number for `src`.
fn scatter_reduce(call: &Call<'_>) -> Result<()> {
    let reduce = match call.value(4)? {
        Value::Text(text) if text.to_bytes() == b"add" => 1,
        Value::Text(text) if text.to_bytes() == b"multiply" => 2,
        _ => return decline("another reduction than add and multiply"),
    };
    let output = call.output(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let (function, source) = match call.value(3)? {
        Value::Number(number) => ("aclnnScatterValue", Arg::Scalar(number)),
        _ => ("aclnnScatter", Arg::Tensor(call.tensor(3)?)),
    };
    call.run(
        function,
        &[
            Arg::Tensor(call.tensor(0)?),
            Arg::int(call.int(1)?),
            Arg::Tensor(call.tensor(2)?),
            source,
            Arg::int(reduce),
            Arg::Tensor(output),
        ],
    )
}

/// `masked_scatter(self, mask, source)`.
fn masked_scatter(call: &Call<'_>) -> Result<()> {
    let (view, mask, output) = (call.tensor(0)?, call.tensor(1)?, call.output(0)?);
    if mask.dtype != DType::Bool {
        return decline(format!("a mask of {}", mask.dtype));
    }
    if output.is_empty() {
        return Ok(());
    }
    if !view.is_same(&output) {
        call.copy(output, view)?;
    }
    let source = call.tensor(2)?;
    call.run(
        "aclnnInplaceMaskedScatter",
        &[Arg::Tensor(output), Arg::Tensor(mask), Arg::Tensor(source)],
    )
}
