//! Operators whose results' sizes depend on elements: CANN writes into the most that there can be, and tells what it
//! has written when the work is done.

use flagos_core::error::Result;

use super::super::call::Call;
use super::super::dtype::DType;
use super::super::launch::Arg;
use super::super::view::{View, decline};
use super::operator::operators;

operators! {
    c"aten::nonzero" ["aclnnNonzero"] => nonzero;
    c"aten::masked_select" ["aclnnMaskedSelect"] => masked_select;
    c"aten::_unique2" ["aclnnUnique2"] => unique;
    c"aten::unique_consecutive" ["aclnnUniqueConsecutive"] => unique_consecutive;
}

/// `nonzero(self)`: `[n, dims]`.
fn nonzero(call: &Call<'_>) -> Result<()> {
    let (view, output) = (call.tensor(0)?, call.output(0)?);
    if view.sizes.is_empty() || view.is_empty() {
        return decline("nonzero of nothing, or without dimensions");
    }
    let sizes = call.measure("aclnnNonzero", &[Arg::Tensor(view), Arg::Tensor(output)])?;
    call.resize(0, &sizes[1])
}

/// `masked_select(self, mask)`.
fn masked_select(call: &Call<'_>) -> Result<()> {
    let (view, mask, output) = (call.tensor(0)?, call.tensor(1)?, call.output(0)?);
    if output.is_empty() {
        return call.resize(0, &[0]);
    }
    let sizes = call.measure(
        "aclnnMaskedSelect",
        &[Arg::Tensor(view), Arg::Tensor(mask), Arg::Tensor(output)],
    )?;
    call.resize(0, &sizes[2])
}

/// A result, or memory for one that is not wanted: torch gives an empty tensor for it.
fn or_temporary(call: &Call<'_>, place: usize, wanted: bool, sizes: &[i64]) -> Result<View> {
    if wanted {
        call.output(place)
    } else {
        call.temporary(DType::I64, sizes)
    }
}

/// `_unique2(self, sorted, return_inverse, return_counts)`.
fn unique(call: &Call<'_>) -> Result<()> {
    let view = call.tensor(0)?;
    if view.is_empty() {
        return decline("the different elements of nothing");
    }
    let (inverse, counts) = (call.flag(2)?, call.flag(3)?);
    let sizes = call.measure(
        "aclnnUnique2",
        &[
            Arg::Tensor(view),
            Arg::flag(call.flag(1)?),
            Arg::flag(inverse),
            Arg::flag(counts),
            Arg::Tensor(call.output(0)?),
            Arg::Tensor(or_temporary(call, 1, inverse, &view.sizes)?),
            Arg::Tensor(or_temporary(call, 2, counts, &[view.elements()])?),
        ],
    )?;
    settle(call, counts, &sizes)
}

/// `unique_consecutive(self, return_inverse, return_counts, dim)`.
fn unique_consecutive(call: &Call<'_>) -> Result<()> {
    let view = call.tensor(0)?;
    if view.is_empty() || !matches!(call.value(3)?, super::super::call::Value::None) {
        return decline("the different elements of nothing, or along a dimension");
    }
    const NO_DIM: i64 = 1000;
    let (inverse, counts) = (call.flag(1)?, call.flag(2)?);
    let sizes = call.measure(
        "aclnnUniqueConsecutive",
        &[
            Arg::Tensor(view),
            Arg::flag(inverse),
            Arg::flag(counts),
            Arg::int(NO_DIM),
            Arg::Tensor(call.output(0)?),
            Arg::Tensor(or_temporary(call, 1, inverse, &view.sizes)?),
            Arg::Tensor(or_temporary(call, 2, counts, &[view.elements()])?),
        ],
    )?;
    settle(call, counts, &sizes)
}

fn settle(call: &Call<'_>, counts: bool, sizes: &[Vec<i64>]) -> Result<()> {
    call.resize(0, &sizes[1])?;
    if counts {
        call.resize(2, &sizes[3])
    } else {
        Ok(())
    }
}
