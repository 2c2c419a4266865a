//! Every reduction against a plain loop in `f64` or `i128`, for every type and operation.

use half::{bf16, f16};
use proptest::prelude::*;

use super::{ReduceOp, reduce};
use crate::DType;

/// Runs the reduction over inputs of one type.
fn run<T: Copy + Default>(
    op: ReduceOp,
    dtype: DType,
    factors: &[f64],
    inputs: &[Vec<T>],
) -> Vec<T> {
    op.check(dtype).expect("defined");
    let count = inputs[0].len();
    let addresses: Vec<*const u8> = inputs.iter().map(|input| input.as_ptr().cast()).collect();
    let (mut out, mut mirror) = (vec![T::default(); count], vec![T::default(); count]);
    let scale = count * size_of::<T>() / dtype.size();
    // SAFETY: every buffer has `count` elements of the type.
    unsafe {
        let (out, mirror) = (out.as_mut_ptr().cast(), Some(mirror.as_mut_ptr().cast()));
        reduce(op, dtype, factors, &addresses, scale, out, mirror);
    }
    let bytes = |values: &[T]| {
        // SAFETY: plain numbers.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
            .to_vec()
    };
    assert_eq!(bytes(&out), bytes(&mirror));
    out
}

fn expected_integer(op: ReduceOp, values: &[i128]) -> i128 {
    let all = values.iter().copied();
    match op {
        ReduceOp::Sum => all.sum(),
        ReduceOp::Avg => all.sum::<i128>() / values.len() as i128,
        ReduceOp::Prod => all.product(),
        ReduceOp::Min => all.min().unwrap_or(0),
        ReduceOp::Max => all.max().unwrap_or(0),
        ReduceOp::BitAnd => all.fold(-1, |a, b| a & b),
        ReduceOp::BitOr => all.fold(0, |a, b| a | b),
        ReduceOp::BitXor => all.fold(0, |a, b| a ^ b),
        ReduceOp::PremulSum => unreachable!(),
    }
}

macro_rules! integers_are_exact {
    ($($t:ty: $dtype:ident),*) => {
        #[test]
        fn integers_are_exact() {
            for ranks in [1usize, 2, 3, 5] {
                $({
                    let inputs: Vec<Vec<$t>> =
                        (0..ranks).map(|rank| (0..2500usize).map(|i| ((i * 7 + rank * 3) % 2 + 1) as $t).collect()).collect();
                    for op in ReduceOp::ALL.into_iter().filter(|op| *op != ReduceOp::PremulSum) {
                        let out = run(op, DType::$dtype, &[], &inputs);
                        for (i, &value) in out.iter().enumerate() {
                            let column: Vec<i128> = inputs.iter().map(|input| input[i] as i128).collect();
                            assert_eq!(value as i128, expected_integer(op, &column), "{op:?} {}", stringify!($t));
                        }
                    }
                })*
            }
        }
    };
}
integers_are_exact!(u8: UInt8, i8: Int8, i16: Int16, i32: Int32, i64: Int64, u16: UInt16, u32: UInt32, u64: UInt64);

fn expected_float(op: ReduceOp, factors: &[f64], values: &[f64]) -> f64 {
    let all = values.iter().copied();
    match op {
        ReduceOp::Sum => all.sum(),
        ReduceOp::Avg => all.sum::<f64>() / values.len() as f64,
        ReduceOp::Prod => all.product(),
        ReduceOp::Min => all.fold(f64::INFINITY, f64::min),
        ReduceOp::Max => all.fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::PremulSum => all.zip(factors).map(|(value, factor)| value * factor).sum(),
        _ => unreachable!(),
    }
}

const FLOAT_OPS: [ReduceOp; 6] = [
    ReduceOp::Sum,
    ReduceOp::Avg,
    ReduceOp::Prod,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::PremulSum,
];

proptest! {
    #[test]
    fn half_precision_is_rounded_once(columns in prop::collection::vec(prop::collection::vec(-8.0f32..8.0, 1..1500), 1..5)) {
        let count = columns.iter().map(Vec::len).min().unwrap_or(0);
        let factors: Vec<f64> = (0..columns.len()).map(|rank| 0.5 + rank as f64).collect();
        for op in FLOAT_OPS {
            let inputs: Vec<Vec<bf16>> =
                columns.iter().map(|c| c[..count].iter().map(|&x| bf16::from_f32(x)).collect()).collect();
            for (i, value) in run(op, DType::BFloat16, &factors, &inputs).into_iter().enumerate() {
                let column: Vec<f64> = inputs.iter().map(|input| input[i].to_f64()).collect();
                let exact = expected_float(op, &factors, &column);
                // Half a unit in the last place of 8 bits, and the rounding of f32 before. Sums may cancel.
                let scale = column.iter().map(|x| x.abs()).sum::<f64>() * factors.last().copied().unwrap_or(1.0);
                prop_assert!((value.to_f64() - exact).abs() <= exact.abs() / 256.0 + scale * 1e-6, "{op:?} {value} {exact}");
            }
            let inputs: Vec<Vec<f16>> =
                columns.iter().map(|c| c[..count].iter().map(|&x| f16::from_f32(x)).collect()).collect();
            for (i, value) in run(op, DType::Float16, &factors, &inputs).into_iter().enumerate() {
                let column: Vec<f64> = inputs.iter().map(|input| input[i].to_f64()).collect();
                let exact = expected_float(op, &factors, &column);
                let scale = column.iter().map(|x| x.abs()).sum::<f64>() * factors.last().copied().unwrap_or(1.0);
                prop_assert!((value.to_f64() - exact).abs() <= exact.abs() / 2048.0 + scale * 1e-6 + 6e-8, "{op:?} {value} {exact}");
            }
        }
    }

    #[test]
    fn floats_follow_the_order_of_the_ranks(columns in prop::collection::vec(prop::collection::vec(-1e3f32..1e3, 1..1500), 1..5)) {
        let count = columns.iter().map(Vec::len).min().unwrap_or(0);
        let inputs: Vec<Vec<f32>> = columns.iter().map(|c| c[..count].to_vec()).collect();
        let out = run(ReduceOp::Sum, DType::Float32, &[], &inputs);
        for (i, value) in out.into_iter().enumerate() {
            let in_order = inputs.iter().skip(1).fold(inputs[0][i], |sum, input| sum + input[i]);
            prop_assert_eq!(value.to_bits(), in_order.to_bits());
        }
        let factors: Vec<f64> = (0..columns.len()).map(|rank| 0.5 + rank as f64).collect();
        let wide: Vec<Vec<f64>> = inputs.iter().map(|c| c.iter().map(|&x| f64::from(x)).collect()).collect();
        for op in FLOAT_OPS {
            for (i, value) in run(op, DType::Float64, &factors, &wide).into_iter().enumerate() {
                let column: Vec<f64> = wide.iter().map(|input| input[i]).collect();
                let exact = expected_float(op, &factors, &column);
                prop_assert!((value - exact).abs() <= exact.abs() * 1e-9 + 1e-9);
            }
        }
    }
}

#[test]
fn truth_is_any_other_value_than_zero() {
    let inputs = [vec![0u8, 0, 2, 255], vec![0, 1, 0, 4]];
    assert_eq!(run(ReduceOp::Sum, DType::Bool, &[], &inputs), [0, 1, 1, 1]);
    assert_eq!(run(ReduceOp::Prod, DType::Bool, &[], &inputs), [0, 0, 0, 1]);
    assert_eq!(
        run(ReduceOp::BitXor, DType::Bool, &[], &inputs),
        [0, 1, 1, 0]
    );
}

#[test]
fn a_value_that_is_no_number_wins() {
    for op in [ReduceOp::Min, ReduceOp::Max] {
        for inputs in [[vec![f32::NAN], vec![1.0]], [vec![1.0], vec![f32::NAN]]] {
            assert!(run(op, DType::Float32, &[], &inputs)[0].is_nan());
        }
    }
}

#[test]
fn complex_numbers_are_pairs() {
    let inputs = [vec![[1f32, 2.0]], vec![[3.0, 4.0]]];
    assert_eq!(
        run(ReduceOp::Sum, DType::Complex64, &[], &inputs),
        [[4.0, 6.0]]
    );
}

#[test]
fn what_is_not_defined_is_refused_by_name() {
    for (op, dtype, message) in [
        (
            ReduceOp::Sum,
            DType::Float8E5M2,
            "float8_e5m2 cannot be reduced: reduce in bfloat16 or float32",
        ),
        (
            ReduceOp::BitAnd,
            DType::Float32,
            "band is not defined on float32",
        ),
        (
            ReduceOp::Max,
            DType::Complex64,
            "max is not defined on complex64",
        ),
        (
            ReduceOp::PremulSum,
            DType::Int32,
            "premul_sum is not defined on int32",
        ),
    ] {
        assert_eq!(op.check(dtype).expect_err("undefined").to_string(), message);
    }
}
