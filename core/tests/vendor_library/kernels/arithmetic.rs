//! Kernels that compute element by element, over any shapes, layouts and dtypes.

use flagos_core::vendors::library::*;

use super::caller::{Caller, Value};
use super::tensor::{Random, assert_close, broadcast};

const REAL: [i32; 4] = [
    FLAGOS_DTYPE_FLOAT32,
    FLAGOS_DTYPE_FLOAT64,
    FLAGOS_DTYPE_FLOAT16,
    FLAGOS_DTYPE_BFLOAT16,
];
const WHOLE: [i32; 5] = [
    FLAGOS_DTYPE_INT64,
    FLAGOS_DTYPE_INT32,
    FLAGOS_DTYPE_INT16,
    FLAGOS_DTYPE_INT8,
    FLAGOS_DTYPE_UINT8,
];

/// A number as the dtype keeps it: halves have at most 11 bits, so that their tests use few.
fn kept(dtype: i32, number: f64) -> f64 {
    match dtype {
        FLAGOS_DTYPE_FLOAT32 => f64::from(number as f32),
        FLAGOS_DTYPE_INT64 => (number as i64) as f64,
        FLAGOS_DTYPE_INT32 => (number as i64 as i32).into(),
        FLAGOS_DTYPE_INT16 => (number as i64 as i16).into(),
        FLAGOS_DTYPE_INT8 => (number as i64 as i8).into(),
        FLAGOS_DTYPE_UINT8 => (number as i64 as u8).into(),
        _ => number,
    }
}

#[test]
fn sums_and_products_of_any_shapes_and_layouts() {
    let caller = Caller::new(0);
    let dtypes = [&REAL[..2], &WHOLE[..]].concat();
    for seed in 0..300 {
        let mut random = Random(seed);
        let dtype = dtypes[random.below(dtypes.len() as i64) as usize];
        let sizes = random.sizes(if seed % 10 == 0 { 8 } else { 4 });
        let shapes = [random.narrower(&sizes), random.narrower(&sizes)];
        let tensors = [0, 1].map(|i| caller.scattered(&mut random, dtype, &shapes[i]));
        let [a, b] = [0, 1].map(|i| {
            let values = caller.values(&tensors[i]);
            broadcast(&values, &shapes[i], &sizes)
        });
        let out = caller.scattered(&mut random, dtype, &sizes);
        let arguments = || tensors.each_ref().map(Value::Tensor).into_iter();

        let expected: Vec<_> = a.iter().zip(&b).map(|(a, b)| kept(dtype, a * b)).collect();
        let mul: Vec<_> = arguments().collect();
        caller.call("aten::mul.Tensor", &mul, &[&out]);
        assert_close(
            &format!("mul, seed {seed}"),
            &caller.values(&out),
            &expected,
        );

        let expected = a.iter().zip(&b).map(|(a, b)| kept(dtype, a + -3.0 * b));
        let add: Vec<_> = arguments().chain([Value::Int(-3)]).collect();
        caller.call("aten::add.Tensor", &add, &[&out]);
        let expected: Vec<_> = expected.collect();
        assert_close(
            &format!("add, seed {seed}"),
            &caller.values(&out),
            &expected,
        );
    }
}

#[test]
fn halves_are_rounded_to_the_nearest() {
    let caller = Caller::new(0);
    for (dtype, values, sums) in [
        // 2048 + 1 lies in the middle between 2048 and 2050, and 2050 + 1 between 2050 and 2052.
        (FLAGOS_DTYPE_FLOAT16, [2048.0, 2050.0], [2048.0, 2052.0]),
        (FLAGOS_DTYPE_BFLOAT16, [256.0, 258.0], [256.0, 260.0]),
    ] {
        let (a, b) = (
            caller.tensor(dtype, &[2], &values),
            caller.tensor(dtype, &[], &[1.0]),
        );
        let out = caller.result(dtype, &[2]);
        let add = [Value::Tensor(&a), Value::Tensor(&b), Value::Int(1)];
        caller.call("aten::add.Tensor", &add, &[&out]);
        assert_eq!(caller.values(&out), sums);
    }
}

#[test]
fn whole_numbers_are_exact_and_wrap_around() {
    let caller = Caller::new(0);
    let number = |value: i64| caller.of_bytes(FLAGOS_DTYPE_INT64, &[], &value.to_ne_bytes());
    let out = caller.result(FLAGOS_DTYPE_INT64, &[]);
    let value = || i64::from_ne_bytes(caller.bytes(&out)[0].clone().try_into().expect("8 bytes"));
    for (a, b) in [
        ((1 << 53) + 1, 2),
        (i64::MAX, 5),
        (i64::MIN, -1),
        (-7, i64::MAX),
    ] {
        let tensors = [number(a), number(b)];
        let mut arguments: Vec<_> = tensors.iter().map(Value::Tensor).collect();
        caller.call("aten::mul.Tensor", &arguments, &[&out]);
        assert_eq!(value(), a.wrapping_mul(b));
        arguments.push(Value::Int(3));
        caller.call("aten::add.Tensor", &arguments, &[&out]);
        assert_eq!(value(), a.wrapping_add(b.wrapping_mul(3)));
        caller.call("aten::neg", &arguments[..1], &[&out]);
        assert_eq!(value(), a.wrapping_neg());
    }
}

/// A number of the program counts as one of the tensor's dtype, as torch has it.
#[test]
fn numbers_stand_on_either_side() {
    let caller = Caller::new(0);
    for (dtype, of, number, products) in [
        (
            FLAGOS_DTYPE_FLOAT32,
            FLAGOS_DTYPE_FLOAT64,
            0.1,
            [f64::from(0.1_f32), f64::from(0.1_f32 * -3.0)],
        ),
        (
            FLAGOS_DTYPE_FLOAT64,
            FLAGOS_DTYPE_FLOAT64,
            0.1,
            [0.1, 0.1 * -3.0],
        ),
        (FLAGOS_DTYPE_FLOAT32, FLAGOS_DTYPE_INT64, 7.0, [7.0, -21.0]),
        (
            FLAGOS_DTYPE_BFLOAT16,
            FLAGOS_DTYPE_FLOAT64,
            0.5,
            [0.5, -1.5],
        ),
        (FLAGOS_DTYPE_INT32, FLAGOS_DTYPE_INT64, 7.0, [7.0, -21.0]),
        (FLAGOS_DTYPE_INT64, FLAGOS_DTYPE_BOOL, 1.0, [1.0, -3.0]),
    ] {
        let tensor = caller.tensor(dtype, &[2], &[1.0, -3.0]);
        let out = caller.result(dtype, &[2]);
        for first in [true, false] {
            let mut arguments = vec![Value::Tensor(&tensor), Value::Host(of, number)];
            if first {
                arguments.reverse();
            }
            caller.call("aten::mul.Tensor", &arguments, &[&out]);
            assert_eq!(caller.values(&out), products);
        }
    }
    let whole = caller.tensor(FLAGOS_DTYPE_INT64, &[2], &[1.0, 2.0]);
    let out = caller.result(FLAGOS_DTYPE_INT64, &[2]);
    let arguments = [
        Value::Tensor(&whole),
        Value::Host(FLAGOS_DTYPE_FLOAT64, 2.0),
    ];
    let reason = caller.reason("aten::mul.Tensor", &arguments, &[&out]);
    assert!(reason.contains("the dtypes 7 and 4"), "{reason}");
}

#[test]
fn signs_and_what_is_not_a_number() {
    let caller = Caller::new(0);
    for dtype in REAL {
        let values = [-1.5, 0.0, 2.0, f64::NEG_INFINITY, f64::INFINITY];
        let tensor = caller.tensor(dtype, &[5], &values);
        let out = caller.result(dtype, &[5]);
        caller.call("aten::neg", &[Value::Tensor(&tensor)], &[&out]);
        assert_eq!(caller.values(&out), values.map(|value| -value));
        caller.call("aten::relu", &[Value::Tensor(&tensor)], &[&out]);
        assert_eq!(caller.values(&out), values.map(|value| value.max(0.0)));
    }
    let nan = caller.tensor(FLAGOS_DTYPE_FLOAT32, &[1], &[f64::NAN]);
    for name in ["aten::neg", "aten::relu"] {
        let out = caller.result(FLAGOS_DTYPE_FLOAT32, &[1]);
        caller.call(name, &[Value::Tensor(&nan)], &[&out]);
        assert!(caller.values(&out)[0].is_nan(), "{name}");
    }
    for dtype in WHOLE {
        let tensor = caller.tensor(dtype, &[3], &[kept(dtype, -3.0), 0.0, 3.0]);
        let out = caller.result(dtype, &[3]);
        caller.call("aten::neg", &[Value::Tensor(&tensor)], &[&out]);
        let neg = [3.0, 0.0, -3.0].map(|value| kept(dtype, value));
        assert_eq!(caller.values(&out), neg, "{dtype}");
        caller.call("aten::relu", &[Value::Tensor(&tensor)], &[&out]);
        let relu = [kept(dtype, -3.0).max(0.0), 0.0, 3.0];
        assert_eq!(caller.values(&out), relu, "{dtype}");
    }
}

#[test]
fn in_place_the_result_is_the_argument() {
    let caller = Caller::new(0);
    let values: Vec<_> = (0..1000).map(f64::from).collect();
    let tensor = caller
        .tensor(FLAGOS_DTYPE_FLOAT32, &[40, 25], &values)
        .permuted(&[1, 0]);
    let arguments = [
        Value::Tensor(&tensor),
        Value::Tensor(&tensor),
        Value::Float(0.5),
    ];
    let before = caller.values(&tensor);
    caller.call("aten::add.Tensor", &arguments, &[&tensor]);
    let expected: Vec<_> = before.iter().map(|value| value * 1.5).collect();
    assert_eq!(caller.values(&tensor), expected);
}

#[test]
fn products_of_matrices() {
    for seed in 0..60 {
        let caller = Caller::new(0);
        let mut random = Random(seed);
        let [m, k, n] = [(); 3].map(|()| [0, 1, 3, 7, 290][random.below(5) as usize]);
        let a = caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, &[m, k]);
        let b = caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, &[k, n]);
        let out = caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, &[m, n]);
        caller.call("aten::mm", &[Value::Tensor(&a), Value::Tensor(&b)], &[&out]);
        let (left, right) = (caller.values(&a), caller.values(&b));
        let mut expected = Vec::new();
        for row in 0..m {
            for column in 0..n {
                let products =
                    (0..k).map(|i| left[(row * k + i) as usize] * right[(i * n + column) as usize]);
                expected.push(f64::from(products.sum::<f64>() as f32));
            }
        }
        assert_close(&format!("mm, seed {seed}"), &caller.values(&out), &expected);
        let packed = b.strides[1] != 1 && n != 1 && m * k * n != 0;
        assert_eq!(
            caller.workspaces.lock().len(),
            usize::from(packed),
            "seed {seed}"
        );
    }
}
