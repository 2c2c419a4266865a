//! Fused attention.
//!
//! torch keeps the logarithm of the sums of exponentials, `[B, N, S]`; CANN keeps the greatest score and the sum, each
//! `[B, N, S, 8]`. With the logarithm as the greatest score and 1 as the sum the backward computes the same weights:
//! `exp(score - max) / sum = exp(score - logarithm)`.

use flagos_core::error::Result;

use super::super::call::Call;
use super::super::dtype::DType;
use super::super::launch::Arg;
use super::super::objects::Number;
use super::super::view::{View, decline};
use super::elementwise::ONE;
use super::operator::operators;

operators! {
    c"aten::_scaled_dot_product_flash_attention_for_cpu" [
        "aclnnFlashAttentionScore", "aclnnLog", "aclnnInplaceAdd", "aclnnInplaceCopy", "aclnnLogicalNot", "aclnnAll", "aclnnInplaceMaskedFillScalar", "aclnnEqScalar", "aclnnClamp"] => forward;
    c"aten::_scaled_dot_product_flash_attention_for_cpu_backward" [
        "aclnnFlashAttentionScoreGrad", "aclnnInplaceOne", "aclnnInplaceCopy",
    ] => backward;
}

/// The repetitions of each score in CANN's statistics.
const REPEATED: i64 = 8;
/// No limit on the distance of keys.
const UNLIMITED: i64 = 2_147_483_647;
/// From this length on CANN takes a mask of this size for the causal one.
const COMPRESSED: i64 = 2048;

/// How the scores are masked.
#[derive(Default)]
struct Mask {
    /// Added to the scores before they are scaled.
    bias: Option<View>,
    /// True hides.
    hidden: Option<View>,
    sparse_mode: i64,
    /// 2 where rows that are hidden whole have to be 0, as torch wants them; 0 otherwise.
    precise: i64,
}

/// The mask of a call: causal, or numbers that are added to the scaled scores.
fn mask(
    call: &Call<'_>,
    query: &View,
    key: &View,
    causal: usize,
    given: usize,
    scale: f64,
) -> Result<Mask> {
    let (rows, columns) = (query.sizes[2], key.sizes[2]);
    let given = call.optional(given)?;
    if call.flag(causal)? {
        return if given.is_some() {
            decline("attention that is causal and has a mask besides")
        } else {
            causal_mask(call, rows, columns)
        };
    }
    let Some(given) = given else {
        return Ok(Mask::default());
    };
    let full = [query.sizes[0], query.sizes[1], rows, columns];
    if given.sizes.len() > full.len() || scale == 0.0 {
        return decline("a mask of more than four dimensions, or scores that are scaled to 0");
    }
    if given.dtype == DType::Bool {
        shown_mask(call, &given, full)
    } else {
        added_mask(call, &given, full, query.dtype, scale)
    }
}

/// Hides the keys behind each query.
fn causal_mask(call: &Call<'_>, rows: i64, columns: i64) -> Result<Mask> {
    let compressed = rows.max(columns) > COMPRESSED;
    let sizes = if compressed {
        [COMPRESSED; 2]
    } else {
        [rows, columns]
    };
    let hidden = call.temporary(DType::Bool, &sizes)?;
    call.run("aclnnInplaceOne", &[Arg::Tensor(hidden)])?;
    call.run("aclnnInplaceTriu", &[Arg::Tensor(hidden), Arg::int(1)])?;
    Ok(Mask {
        hidden: Some(hidden),
        sparse_mode: if compressed { 2 } else { 0 },
        ..Mask::default()
    })
}

/// Hides where torch's mask does not show. All heads have one mask, or each has its own.
fn shown_mask(call: &Call<'_>, shown: &View, full: [i64; 4]) -> Result<Mask> {
    let [batch, all_heads, rows, columns] = full;
    let heads = if shown.sizes.len() == 4 {
        shown.sizes[1]
    } else {
        1
    };
    if heads != 1 && heads != all_heads {
        return decline("a mask of another number of heads");
    }
    let sizes = if shown.sizes.len() <= 2 {
        vec![rows, columns]
    } else {
        vec![batch, heads, rows, columns]
    };
    let hidden = call.temporary(DType::Bool, &sizes)?;
    let shown = call.dense(shown.expanded(&sizes)?)?;
    call.run(
        "aclnnLogicalNot",
        &[Arg::Tensor(shown), Arg::Tensor(hidden)],
    )?;
    Ok(Mask {
        hidden: Some(hidden),
        precise: 2,
        ..Mask::default()
    })
}

/// Adds numbers, and hides where they are minus infinity. CANN adds before it scales, so the numbers are divided by the
/// scale: as far as their type can hold that.
fn added_mask(
    call: &Call<'_>,
    added: &View,
    full: [i64; 4],
    dtype: DType,
    scale: f64,
) -> Result<Mask> {
    let largest = match dtype {
        DType::F16 => 65504.0,
        DType::Bf16 => f64::from(f32::from_bits(0x7f7f_0000)),
        _ => f64::from(f32::MAX),
    };
    if scale.abs() < 1.0 / 32.0 && dtype == DType::F16 {
        return decline("a mask that is added in half precision to scores of so small a scale");
    }
    let limit = largest / 4.0 * scale.abs().min(1.0);
    let bias = call.temporary(dtype, &full)?;
    let number = |value: f64| Arg::Scalar(Number::Real(value));
    call.run(
        "aclnnInplaceCopy",
        &[Arg::Tensor(bias), Arg::Tensor(added.expanded(&full)?)],
    )?;
    let hidden = call.temporary(DType::Bool, &full)?;
    call.run(
        "aclnnEqScalar",
        &[
            Arg::Tensor(bias),
            number(f64::NEG_INFINITY),
            Arg::Tensor(hidden),
        ],
    )?;
    let limited = call.temporary(dtype, &full)?;
    call.run(
        "aclnnClamp",
        &[
            Arg::Tensor(bias),
            number(-limit),
            number(limit),
            Arg::Tensor(limited),
        ],
    )?;
    call.run(
        "aclnnInplaceMuls",
        &[Arg::Tensor(limited), number(1.0 / scale)],
    )?;
    Ok(Mask {
        bias: Some(limited),
        hidden: Some(hidden),
        precise: 2,
        ..Mask::default()
    })
}

/// The factor of the scores: what the program gave, or one over the root of the length of a vector.
fn scale_of(call: &Call<'_>, place: usize, query: &View) -> Result<f64> {
    Ok(match call.real(place)? {
        Some(scale) => scale,
        None => 1.0 / (query.sizes[3] as f64).sqrt(),
    })
}

fn checked(query: &View, key: &View, value: &View) -> Result<()> {
    let of_images = |view: &View| view.sizes.len() == 4 && !view.is_empty();
    if ![query, key, value].into_iter().all(of_images) {
        return decline("attention without a batch, or of nothing");
    }
    if key.sizes[1] == 0 || query.sizes[1] % key.sizes[1] != 0 || value.sizes[3] != query.sizes[3] {
        return decline("attention whose heads or lengths of vectors do not match");
    }
    Ok(())
}

/// `(query, key, value, dropout_p, is_causal, attn_mask, scale)`: the result and the logarithms.
fn forward(call: &Call<'_>) -> Result<()> {
    let (query, key, value) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let (output, logarithms) = (call.output(0)?, call.output(1)?);
    checked(&query, &key, &value)?;
    if call.real(3)?.unwrap_or(0.0) != 0.0 {
        return decline("fused attention with dropout");
    }
    let scale = scale_of(call, 6, &query)?;
    let mask = mask(call, &query, &key, 4, 5, scale)?;
    let statistics = [query.sizes[0], query.sizes[1], query.sizes[2], REPEATED];
    let greatest = call.temporary(DType::F32, &statistics)?;
    let sums = call.temporary(DType::F32, &statistics)?;
    let dense = if output.is_contiguous() {
        output
    } else {
        call.temporary(output.dtype, &output.sizes)?
    };
    call.run(
        "aclnnFlashAttentionScore",
        &[
            Arg::Tensor(call.dense(query)?),
            Arg::Tensor(call.dense(key)?),
            Arg::Tensor(call.dense(value)?),
            Arg::from(mask.bias),
            Arg::Null,
            Arg::Null,
            Arg::from(mask.hidden),
            Arg::Null,
            Arg::Real(scale),
            Arg::Real(1.0),
            Arg::int(UNLIMITED),
            Arg::int(UNLIMITED),
            Arg::int(query.sizes[1]),
            Arg::Text(c"BNSD"),
            Arg::int(mask.precise),
            Arg::int(mask.sparse_mode),
            Arg::Tensor(greatest),
            Arg::Tensor(sums),
            Arg::Tensor(View::nothing(output.dtype)?),
            Arg::Tensor(dense),
        ],
    )?;
    if !dense.is_same(&output) {
        call.copy(output, dense)?;
    }
    let first = |view: View| view.select(3, 0);
    call.run(
        "aclnnLog",
        &[Arg::Tensor(first(sums)?), Arg::Tensor(logarithms)],
    )?;
    call.run(
        "aclnnInplaceAdd",
        &[
            Arg::Tensor(logarithms),
            Arg::Tensor(first(greatest)?),
            Arg::Scalar(ONE),
        ],
    )?;
    // Rows of which everything is hidden have no weight at all: their scores less infinity.
    let Some(hidden) = mask.hidden.filter(|_| mask.precise == 2) else {
        return Ok(());
    };
    let last = hidden.sizes.len() - 1;
    let rows = call.temporary(DType::Bool, &hidden.sizes[..last])?;
    call.run(
        "aclnnAll",
        &[
            Arg::Tensor(hidden),
            Arg::Ints(&[last as i64]),
            Arg::flag(false),
            Arg::Tensor(rows),
        ],
    )?;
    let infinity = Arg::Scalar(Number::Real(f64::INFINITY));
    call.run(
        "aclnnInplaceMaskedFillScalar",
        &[Arg::Tensor(logarithms), Arg::Tensor(rows), infinity],
    )
}

/// `(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale)`: the gradients of query, key
/// and value.
fn backward(call: &Call<'_>) -> Result<()> {
    let (gradient, query, key, value) = (
        call.tensor(0)?,
        call.tensor(1)?,
        call.tensor(2)?,
        call.tensor(3)?,
    );
    let (output, logarithms) = (call.tensor(4)?, call.tensor(5)?);
    checked(&query, &key, &value)?;
    if call.real(6)?.unwrap_or(0.0) != 0.0 {
        return decline("fused attention with dropout");
    }
    let scale = scale_of(call, 9, &query)?;
    let mask = mask(call, &query, &key, 7, 8, scale)?;
    let statistics = [query.sizes[0], query.sizes[1], query.sizes[2], REPEATED];
    let greatest = call.temporary(DType::F32, &statistics)?;
    let mut repeated = logarithms.sizes.to_vec();
    repeated.push(1);
    let mut strides = logarithms.strides.to_vec();
    strides.push(1);
    let repeated = logarithms
        .with(&repeated, &strides)?
        .expanded(&statistics)?;
    call.run(
        "aclnnInplaceCopy",
        &[Arg::Tensor(greatest), Arg::Tensor(repeated)],
    )?;
    let sums = call.temporary(DType::F32, &statistics)?;
    call.run("aclnnInplaceOne", &[Arg::Tensor(sums)])?;
    let results = [call.output(0)?, call.output(1)?, call.output(2)?];
    let mut dense = results;
    for result in &mut dense {
        if !result.is_contiguous() {
            *result = call.temporary(result.dtype, &result.sizes)?;
        }
    }
    let [to_query, to_key, to_value] = dense;
    call.run(
        "aclnnFlashAttentionScoreGrad",
        &[
            Arg::Tensor(call.dense(query)?),
            Arg::Tensor(call.dense(key)?),
            Arg::Tensor(call.dense(value)?),
            Arg::Tensor(call.dense(gradient)?),
            Arg::from(mask.bias),
            Arg::Null,
            Arg::Null,
            Arg::from(mask.hidden),
            Arg::Tensor(greatest),
            Arg::Tensor(sums),
            Arg::Null,
            Arg::Tensor(call.dense(output)?),
            Arg::Null,
            Arg::Real(scale),
            Arg::Real(1.0),
            Arg::int(UNLIMITED),
            Arg::int(UNLIMITED),
            Arg::int(query.sizes[1]),
            Arg::Text(c"BNSD"),
            Arg::int(mask.precise),
            Arg::int(mask.sparse_mode),
            Arg::Tensor(to_query),
            Arg::Tensor(to_key),
            Arg::Tensor(to_value),
            Arg::Null,
        ],
    )?;
    for (result, dense) in results.into_iter().zip(dense) {
        if !dense.is_same(&result) {
            call.copy(result, dense)?;
        }
    }
    Ok(())
}
