//! Pools over windows of images.

use flagos_core::error::Result;

use super::super::call::{Call, Value};
use super::super::dtype::DType;
use super::super::launch::Arg;
use super::super::view::{View, decline};
use super::elementwise::batched;
use super::operator::operators;

operators! {
    c"aten::max_pool2d_with_indices" ["aclnnMaxPool2dWithIndices", "aclnnInplaceCopy"]
        => |call| max_pool(call, 2, "aclnnMaxPool2dWithIndices");
    c"aten::max_pool2d_with_indices_backward" ["aclnnMaxPool2dWithIndicesBackward", "aclnnCast"]
        => |call| max_pool_backward(call, 2, "aclnnMaxPool2dWithIndicesBackward");
    c"aten::max_pool3d_with_indices" ["aclnnMaxPool3dWithArgmax", "aclnnInplaceCopy"]
        => |call| max_pool(call, 3, "aclnnMaxPool3dWithArgmax");
    c"aten::max_pool3d_with_indices_backward" ["aclnnMaxPool3dWithArgmaxBackward", "aclnnCast"]
        => |call| max_pool_backward(call, 3, "aclnnMaxPool3dWithArgmaxBackward");
    c"aten::avg_pool2d" ["aclnnAvgPool2d"] => avg_pool;
    c"aten::avg_pool2d_backward" ["aclnnAvgPool2dBackward"] => avg_pool_backward;
    c"aten::avg_pool3d" ["aclnnAvgPool3d"] => avg_pool_3d;
    c"aten::avg_pool3d_backward" ["aclnnAvgPool3dBackward"] => avg_pool_3d_backward;
}

/// The window of a pool: sizes, steps, padding, as many numbers each as there are dimensions of the image.
struct Window {
    kernel: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
}

fn numbers(given: &[i64], dims: usize, otherwise: &[i64]) -> Vec<i64> {
    match given {
        [] => otherwise.to_vec(),
        [one] => vec![*one; dims],
        several => several.to_vec(),
    }
}

impl Window {
    /// The arguments of which the first is at `place`.
    fn new(call: &Call<'_>, place: usize, dims: usize) -> Result<Self> {
        let kernel = numbers(call.ints(place)?, dims, &[]);
        let stride = numbers(call.ints(place + 1)?, dims, &kernel);
        let padding = numbers(call.ints(place + 2)?, dims, &vec![0; dims]);
        Ok(Self {
            kernel,
            stride,
            padding,
        })
    }
}

/// Images with a batch in front: torch leaves it out for one image.
fn images(view: View, dims: usize) -> Result<View> {
    if view.sizes.len() == dims + 1 {
        batched(view)
    } else {
        Ok(view)
    }
}

/// The dilation of a pool, which CANN takes only if there is none.
fn undilated(given: &[i64], dims: usize) -> Result<Vec<i64>> {
    if given.iter().all(|dilation| *dilation == 1) {
        Ok(vec![1; dims])
    } else {
        decline("CANN's pools have no dilation")
    }
}

/// `max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)`, or of 3 dimensions. CANN's places
/// are of int32.
fn max_pool(call: &Call<'_>, dims: usize, function: &str) -> Result<()> {
    let (output, places) = (call.output(0)?, images(call.output(1)?, dims)?);
    if output.is_empty() {
        return Ok(());
    }
    let window = Window::new(call, 1, dims)?;
    let dilation = undilated(call.ints(4)?, dims)?;
    let short = call.temporary(DType::I32, &places.sizes)?;
    call.run(
        function,
        &[
            Arg::Tensor(images(call.tensor(0)?, dims)?),
            Arg::Ints(&window.kernel),
            Arg::Ints(&window.stride),
            Arg::Ints(&window.padding),
            Arg::Ints(&dilation),
            Arg::flag(call.flag(5)?),
            Arg::Tensor(images(output, dims)?),
            Arg::Tensor(short),
        ],
    )?;
    call.copy(places, short)
}

/// `max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices)`.
fn max_pool_backward(call: &Call<'_>, dims: usize, function: &str) -> Result<()> {
    let output = call.output(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let window = Window::new(call, 2, dims)?;
    let dilation = undilated(call.ints(5)?, dims)?;
    let places = call.cast(images(call.tensor(7)?, dims)?, DType::I32)?;
    call.run(
        function,
        &[
            Arg::Tensor(images(call.tensor(0)?, dims)?),
            Arg::Tensor(images(call.tensor(1)?, dims)?),
            Arg::Tensor(places),
            Arg::Ints(&window.kernel),
            Arg::Ints(&window.stride),
            Arg::Ints(&window.padding),
            Arg::Ints(&dilation),
            Arg::flag(call.flag(6)?),
            Arg::Tensor(images(output, dims)?),
        ],
    )
}

/// The number that sums are divided by; 0 is the number of elements.
fn divisor(call: &Call<'_>, place: usize) -> Result<i64> {
    match call.value(place)? {
        Value::None => Ok(0),
        _ => call.int(place),
    }
}

/// `avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)`.
fn avg_pool(call: &Call<'_>) -> Result<()> {
    let output = call.output(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let window = Window::new(call, 1, 2)?;
    call.run(
        "aclnnAvgPool2d",
        &[
            Arg::Tensor(images(call.tensor(0)?, 2)?),
            Arg::Ints(&window.kernel),
            Arg::Ints(&window.stride),
            Arg::Ints(&window.padding),
            Arg::flag(call.flag(4)?),
            Arg::flag(call.flag(5)?),
            Arg::int(divisor(call, 6)?),
            Arg::int(0),
            Arg::Tensor(images(output, 2)?),
        ],
    )
}

/// `avg_pool2d_backward(grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad,
/// divisor_override)`.
fn avg_pool_backward(call: &Call<'_>) -> Result<()> {
    let output = call.output(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let window = Window::new(call, 2, 2)?;
    call.run(
        "aclnnAvgPool2dBackward",
        &[
            Arg::Tensor(images(call.tensor(0)?, 2)?),
            Arg::Tensor(images(call.tensor(1)?, 2)?),
            Arg::Ints(&window.kernel),
            Arg::Ints(&window.stride),
            Arg::Ints(&window.padding),
            Arg::flag(call.flag(5)?),
            Arg::flag(call.flag(6)?),
            Arg::int(divisor(call, 7)?),
            Arg::int(0),
            Arg::Tensor(images(output, 2)?),
        ],
    )
}

/// `avg_pool3d`, with the arguments of `avg_pool2d`.
fn avg_pool_3d(call: &Call<'_>) -> Result<()> {
    let (view, output) = (call.tensor(0)?, call.output(0)?);
    if output.is_empty() {
        return Ok(());
    }
    if view.sizes.len() != 5 {
        return decline("avg_pool3d without a batch");
    }
    let window = Window::new(call, 1, 3)?;
    call.write_dense(output, |output| {
        call.run(
            "aclnnAvgPool3d",
            &[
                Arg::Tensor(view),
                Arg::Ints(&window.kernel),
                Arg::Ints(&window.stride),
                Arg::Ints(&window.padding),
                Arg::flag(call.flag(4)?),
                Arg::flag(call.flag(5)?),
                Arg::int(divisor(call, 6)?),
                Arg::Tensor(output),
            ],
        )
    })
}

/// `avg_pool3d_backward`, with the arguments of `avg_pool2d_backward`.
fn avg_pool_3d_backward(call: &Call<'_>) -> Result<()> {
    let (view, output) = (call.tensor(1)?, call.output(0)?);
    if output.is_empty() {
        return Ok(());
    }
    if view.sizes.len() != 5 {
        return decline("avg_pool3d without a batch");
    }
    let window = Window::new(call, 2, 3)?;
    call.run(
        "aclnnAvgPool3dBackward",
        &[
            Arg::Tensor(call.tensor(0)?),
            Arg::Tensor(view),
            Arg::Ints(&window.kernel),
            Arg::Ints(&window.stride),
            Arg::Ints(&window.padding),
            Arg::flag(call.flag(5)?),
            Arg::flag(call.flag(6)?),
            Arg::int(divisor(call, 7)?),
            Arg::Tensor(output),
        ],
    )
}
