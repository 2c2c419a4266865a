//! Random numbers are a function of seed, offset and index.

use flagos_core::vendors::library::*;

use super::caller::{Caller, Value};
use super::tensor::Tensor;

fn uniform(caller: &Caller, out: &Tensor) -> Vec<f64> {
    let arguments = [
        Value::Tensor(out),
        Value::Float(-2.0),
        Value::Float(3.0),
        Value::None,
    ];
    caller.call("aten::uniform_", &arguments, &[out]);
    caller.values(out)
}

fn seeded(seed: u64, offset: u64) -> Caller {
    Caller {
        seed,
        offset,
        ..Caller::new(0)
    }
}

#[test]
fn the_same_state_gives_the_same_numbers() {
    let numbers = |seed, offset| {
        let caller = seeded(seed, offset);
        uniform(&caller, &caller.result(FLAGOS_DTYPE_FLOAT32, &[10, 60]))
    };
    let first = numbers(1, 2);
    assert_eq!(first, numbers(1, 2));
    for (seed, offset) in [(2, 2), (1, 3), (2, 1), (0, 0), (1, 0)] {
        let others = numbers(seed, offset);
        let same = first.iter().zip(&others).filter(|(a, b)| a == b).count();
        assert!(
            same < 3,
            "{same} numbers are the same with {seed} and {offset}"
        );
    }
    // The layout of the tensor does not matter.
    let caller = seeded(1, 2);
    let across = caller
        .result(FLAGOS_DTYPE_FLOAT32, &[60, 10])
        .permuted(&[1, 0]);
    assert_eq!(uniform(&caller, &across), first);
}

#[test]
fn numbers_are_spread_evenly() {
    const COUNT: usize = 100_000;
    let caller = seeded(11, 0);
    for dtype in [FLAGOS_DTYPE_FLOAT32, FLAGOS_DTYPE_FLOAT64] {
        let mut counts = [0.0_f64; 10];
        for number in uniform(&caller, &caller.result(dtype, &[COUNT as i64])) {
            assert!((-2.0..3.0).contains(&number), "{number}");
            counts[((number + 2.0) * 2.0) as usize] += 1.0;
        }
        let expected = COUNT as f64 / 10.0;
        let squares = counts.map(|count| (count - expected).powi(2) / expected);
        // Of nine degrees of freedom: one in a million is larger.
        assert!(squares.iter().sum::<f64>() < 45.0, "{counts:?}");
    }
}

#[test]
fn as_many_are_one_as_their_probability_says() {
    let caller = seeded(5, 6);
    for dtype in [FLAGOS_DTYPE_FLOAT32, FLAGOS_DTYPE_BOOL, FLAGOS_DTYPE_INT64] {
        for (p, least, most) in [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.3, 0.29, 0.31)] {
            let out = caller.result(dtype, &[100, 1000]);
            let arguments = [Value::Tensor(&out), Value::Float(p), Value::None];
            caller.call("aten::bernoulli_.float", &arguments, &[&out]);
            let values = caller.values(&out);
            assert!(values.iter().all(|&value| value == 0.0 || value == 1.0));
            let share = values.iter().sum::<f64>() / 1e5;
            assert!((least..=most).contains(&share), "{share} of {p}");
        }
    }
}
