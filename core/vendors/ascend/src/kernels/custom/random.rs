//! Random numbers that CANN draws in steps. They are functions of the seed and the offset of the call, and other numbers
//! than those of other devices.

use std::f64::consts::PI;

use flagos_core::error::Result;

use super::super::call::{Call, Value};
use super::super::dtype::{Category, DType};
use super::super::launch::Arg;
use super::super::objects::Number;
use super::super::view::{View, decline};
use super::operator::operators;

operators! {
    c"aten::uniform_" ["aclnnInplaceUniform", "aclnnEqScalar", "aclnnInplaceMaskedFillScalar"] => uniform_between;
    c"aten::normal_" ["aclnnInplaceNormal"] => normal;
    c"aten::random_" ["aclnnInplaceRandom"] => |call| whole(call, 0, None);
    c"aten::random_.to" ["aclnnInplaceRandom"] => |call| whole(call, 0, Some(1));
    c"aten::random_.from" ["aclnnInplaceRandom"] => |call| whole(call, call.int(1)?, Some(2));
    c"aten::randperm.generator" ["aclnnRandperm"] => permutation;
    c"aten::randperm.generator_out" ["aclnnRandperm"] => permutation;
    c"aten::exponential_" ["aclnnInplaceUniform", "aclnnInplaceMuls", "aclnnInplaceLog1p"] => exponential;
    c"aten::geometric_" ["aclnnInplaceUniform", "aclnnInplaceMuls", "aclnnInplaceLog1p", "aclnnInplaceCeil"] => geometric;
    c"aten::log_normal_" ["aclnnInplaceNormal", "aclnnInplaceExp"] => log_normal;
    c"aten::cauchy_" ["aclnnInplaceUniform", "aclnnInplaceMuls", "aclnnInplaceTan", "aclnnInplaceAdds"] => cauchy;
}

/// The number behind the greatest that `random_` draws for a type: all of a whole type, and those that a floating-point
/// type has without gaps.
fn end_of(dtype: DType) -> Result<i64> {
    Ok(match dtype {
        DType::Bool => 2,
        DType::U8 => 1 << 8,
        DType::I8 => 1 << 7,
        DType::I16 => 1 << 15,
        DType::I32 => 1 << 31,
        DType::I64 => i64::MAX,
        DType::F16 => (1 << 11) + 1,
        DType::Bf16 => (1 << 8) + 1,
        DType::F32 => (1 << 24) + 1,
        DType::F64 => (1 << 53) + 1,
        _ => return decline(format!("whole random numbers of {dtype}")),
    })
}

/// Whole numbers from `from` to the one before argument `to`, or the last one of the type.
fn whole(call: &Call<'_>, from: i64, to: Option<usize>) -> Result<()> {
    let output = call.output(0)?;
    if output.is_empty() {
        return Ok(());
    }
    let end = match to.map(|place| call.value(place)).transpose()? {
        None | Some(Value::None) => end_of(output.dtype)?,
        Some(Value::Number(Number::Whole(end))) => end,
        Some(_) => return decline("the end is no whole number"),
    };
    let (seed, offset) = call.random();
    call.run_once(
        "aclnnInplaceRandom",
        &[
            Arg::Tensor(output),
            Arg::int(from),
            Arg::int(end),
            Arg::Word(seed >> 1),
            Arg::Word(offset),
        ],
    )
}

/// `randperm(n, generator, ...)`.
fn permutation(call: &Call<'_>) -> Result<()> {
    let (count, output) = (call.int(0)?, call.output(0)?);
    if *output.sizes != [count] {
        return decline("torch gives the result another size");
    }
    if output.is_empty() {
        return Ok(());
    }
    let (seed, offset) = call.random();
    call.run_once(
        "aclnnRandperm",
        &[
            Arg::int(count),
            Arg::Word(seed >> 1),
            Arg::Word(offset),
            Arg::Tensor(output),
        ],
    )
}

/// The result of a call, of real numbers; none if it is empty.
fn real_output(call: &Call<'_>) -> Result<Option<View>> {
    let output = call.output(0)?;
    if output.dtype.category() != Category::Real {
        return decline(format!("random numbers of this kind in {}", output.dtype));
    }
    Ok(Some(output).filter(|output| !output.is_empty()))
}

fn uniform(call: &Call<'_>, output: View, from: f64, to: f64) -> Result<()> {
    let (seed, offset) = call.random();
    call.run_once(
        "aclnnInplaceUniform",
        &[
            Arg::Tensor(output),
            Arg::Real(from),
            Arg::Real(to),
            Arg::Word(seed >> 1),
            Arg::Word(offset),
        ],
    )
}

/// `uniform_(self, from, to)`.
fn uniform_between(call: &Call<'_>) -> Result<()> {
    let output = call.output(0)?;
    let (from, to) = (call.real(1)?.unwrap_or(0.0), call.real(2)?.unwrap_or(1.0));
    // torch tells what is wrong with the numbers.
    if from.is_nan() || to.is_nan() || from > to {
        return decline("uniform numbers between such numbers");
    }
    if !output.is_empty() {
        uniform(call, output, from, to)?
    }
    // In half precision the greatest numbers are rounded to the end, which is none of them: they become the first one.
    if !output.is_empty() && matches!(output.dtype, DType::F16 | DType::Bf16) && from < to {
        let ends = call.temporary(DType::Bool, &output.sizes)?;
        call.run(
            "aclnnEqScalar",
            &[
                Arg::Tensor(output),
                Arg::Scalar(Number::Real(to)),
                Arg::Tensor(ends),
            ],
        )?;
        let first = Arg::Scalar(Number::Real(from));
        call.run(
            "aclnnInplaceMaskedFillScalar",
            &[Arg::Tensor(output), Arg::Tensor(ends), first],
        )?;
    }
    Ok(())
}

/// `normal_(self, mean, std)`.
fn normal(call: &Call<'_>) -> Result<()> {
    let output = call.output(0)?;
    let (mean, deviation) = (call.real(1)?.unwrap_or(0.0), call.real(2)?.unwrap_or(1.0));
    if deviation.is_nan() || deviation < 0.0 {
        return decline("normal numbers of such a deviation");
    }
    if output.is_empty() {
        Ok(())
    } else {
        normal_numbers(call, output, mean, deviation)
    }
}

fn normal_numbers(call: &Call<'_>, output: View, mean: f64, deviation: f64) -> Result<()> {
    let (seed, offset) = call.random();
    call.run_once(
        "aclnnInplaceNormal",
        &[
            Arg::Tensor(output),
            Arg::Real(mean),
            Arg::Real(deviation),
            Arg::Word(seed >> 1),
            Arg::Word(offset),
        ],
    )
}

fn times(call: &Call<'_>, output: View, factor: f64) -> Result<()> {
    call.run(
        "aclnnInplaceMuls",
        &[Arg::Tensor(output), Arg::Scalar(Number::Real(factor))],
    )
}

/// `factor * log(1 - u)` of uniform numbers, which is neither infinite, since u is less than 1, nor 0, since u begins a
/// little above that: torch's exponential numbers are never 0, and programs divide by them.
fn log_of_uniform(call: &Call<'_>, output: View, factor: f64) -> Result<()> {
    uniform(call, output, f64::from(f32::EPSILON) / 2.0, 1.0)?;
    times(call, output, -1.0)?;
    call.run("aclnnInplaceLog1p", &[Arg::Tensor(output)])?;
    times(call, output, factor)
}

/// `exponential_(self, lambd)`: `-log(1 - u) / lambd`.
fn exponential(call: &Call<'_>) -> Result<()> {
    let Some(output) = real_output(call)? else {
        return Ok(());
    };
    let rate = call.real(1)?.unwrap_or(1.0);
    if rate <= 0.0 || output.dtype != DType::F32 {
        return decline("exponential numbers of another type than float32, or of no rate");
    }
    log_of_uniform(call, output, -1.0 / rate)
}

/// `geometric_(self, p)`: `ceil(log(1 - u) / log(1 - p))`, at least 1.
fn geometric(call: &Call<'_>) -> Result<()> {
    let Some(output) = real_output(call)? else {
        return Ok(());
    };
    let p = call.real(1)?.unwrap_or(0.5);
    if !(p > 0.0 && p < 1.0) || output.dtype != DType::F32 {
        return decline("geometric numbers of another type than float32, or of such a p");
    }
    log_of_uniform(call, output, 1.0 / (-p).ln_1p())?;
    call.run("aclnnInplaceCeil", &[Arg::Tensor(output)])
}

/// `log_normal_(self, mean, std)`.
fn log_normal(call: &Call<'_>) -> Result<()> {
    let Some(output) = real_output(call)? else {
        return Ok(());
    };
    let deviation = call.real(2)?.unwrap_or(2.0);
    if deviation.is_nan() || deviation <= 0.0 {
        return decline("log-normal numbers of such a deviation");
    }
    normal_numbers(call, output, call.real(1)?.unwrap_or(1.0), deviation)?;
    call.run("aclnnInplaceExp", &[Arg::Tensor(output)])
}

/// `cauchy_(self, median, sigma)`: `median + sigma * tan(pi * u)`, u from -1/2 to 1/2.
fn cauchy(call: &Call<'_>) -> Result<()> {
    let Some(output) = real_output(call)? else {
        return Ok(());
    };
    let (median, sigma) = (call.real(1)?.unwrap_or(0.0), call.real(2)?.unwrap_or(1.0));
    if output.dtype != DType::F32 || sigma.is_nan() || sigma <= 0.0 {
        return decline("Cauchy's numbers of another type than float32, or of such a sigma");
    }
    uniform(call, output, -0.5, 0.5)?;
    times(call, output, PI)?;
    call.run("aclnnInplaceTan", &[Arg::Tensor(output)])?;
    times(call, output, sigma)?;
    call.run(
        "aclnnInplaceAdds",
        &[
            Arg::Tensor(output),
            Arg::Scalar(Number::Real(median)),
            Arg::Scalar(Number::Real(1.0)),
        ],
    )
}
