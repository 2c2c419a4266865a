//! The operators: what a call of each launches.

use std::ffi::CStr;

use flagos_core::runtime::launch::Kernel;
use flagos_core::{Error, Result};

use crate::call::{Call, Operand};
use crate::layout::{Loop, decline};
use crate::loaded::Loaded;
use crate::ptx::{ELEMENTWISE, Elementwise, THREADS};

/// An operator of torch with a kernel.
pub struct Operator {
    /// The name by which the host asks for it.
    pub name: &'static CStr,
    /// Queues a call.
    pub run: fn(&Call<'_>) -> Result<()>,
}

/// Every operator. The host asks for an operator that only writes to an argument by its own name, or by that of its
/// functional form.
pub static OPERATORS: [Operator; 7] = [
    Operator {
        name: c"aten::add.Tensor",
        run: |call| {
            let operands = [call.operand(0)?, call.operand(1)?];
            elementwise(call, "add", &operands, Some(call.number(2)?))
        },
    },
    Operator {
        name: c"aten::mul.Tensor",
        run: |call| {
            let operands = match [call.operand(0)?, call.operand(1)?] {
                [number @ Operand::Number(_), tensor] => [tensor, number],
                operands => operands,
            };
            elementwise(call, "mul", &operands, None)
        },
    },
    Operator {
        name: c"aten::relu",
        run: |call| elementwise(call, "relu", &[call.operand(0)?], None),
    },
    Operator {
        name: c"aten::fill_.Scalar",
        run: fill,
    },
    Operator {
        name: c"aten::fill.Scalar",
        run: fill,
    },
    Operator {
        name: c"aten::copy_",
        run: |call| elementwise(call, "copy", &[call.operand(1)?], None),
    },
    Operator {
        name: c"aten::mm",
        run: mm,
    },
];

fn fill(call: &Call<'_>) -> Result<()> {
    let value = Operand::Number(call.number(1)?);
    elementwise(call, "fill", &[value], None)
}

/// Launches the element-wise kernel of this operator that takes such operands.
fn elementwise(
    call: &Call<'_>,
    operator: &str,
    operands: &[Operand<'_>],
    alpha: Option<f32>,
) -> Result<()> {
    let is_tensor = |operand: &Operand<'_>| matches!(operand, Operand::Tensor(_));
    let kinds: Vec<_> = operands.iter().map(is_tensor).collect();
    let fits = |kernel: &Elementwise| kernel.operator == operator && kernel.operands == kinds;
    let Some(index) = ELEMENTWISE.iter().position(fits) else {
        return decline("all operands are numbers");
    };
    let out = call.output()?;
    let mut tensors = vec![out];
    let mut numbers = Vec::new();
    for operand in operands {
        match operand {
            Operand::Tensor(tensor) => tensors.push(*tensor),
            Operand::Number(number) => numbers.push(*number),
        }
    }
    numbers.extend(alpha);
    let views: Vec<_> = tensors[1..].iter().map(|tensor| tensor.view()).collect();
    let plan = Loop::new(out.view(), &views)?;
    let mut words = vec![u64::from(plan.elements)];
    words.extend(plan.sizes.map(u64::from));
    for (tensor, strides) in tensors.iter().zip(&plan.strides) {
        words.push(tensor.address());
        words.extend(strides.map(|stride| stride as u64));
    }
    words.extend(
        numbers
            .into_iter()
            .map(|number| u64::from(number.to_bits())),
    );
    launch(call, plan.elements, &words, |loaded| {
        loaded.elementwise(index)
    })
}

/// `mm(self, mat2)`.
fn mm(call: &Call<'_>) -> Result<()> {
    let tensors = [call.output()?, call.tensor(0)?, call.tensor(1)?];
    let [
        ([rows, columns], _),
        ([a_rows, length], _),
        ([b_rows, b_columns], _),
    ] = tensors.map(|tensor| tensor.view())
    else {
        return decline("a factor is no matrix");
    };
    if (rows, columns, length) != (a_rows, b_columns, b_rows) {
        let message = "the sizes of the matrices do not fit each other";
        return Err(Error::invalid_argument("run", message));
    }
    let whole = Loop::new(tensors[0].view(), &[])?;
    let (Ok(columns), Ok(length)) = (u32::try_from(*columns), u32::try_from(*length)) else {
        return decline("a dimension is too long");
    };
    let mut words = [whole.elements, columns, length].map(u64::from).to_vec();
    for tensor in tensors {
        words.push(tensor.address());
        words.extend(tensor.view().1.iter().map(|stride| *stride as u64));
    }
    launch(call, whole.elements, &words, Loaded::mm)
}

/// Launches a kernel with one thread for each element, unless there is none.
fn launch(
    call: &Call<'_>,
    elements: u32,
    words: &[u64],
    kernel: impl FnOnce(&'static Loaded) -> &'static dyn Kernel,
) -> Result<()> {
    if elements == 0 {
        return Ok(());
    }
    let kernel = kernel(Loaded::of(call.vendor(), call.device()?)?);
    let grid = [elements.div_ceil(THREADS), 1, 1];
    // SAFETY: a live stream of the device; the parameters are those of the kernel, whose addresses the layout keeps within
    // the tensors; and kernels are never unloaded.
    unsafe { kernel.launch(call.stream()?, grid, words) }
}
