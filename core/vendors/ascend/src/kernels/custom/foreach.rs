//! Operators on lists of tensors. CANN takes lists of at most 50 tensors of one type.

use flagos_core::error::Result;

use super::super::call::{Call, Value};
use super::super::dtype::{Category, DType};
use super::super::launch::Arg;
use super::super::objects::Number;
use super::super::view::{View, decline};
use super::operator::operators;

/// The tensors of one call of CANN.
const MOST: usize = 32;

/// `"name" => "function"` of operators of one list.
macro_rules! unary {
    ($($name:literal $function:literal;)*) => {
        &[$(super::operator::Custom {
            name: $name,
            functions: &[$function],
            run: |call| unary(call, $function),
        },)*]
    };
}

const UNARY: &[super::operator::Custom] = unary! {
    c"aten::_foreach_abs" "aclnnForeachAbs";
    c"aten::_foreach_acos" "aclnnForeachAcos";
    c"aten::_foreach_asin" "aclnnForeachAsin";
    c"aten::_foreach_atan" "aclnnForeachAtan";
    c"aten::_foreach_cos" "aclnnForeachCos";
    c"aten::_foreach_cosh" "aclnnForeachCosh";
    c"aten::_foreach_erf" "aclnnForeachErf";
    c"aten::_foreach_erfc" "aclnnForeachErfc";
    c"aten::_foreach_exp" "aclnnForeachExp";
    c"aten::_foreach_expm1" "aclnnForeachExpm1";
    c"aten::_foreach_log" "aclnnForeachLog";
    c"aten::_foreach_log10" "aclnnForeachLog10";
    c"aten::_foreach_log1p" "aclnnForeachLog1p";
    c"aten::_foreach_log2" "aclnnForeachLog2";
    c"aten::_foreach_neg" "aclnnForeachNeg";
    c"aten::_foreach_reciprocal" "aclnnForeachReciprocal";
    c"aten::_foreach_sigmoid" "aclnnForeachSigmoid";
    c"aten::_foreach_sign" "aclnnForeachSign";
    c"aten::_foreach_sin" "aclnnForeachSin";
    c"aten::_foreach_sinh" "aclnnForeachSinh";
    c"aten::_foreach_sqrt" "aclnnForeachSqrt";
    c"aten::_foreach_tan" "aclnnForeachTan";
    c"aten::_foreach_tanh" "aclnnForeachTanh";
};

operators! {
    const SEVERAL;
    c"aten::_foreach_add.List" ["aclnnForeachAddListV2"] => |call| lists(call, "aclnnForeachAddListV2", Some(2));
    c"aten::_foreach_sub.List" ["aclnnForeachSubListV2"] => |call| lists(call, "aclnnForeachSubListV2", Some(2));
    c"aten::_foreach_mul.List" ["aclnnForeachMulList"] => |call| lists(call, "aclnnForeachMulList", None);
    c"aten::_foreach_div.List" ["aclnnForeachDivList"] => |call| lists(call, "aclnnForeachDivList", None);
    c"aten::_foreach_maximum.List" ["aclnnForeachMaximumList"] => |call| lists(call, "aclnnForeachMaximumList", None);
    c"aten::_foreach_minimum.List" ["aclnnForeachMinimumList"] => |call| lists(call, "aclnnForeachMinimumList", None);
    c"aten::_foreach_clamp_min.List" ["aclnnForeachMaximumList"] => |call| lists(call, "aclnnForeachMaximumList", None);
    c"aten::_foreach_clamp_max.List" ["aclnnForeachMinimumList"] => |call| lists(call, "aclnnForeachMinimumList", None);
    c"aten::_foreach_pow.List" ["aclnnForeachPowList"] => |call| lists(call, "aclnnForeachPowList", None);
    c"aten::_foreach_add.Scalar" ["aclnnForeachAddScalarV2"] => |call| scalar(call, "aclnnForeachAddScalarV2", 1);
    c"aten::_foreach_sub.Scalar" ["aclnnForeachSubScalarV2"] => |call| scalar(call, "aclnnForeachSubScalarV2", 1);
    c"aten::_foreach_mul.Scalar" ["aclnnForeachMulScalarV2"] => |call| scalar(call, "aclnnForeachMulScalarV2", 1);
    c"aten::_foreach_div.Scalar" ["aclnnForeachDivScalarV2"] => |call| scalar(call, "aclnnForeachDivScalarV2", 1);
    c"aten::_foreach_maximum.Scalar" ["aclnnForeachMaximumScalarV2"] => |call| scalar(call, "aclnnForeachMaximumScalarV2", 1);
    c"aten::_foreach_minimum.Scalar" ["aclnnForeachMinimumScalarV2"] => |call| scalar(call, "aclnnForeachMinimumScalarV2", 1);
    c"aten::_foreach_clamp_min.Scalar" ["aclnnForeachMaximumScalarV2"] => |call| scalar(call, "aclnnForeachMaximumScalarV2", 1);
    c"aten::_foreach_clamp_max.Scalar" ["aclnnForeachMinimumScalarV2"] => |call| scalar(call, "aclnnForeachMinimumScalarV2", 1);
    c"aten::_foreach_pow.Scalar" ["aclnnForeachPowScalarV2"] => |call| scalar(call, "aclnnForeachPowScalarV2", 1);
    c"aten::_foreach_lerp.Scalar" ["aclnnForeachLerpScalar"] => |call| with_scalar(call, "aclnnForeachLerpScalar", 2, 2);
    c"aten::_foreach_lerp.List" ["aclnnForeachLerpList"] => |call| three(call, "aclnnForeachLerpList");
    c"aten::_foreach_addcdiv.Scalar" ["aclnnForeachAddcdivScalarV2"] => |call| with_scalar(call, "aclnnForeachAddcdivScalarV2", 3, 3);
    c"aten::_foreach_addcmul.Scalar" ["aclnnForeachAddcmulScalarV2"] => |call| with_scalar(call, "aclnnForeachAddcmulScalarV2", 3, 3);
    c"aten::_foreach_addcdiv.ScalarList" ["aclnnForeachAddcdivScalarV2", "aclnnAddcdiv"] => |call| with_scalars(call, "aclnnForeachAddcdivScalarV2", "aclnnAddcdiv");
    c"aten::_foreach_addcmul.ScalarList" ["aclnnForeachAddcmulScalarV2", "aclnnAddcmul"] => |call| with_scalars(call, "aclnnForeachAddcmulScalarV2", "aclnnAddcmul");
    c"aten::_foreach_add.ScalarList" ["aclnnForeachAddScalarList"] => |call| scalar_list(call, "aclnnForeachAddScalarList");
    c"aten::_foreach_sub.ScalarList" ["aclnnForeachSubScalarList"] => |call| scalar_list(call, "aclnnForeachSubScalarList");
    c"aten::_foreach_mul.ScalarList" ["aclnnForeachMulScalarList"] => |call| scalar_list(call, "aclnnForeachMulScalarList");
    c"aten::_foreach_div.ScalarList" ["aclnnForeachDivScalarList"] => |call| scalar_list(call, "aclnnForeachDivScalarList");
    c"aten::_foreach_pow.ScalarList" ["aclnnForeachPowScalarList"] => |call| scalar_list(call, "aclnnForeachPowScalarList");
    c"aten::_foreach_maximum.ScalarList" ["aclnnForeachMaximumScalarList"] => |call| scalar_list(call, "aclnnForeachMaximumScalarList");
    c"aten::_foreach_minimum.ScalarList" ["aclnnForeachMinimumScalarList"] => |call| scalar_list(call, "aclnnForeachMinimumScalarList");
    c"aten::_foreach_mul.Tensor" ["aclnnForeachMulScalar", "aclnnForeachMulScalarV2"] => |call| by_tensor(call, "aclnnForeachMulScalar", "aclnnForeachMulScalarV2");
    c"aten::_foreach_div.Tensor" ["aclnnForeachDivScalar", "aclnnForeachDivScalarV2"] => |call| by_tensor(call, "aclnnForeachDivScalar", "aclnnForeachDivScalarV2");
    c"aten::_foreach_add.Tensor" ["aclnnForeachAddScalar", "aclnnForeachAddScalarV2"] => add_tensor;
    c"aten::_foreach_norm.Scalar" ["aclnnForeachNorm"] => norm;
    c"aten::_foreach_copy" ["aclnnForeachCopy"] => copy;
    c"aten::_foreach_zero" ["aclnnForeachZeroInplace"] => zero;
}

const fn joined() -> [&'static super::operator::Custom; UNARY.len() + SEVERAL.len()] {
    let mut all = [&UNARY[0]; UNARY.len() + SEVERAL.len()];
    let mut place = 0;
    while place < all.len() {
        all[place] = if place < UNARY.len() {
            &UNARY[place]
        } else {
            &SEVERAL[place - UNARY.len()]
        };
        place += 1;
    }
    all
}

/// Every operator of this file.
pub(super) static ALL: [&super::operator::Custom; UNARY.len() + SEVERAL.len()] = joined();

/// The lists of a call that are not empty tensors, each with as many: arguments, and results last. The tensors of a place
/// are of one shape, and all of one type.
fn columns(call: &Call<'_>, places: &[usize]) -> Result<Vec<Vec<View>>> {
    let mut lists = Vec::with_capacity(places.len() + 1);
    for place in places {
        lists.push(call.tensors(*place)?);
    }
    lists.push(call.optional_outputs()?);
    let length = lists[0].len();
    if lists.iter().any(|list| list.len() != length) {
        return decline("the lists have different lengths");
    }
    let mut columns: Vec<Vec<View>> = vec![Vec::with_capacity(length); lists.len()];
    for row in 0..length {
        let mut views = Vec::with_capacity(lists.len());
        for list in &lists {
            match list[row] {
                Some(view) => views.push(view),
                None => return decline("a list has a gap"),
            }
        }
        let first = views[0];
        if views.iter().any(|view| !view.is_contiguous()) {
            return decline("tensors of a list do not lie side by side in memory");
        }
        if views
            .iter()
            .any(|view| view.sizes != first.sizes || view.dtype != first.dtype)
        {
            return decline("the tensors of a place have different shapes or types");
        }
        if !first.is_empty() {
            columns
                .iter_mut()
                .zip(views)
                .for_each(|(column, view)| column.push(view));
        }
    }
    let mut dtypes = columns[0].iter().map(|view| view.dtype);
    if let Some(first) = dtypes.next() {
        if dtypes.any(|dtype| dtype != first) {
            return decline("the tensors of a list have different types");
        }
    }
    Ok(columns)
}

/// Calls `run` with parts of the lists that CANN takes at once, and the place of their first tensors.
fn chunks(
    columns: &[Vec<View>],
    mut run: impl FnMut(&[Vec<Option<View>>], usize) -> Result<()>,
) -> Result<()> {
    let length = columns[0].len();
    for start in (0..length).step_by(MOST) {
        let end = length.min(start + MOST);
        let parts: Vec<Vec<_>> = columns
            .iter()
            .map(|column| column[start..end].iter().copied().map(Some).collect())
            .collect();
        run(&parts, start)?;
    }
    Ok(())
}

fn unary(call: &Call<'_>, function: &str) -> Result<()> {
    chunks(&columns(call, &[0])?, |parts, _| {
        call.run(
            function,
            &[Arg::Tensors(&parts[0]), Arg::Tensors(&parts[1])],
        )
    })
}

/// Two lists, and the place of their factor if there is one.
fn lists(call: &Call<'_>, function: &str, alpha: Option<usize>) -> Result<()> {
    let alpha = alpha.map(|place| call.number(place)).transpose()?;
    chunks(&columns(call, &[0, 1])?, |parts, _| {
        let [a, b, out] = [&parts[0], &parts[1], &parts[2]].map(|part| Arg::Tensors(part));
        match alpha {
            Some(alpha) => call.run(
                function,
                &[a, b, Arg::Scalar(of_kind(alpha, &parts[0])), out],
            ),
            None => call.run(function, &[a, b, out]),
        }
    })
}

/// The number in the kind of the list's type: CANN takes real numbers for real types.
fn of_kind(number: Number, part: &[Option<View>]) -> Number {
    let real = part
        .iter()
        .flatten()
        .any(|view| view.dtype.category() == Category::Real);
    match number {
        Number::Whole(whole) if real => Number::Real(whole as f64),
        Number::Bool(value) if real => Number::Real(f64::from(u8::from(value))),
        other => other,
    }
}

/// Whether a number may be put into tensors of the type without making another type of it.
fn keeps_type(number: Number, dtype: DType) -> bool {
    match number {
        Number::Complex(..) => dtype.category() == Category::Complex,
        Number::Real(_) | Number::Single(_) => dtype.category() >= Category::Real,
        Number::Whole(_) | Number::Bool(_) => dtype.category() >= Category::Whole,
    }
}

fn number(call: &Call<'_>, place: usize, columns: &[Vec<View>]) -> Result<Number> {
    let number = match call.value(place)? {
        Value::Tensor(tensor) if tensor.is_on_host() => tensor.number()?,
        Value::Number(number) => number,
        _ => return decline("no number"),
    };
    match columns[0].first() {
        // torch refuses some of them.
        _ if matches!(number, Number::Bool(_)) => decline("a boolean among numbers"),
        Some(view) if !keeps_type(number, view.dtype) => {
            decline("the number makes another type of the list's")
        }
        _ => Ok(number),
    }
}

/// A list and the number at this place.
fn scalar(call: &Call<'_>, function: &str, place: usize) -> Result<()> {
    let columns = columns(call, &[0])?;
    let number = number(call, place, &columns)?;
    chunks(&columns, |parts, _| {
        let scalar = Arg::Scalar(of_kind(number, &parts[0]));
        call.run(
            function,
            &[Arg::Tensors(&parts[0]), scalar, Arg::Tensors(&parts[1])],
        )
    })
}

/// As many lists as said, and the number at this place.
fn with_scalar(call: &Call<'_>, function: &str, count: usize, place: usize) -> Result<()> {
    let places: Vec<_> = (0..count).collect();
    let columns = columns(call, &places)?;
    let number = number(call, place, &columns)?;
    chunks(&columns, |parts, _| apply(call, function, parts, number))
}

fn apply(
    call: &Call<'_>,
    function: &str,
    parts: &[Vec<Option<View>>],
    number: Number,
) -> Result<()> {
    let (out, inputs) = (&parts[parts.len() - 1], &parts[..parts.len() - 1]);
    let mut arguments: Vec<_> = inputs.iter().map(|part| Arg::Tensors(part)).collect();
    arguments.push(Arg::Scalar(of_kind(number, &parts[0])));
    arguments.push(Arg::Tensors(out));
    call.run(function, &arguments)
}

fn three(call: &Call<'_>, function: &str) -> Result<()> {
    chunks(&columns(call, &[0, 1, 2])?, |parts, _| {
        let arguments: Vec<_> = parts.iter().map(|part| Arg::Tensors(part)).collect();
        call.run(function, &arguments)
    })
}

/// The numbers of a list of numbers.
fn numbers(call: &Call<'_>, place: usize) -> Result<Vec<Number>> {
    Ok(match call.value(place)? {
        Value::Floats(numbers) => numbers.iter().map(|number| Number::Real(*number)).collect(),
        Value::Ints(numbers) => numbers
            .iter()
            .map(|number| Number::Whole(*number))
            .collect(),
        _ => return decline("no list of numbers"),
    })
}

/// Three lists and a number for each place. A number that is the same for all takes one call.
fn with_scalars(call: &Call<'_>, function: &str, single: &str) -> Result<()> {
    let columns = columns(call, &[0, 1, 2])?;
    let numbers = numbers(call, 3)?;
    let Some(first) = numbers.first().copied() else {
        return Ok(());
    };
    if let Some(view) = columns[0].first() {
        if !numbers.iter().all(|number| keeps_type(*number, view.dtype)) {
            return decline("a number makes another type of the list's");
        }
    }
    if numbers.iter().all(|number| *number == first) {
        return chunks(&columns, |parts, _| apply(call, function, parts, first));
    }
    if numbers.len() != columns[0].len() {
        return decline("empty tensors among numbers that differ");
    }
    for (row, number) in numbers.iter().enumerate() {
        call.run(
            single,
            &[
                Arg::Tensor(columns[0][row]),
                Arg::Tensor(columns[1][row]),
                Arg::Tensor(columns[2][row]),
                Arg::Scalar(*number),
                Arg::Tensor(columns[3][row]),
            ],
        )?;
    }
    Ok(())
}

/// A list and a number for each place.
fn scalar_list(call: &Call<'_>, function: &str) -> Result<()> {
    let columns = columns(call, &[0])?;
    let numbers = numbers(call, 1)?;
    if numbers.len() != columns[0].len() {
        return decline("empty tensors among numbers");
    }
    if let Some(view) = columns[0].first() {
        if !numbers.iter().all(|number| keeps_type(*number, view.dtype)) {
            return decline("a number makes another type of the list's");
        }
    }
    chunks(&columns, |parts, start| {
        let part: Vec<_> = numbers[start..start + parts[0].len()]
            .iter()
            .map(|number| of_kind(*number, &parts[0]))
            .collect();
        call.run(
            function,
            &[
                Arg::Tensors(&parts[0]),
                Arg::Scalars(&part),
                Arg::Tensors(&parts[1]),
            ],
        )
    })
}

/// A list and a tensor of one element, on the device or the host.
fn by_tensor(call: &Call<'_>, function: &str, with_number: &str) -> Result<()> {
    if matches!(call.value(1)?, Value::Tensor(tensor) if tensor.is_on_host()) {
        return scalar(call, with_number, 1);
    }
    let columns = columns(call, &[0])?;
    let factor = call.tensor(1)?;
    if factor.elements() != 1 {
        return decline("the factor has several elements");
    }
    let Some(first) = columns[0].first() else {
        return Ok(());
    };
    if first.dtype.category() != Category::Real || factor.dtype.category() != Category::Real {
        return decline("the factor makes another type of the list's");
    }
    let factor = call.cast(
        factor,
        if first.dtype == DType::Bf16 {
            DType::F32
        } else {
            first.dtype
        },
    )?;
    let factor = factor.with(&[1], &[1])?;
    chunks(&columns, |parts, _| {
        call.run(
            function,
            &[
                Arg::Tensors(&parts[0]),
                Arg::Tensor(factor),
                Arg::Tensors(&parts[1]),
            ],
        )
    })
}

/// `_foreach_add.Tensor(self, other, alpha)`.
fn add_tensor(call: &Call<'_>) -> Result<()> {
    match call.number(2)? {
        Number::Whole(1) | Number::Bool(true) => {}
        Number::Real(1.0) => {}
        _ => return decline("the tensor is multiplied before it is added"),
    }
    by_tensor(call, "aclnnForeachAddScalar", "aclnnForeachAddScalarV2")
}

/// `_foreach_norm.Scalar(self, ord, dtype)`.
fn norm(call: &Call<'_>) -> Result<()> {
    let (views, outputs) = (call.tensors(0)?, call.optional_outputs()?);
    // CANN's function of A2 and A3 takes every other order for 2.
    let order = match call.number(1)? {
        Number::Whole(order @ 1..=2) => Number::Whole(order),
        Number::Real(order) if order == 1.0 || order == 2.0 => Number::Real(order),
        _ => return decline("norms of another order than 1 and 2"),
    };
    if !matches!(call.value(2)?, Value::None) || views.len() != outputs.len() {
        return decline("norms in another type");
    }
    let mut columns = [Vec::new(), Vec::new()];
    for pair in views.into_iter().zip(outputs) {
        let (Some(view), Some(output)) = pair else {
            return decline("a list has a gap");
        };
        if view.is_empty() || view.dtype != output.dtype {
            return decline("the norm of nothing, or in another type");
        }
        columns[0].push(view);
        columns[1].push(output);
    }
    chunks(&columns, |parts, _| {
        let order = Arg::Scalar(of_kind(order, &parts[0]));
        call.run(
            "aclnnForeachNorm",
            &[Arg::Tensors(&parts[0]), order, Arg::Tensors(&parts[1])],
        )
    })
}

/// `_foreach_copy(self, src, non_blocking)`.
fn copy(call: &Call<'_>) -> Result<()> {
    chunks(&columns(call, &[1])?, |parts, _| {
        call.run(
            "aclnnForeachCopy",
            &[Arg::Tensors(&parts[0]), Arg::Tensors(&parts[1])],
        )
    })
}

/// `_foreach_zero(self)`.
fn zero(call: &Call<'_>) -> Result<()> {
    let outputs: Vec<_> = call
        .optional_outputs()?
        .into_iter()
        .flatten()
        .filter(|view| !view.is_empty())
        .collect();
    chunks(&[outputs], |parts, _| {
        call.run("aclnnForeachZeroInplace", &[Arg::Tensors(&parts[0])])
    })
}
