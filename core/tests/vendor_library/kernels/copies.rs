//! Copies, casts, fills, and rows of an embedding.

use flagos_core::ErrorKind;
use flagos_core::vendors::library::*;

use super::caller::{Caller, Value};
use super::tensor::{Random, broadcast, float16};

const CAST: [i32; 10] = [
    FLAGOS_DTYPE_UINT8,
    FLAGOS_DTYPE_INT8,
    FLAGOS_DTYPE_INT16,
    FLAGOS_DTYPE_INT32,
    FLAGOS_DTYPE_INT64,
    FLAGOS_DTYPE_FLOAT16,
    FLAGOS_DTYPE_BFLOAT16,
    FLAGOS_DTYPE_FLOAT32,
    FLAGOS_DTYPE_FLOAT64,
    FLAGOS_DTYPE_BOOL,
];

fn is_real(dtype: i32) -> bool {
    matches!(
        dtype,
        FLAGOS_DTYPE_FLOAT16 | FLAGOS_DTYPE_BFLOAT16 | FLAGOS_DTYPE_FLOAT32 | FLAGOS_DTYPE_FLOAT64
    )
}

fn copy(caller: &Caller, to: &super::tensor::Tensor, from: Value) {
    let arguments = [Value::Tensor(to), from, Value::Bool(true)];
    caller.call("aten::copy_", &arguments, &[to]);
}

#[test]
fn every_dtype_becomes_every_other() {
    let caller = Caller::new(0);
    for seed in 0..3 {
        for from in CAST {
            for to in CAST {
                let mut random = Random(seed);
                let sizes = random.sizes(4);
                let shape = random.narrower(&sizes);
                let source = caller.scattered(&mut random, from, &shape);
                let target = caller.scattered(&mut random, to, &sizes);
                copy(&caller, &target, Value::Tensor(&source));
                let values = broadcast(&caller.values(&source), &shape, &sizes);
                let cast = |value: &f64| match to {
                    FLAGOS_DTYPE_BOOL => f64::from(*value != 0.0),
                    FLAGOS_DTYPE_UINT8 => (*value as i64 as u8).into(),
                    FLAGOS_DTYPE_FLOAT32 => (*value as f32).into(),
                    _ if is_real(to) => *value,
                    _ => value.trunc(),
                };
                let result = caller.values(&target);
                if matches!(to, FLAGOS_DTYPE_FLOAT16 | FLAGOS_DTYPE_BFLOAT16) {
                    let bits = if to == FLAGOS_DTYPE_FLOAT16 { 11 } else { 8 };
                    for (value, result) in values.iter().zip(result) {
                        assert!((value - result).abs() <= value.abs() * 0.5_f64.powi(bits));
                    }
                } else {
                    assert_eq!(
                        result,
                        values.iter().map(cast).collect::<Vec<_>>(),
                        "{from} to {to}"
                    );
                }
            }
        }
    }
}

/// Every float16, every middle between two, and what lies beside it.
#[test]
fn float16_is_the_nearest() {
    let caller = Caller::new(0);
    let finite = 0..0x7c00_u16;
    let pairs = finite
        .clone()
        .map(|bits| (float16(bits), float16(bits + 1)));
    let beside = |middle: f64| {
        let middle = middle as f32;
        [
            f32::from_bits(middle.to_bits() - 1),
            middle,
            f32::from_bits(middle.to_bits() + 1),
        ]
    };
    // The last middle is with what would follow the largest.
    let middles = pairs.map(|(a, b)| {
        if b.is_finite() {
            (a + b) / 2.0
        } else {
            65520.0
        }
    });
    let near: Vec<_> = middles.flat_map(beside).map(f64::from).collect();
    let expected = finite.flat_map(|bits| {
        let even = bits + (bits & 1);
        [bits, even, bits + 1].map(float16)
    });
    let expected: Vec<_> = expected.collect();
    for sign in [1.0, -1.0] {
        let values: Vec<_> = near.iter().map(|value| value * sign).collect();
        let expected: Vec<_> = expected.iter().map(|value| value * sign).collect();
        let size = [values.len() as i64];
        let source = caller.tensor(FLAGOS_DTYPE_FLOAT32, &size, &values);
        let target = caller.result(FLAGOS_DTYPE_BOOL, &[2 * size[0]]);
        let target = super::tensor::Tensor {
            dtype: FLAGOS_DTYPE_FLOAT16,
            sizes: size.to_vec(),
            ..target
        };
        copy(&caller, &target, Value::Tensor(&source));
        assert_eq!(caller.values(&target), expected);
    }
    let special = [f64::INFINITY, f64::NEG_INFINITY, 1e9, 1e-9, 0.0];
    let source = caller.tensor(FLAGOS_DTYPE_FLOAT32, &[5], &special);
    let target = caller.tensor(FLAGOS_DTYPE_FLOAT16, &[5], &[1.0; 5]);
    copy(&caller, &target, Value::Tensor(&source));
    let infinite = f64::INFINITY;
    assert_eq!(
        caller.values(&target),
        [infinite, -infinite, infinite, 0.0, 0.0]
    );
    let nan = caller.tensor(FLAGOS_DTYPE_FLOAT32, &[1], &[f64::NAN]);
    for dtype in [FLAGOS_DTYPE_FLOAT16, FLAGOS_DTYPE_BFLOAT16] {
        let target = caller.tensor(dtype, &[1], &[1.0]);
        copy(&caller, &target, Value::Tensor(&nan));
        assert!(caller.values(&target)[0].is_nan());
    }
}

#[test]
fn the_same_dtype_keeps_its_bits() {
    let caller = Caller::new(0);
    let mut random = Random(7);
    let bytes: Vec<_> = (0..16 * 24).map(|_| random.next() as u8).collect();
    for dtype in [
        FLAGOS_DTYPE_COMPLEX128,
        FLAGOS_DTYPE_UINT64,
        FLAGOS_DTYPE_FLOAT64,
        FLAGOS_DTYPE_FLOAT32,
    ] {
        let count = bytes.len() as i64 / super::tensor::size_of(dtype) as i64;
        let source = caller.of_bytes(dtype, &[count / 4, 4], &bytes);
        let target = caller
            .of_bytes(dtype, &[4, count / 4], &vec![0; bytes.len()])
            .permuted(&[1, 0]);
        copy(&caller, &target, Value::Tensor(&source));
        assert_eq!(caller.bytes(&target), caller.bytes(&source));
    }
    let complex = caller.of_bytes(FLAGOS_DTYPE_COMPLEX64, &[1], &[1; 8]);
    let real = caller.result(FLAGOS_DTYPE_FLOAT32, &[1]);
    let arguments = [
        Value::Tensor(&real),
        Value::Tensor(&complex),
        Value::Bool(false),
    ];
    let reason = caller.reason("aten::copy_", &arguments, &[&real]);
    assert!(
        reason.contains("does not cast the dtype 9 to 6"),
        "{reason}"
    );
}

#[test]
fn a_number_of_the_host_is_copied_during_the_call() {
    let caller = Caller::new(0);
    let target = caller.result(FLAGOS_DTYPE_INT32, &[2, 300]);
    copy(&caller, &target, Value::Host(FLAGOS_DTYPE_FLOAT64, -7.9));
    assert_eq!(caller.values(&target), [-7.0; 600]);
}

#[test]
fn fills_with_what_the_dtype_holds() {
    let caller = Caller::new(0);
    for dtype in CAST {
        let out = caller.result(dtype, &[3, 2, 200]).permuted(&[2, 0, 1]);
        let arguments = [Value::Tensor(&out), Value::Int(1)];
        caller.call("aten::fill_.Scalar", &arguments, &[&out]);
        assert_eq!(caller.values(&out), [1.0; 1200]);
    }
    for (dtype, number) in [
        (FLAGOS_DTYPE_INT8, Value::Int(128)),
        (FLAGOS_DTYPE_UINT8, Value::Int(-1)),
        (FLAGOS_DTYPE_INT64, Value::Float(1e30)),
        (FLAGOS_DTYPE_FLOAT16, Value::Float(1e6)),
        (FLAGOS_DTYPE_FLOAT32, Value::Float(1e39)),
        (FLAGOS_DTYPE_INT64, Value::Float(f64::NAN)),
        (FLAGOS_DTYPE_FLOAT32, Value::None),
    ] {
        let out = caller.tensor(dtype, &[1], &[0.0]);
        let arguments = [Value::Tensor(&out), number];
        let reason = caller.reason("aten::fill_.Scalar", &arguments, &[&out]);
        assert!(reason.contains("does not hold the number"), "{reason}");
    }
    let out = caller.result(FLAGOS_DTYPE_FLOAT32, &[1]);
    for number in [f64::INFINITY, 0.1] {
        let arguments = [Value::Tensor(&out), Value::Float(number)];
        caller.call("aten::fill_.Scalar", &arguments, &[&out]);
        assert_eq!(caller.values(&out), [f64::from(number as f32)]);
    }
}

fn embed(
    caller: &Caller,
    table: &super::tensor::Tensor,
    rows: &super::tensor::Tensor,
    out: &super::tensor::Tensor,
) {
    let arguments = [
        Value::Tensor(table),
        Value::Tensor(rows),
        Value::Int(-1),
        Value::Bool(false),
        Value::Bool(false),
    ];
    caller.call("aten::embedding", &arguments, &[out]);
}

#[test]
fn rows_of_an_embedding() {
    let caller = Caller::new(0);
    for seed in 0..20 {
        let mut random = Random(seed);
        let shape = random.sizes(3);
        let table = caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, &[9, 5]);
        let count = shape.iter().product::<i64>();
        let chosen: Vec<_> = (0..count).map(|_| random.below(9) as f64).collect();
        let dtype = [FLAGOS_DTYPE_INT64, FLAGOS_DTYPE_INT32][random.below(2) as usize];
        let rows = caller.tensor(dtype, &shape, &chosen);
        let out = caller.scattered(
            &mut random,
            FLAGOS_DTYPE_FLOAT32,
            &[&shape[..], &[5]].concat(),
        );
        embed(&caller, &table, &rows, &out);
        let values = caller.values(&table);
        let expected: Vec<_> = chosen
            .iter()
            .flat_map(|&row| values[row as usize * 5..][..5].to_vec())
            .collect();
        assert_eq!(caller.values(&out), expected, "seed {seed}");
    }
}

/// A failure of queued work is reported once, by what waits for it, and the device goes on.
#[test]
fn a_row_that_is_not_there_fails_later() {
    let caller = Caller::new(0);
    let table = caller.tensor(
        FLAGOS_DTYPE_FLOAT32,
        &[3, 2],
        &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    );
    for wrong in [3.0, -1.0] {
        let rows = caller.tensor(FLAGOS_DTYPE_INT64, &[2], &[wrong, 2.0]);
        let out = caller.result(FLAGOS_DTYPE_FLOAT32, &[2, 2]);
        let says = format!("CHIP_INDEX: row {wrong} of an embedding with 3 rows");
        let reports = |error: Option<flagos_core::Error>| {
            let error = error.expect("a failure");
            assert_eq!(error.kind(), ErrorKind::Device);
            assert!(error.message().contains(&says), "{error}");
        };
        embed(&caller, &table, &rows, &out);
        let event = caller.vendor.event(0, false).expect("an event");
        caller.stream.record(&*event).expect("queued");
        reports(event.sync().err());
        reports(event.query().err());
        reports(caller.stream.sync().err());
        caller.stream.sync().expect("reported before");
        assert_eq!(caller.values(&out), [119.0, 119.0, 4.0, 5.0]);

        embed(&caller, &table, &rows, &out);
        caller.vendor.quiesce(0).expect("leaves failures alone");
        reports(caller.stream.query().err());

        embed(&caller, &table, &rows, &out);
        reports(caller.vendor.device_sync(0).err());
        caller.vendor.device_sync(0).expect("reported before");
        caller.stream.sync().expect("forgotten");

        // Also of a stream that has been destroyed.
        let other = Caller::on(&caller.vendor, 0);
        embed(&other, &table, &rows, &out);
        drop(other);
        reports(caller.vendor.device_sync(0).err());
    }
}
