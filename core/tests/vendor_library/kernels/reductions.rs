//! Sums, softmax and layer norm.

use flagos_core::vendors::library::*;

use super::caller::{Caller, Value};
use super::tensor::{Random, assert_close, contiguous, indices};

/// For each index of the kept dimensions the values of the others, in order.
fn groups(values: &[f64], sizes: &[i64], reduced: &[bool]) -> Vec<Vec<f64>> {
    let part = |wanted: bool| -> Vec<i64> {
        let dims = (0..sizes.len()).map(|dim| {
            if reduced[dim] == wanted {
                sizes[dim]
            } else {
                1
            }
        });
        dims.collect()
    };
    let strides = contiguous(sizes);
    let inner = indices(&part(true));
    let value = |outer: &Vec<i64>, inner: &Vec<i64>| {
        let steps = outer.iter().zip(inner).zip(&strides);
        values[steps.map(|((a, b), stride)| (a + b) * stride).sum::<i64>() as usize]
    };
    let group = |outer: &Vec<i64>| inner.iter().map(|index| value(outer, index)).collect();
    indices(&part(false)).iter().map(group).collect()
}

#[test]
fn sums_over_any_dimensions() {
    let caller = Caller::new(0);
    for seed in 0..200 {
        let mut random = Random(seed);
        let (from, to) = [
            (FLAGOS_DTYPE_FLOAT32, FLAGOS_DTYPE_FLOAT32),
            (FLAGOS_DTYPE_FLOAT64, FLAGOS_DTYPE_FLOAT64),
            (FLAGOS_DTYPE_INT64, FLAGOS_DTYPE_INT64),
            (FLAGOS_DTYPE_INT8, FLAGOS_DTYPE_INT64),
            (FLAGOS_DTYPE_BOOL, FLAGOS_DTYPE_INT64),
        ][random.below(5) as usize];
        let sizes = random.sizes(5);
        let tensor = caller.scattered(&mut random, from, &sizes);
        let mut dims: Vec<_> = (0..sizes.len() as i64)
            .filter(|_| random.below(2) == 0)
            .collect();
        let all = dims.is_empty();
        let reduced: Vec<_> = (0..sizes.len())
            .map(|dim| all || dims.contains(&(dim as i64)))
            .collect();
        let keep = random.below(2) == 0;
        let kept = sizes
            .iter()
            .zip(&reduced)
            .filter(|&(_, &reduced)| keep || !reduced);
        let shape: Vec<_> = kept
            .map(|(&size, &reduced)| if reduced { 1 } else { size })
            .collect();
        // From the end, as programs like to count.
        dims.iter_mut()
            .step_by(2)
            .for_each(|dim| *dim -= sizes.len() as i64);
        let out = caller.scattered(&mut random, to, &shape);
        let list = if all && seed % 2 == 0 {
            Value::None
        } else {
            Value::Ints(dims)
        };
        let arguments = [Value::Tensor(&tensor), list, Value::Bool(keep), Value::None];
        caller.call("aten::sum.dim_IntList", &arguments, &[&out]);
        let groups = groups(&caller.values(&tensor), &sizes, &reduced);
        let expected: Vec<_> = groups
            .iter()
            .map(|group| group.iter().sum::<f64>())
            .collect();
        assert_close(
            &format!("sum, seed {seed}"),
            &caller.values(&out),
            &expected,
        );
    }
}

/// In double, a million small numbers beside a large one are not lost.
#[test]
fn sums_are_in_double() {
    let caller = Caller::new(0);
    let mut values = vec![1.0; 1 << 20];
    values[0] = f64::from(1 << 24);
    let tensor = caller.tensor(FLAGOS_DTYPE_FLOAT32, &[1 << 20], &values);
    let out = caller.result(FLAGOS_DTYPE_FLOAT32, &[]);
    let arguments = [
        Value::Tensor(&tensor),
        Value::None,
        Value::Bool(false),
        Value::None,
    ];
    caller.call("aten::sum.dim_IntList", &arguments, &[&out]);
    let exact: f64 = values.iter().sum();
    assert_eq!(caller.values(&out), [f64::from(exact as f32)]);
}

#[test]
fn a_sum_over_nothing_is_zero() {
    let caller = Caller::new(0);
    let tensor = caller.result(FLAGOS_DTYPE_FLOAT32, &[0]);
    let out = caller.result(FLAGOS_DTYPE_FLOAT32, &[2]);
    for (sizes, strides) in [([2, 0, 3], [1, 1, 7]), ([2, 3, 0], [9, 1, 5])] {
        let tensor = tensor.view(0, &sizes, &strides);
        let arguments = [
            Value::Tensor(&tensor),
            Value::Ints(vec![1, 2]),
            Value::Bool(false),
            Value::None,
        ];
        caller.call("aten::sum.dim_IntList", &arguments, &[&out]);
        assert_eq!(caller.values(&out), [0.0, 0.0]);
    }
}

#[test]
fn softmax_over_any_dimension() {
    for seed in 0..60 {
        let caller = Caller::new(0);
        let mut random = Random(seed);
        let sizes = random.sizes(4);
        let tensor = caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, &sizes);
        let out = caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, &sizes);
        let dim = random.below(sizes.len().max(1) as i64);
        let given = if seed % 2 == 0 {
            dim
        } else {
            dim - sizes.len().max(1) as i64
        };
        let arguments = [
            Value::Tensor(&tensor),
            Value::Int(given),
            Value::Bool(false),
        ];
        caller.call("aten::_softmax", &arguments, &[&out]);
        let reduced: Vec<_> = (0..sizes.len()).map(|d| d as i64 == dim).collect();
        let softmax = |group: Vec<f64>| {
            let largest = group.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<_> = group.iter().map(|value| (value - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers
                .into_iter()
                .map(|power| power / sum)
                .collect::<Vec<_>>()
        };
        let expected = groups(&caller.values(&tensor), &sizes, &reduced)
            .into_iter()
            .map(softmax);
        let results = groups(&caller.values(&out), &sizes, &reduced);
        for (result, expected) in results.iter().zip(expected) {
            assert_close(&format!("softmax, seed {seed}"), result, &expected);
        }
        let workspaces = caller.workspaces.lock();
        let asked: Vec<_> = workspaces.iter().map(|memory| memory.nbytes).collect();
        let length = sizes.get(dim as usize).copied().unwrap_or(1) as usize;
        let needed = if out.num_elements() == 0 {
            vec![]
        } else {
            vec![8 * length]
        };
        assert_eq!(asked, needed);
    }
}

#[test]
fn softmax_of_large_numbers_and_infinities() {
    let caller = Caller::new(0);
    let (low, nan) = (f64::NEG_INFINITY, f64::NAN);
    let values = [0.0, low, low, low, 1.0, nan, 1e4, 1e4, -1e4, -1e4];
    let tensor = caller.tensor(FLAGOS_DTYPE_FLOAT32, &[5, 2], &values);
    let out = caller.result(FLAGOS_DTYPE_FLOAT32, &[5, 2]);
    let arguments = [Value::Tensor(&tensor), Value::Int(1), Value::Bool(false)];
    caller.call("aten::_softmax", &arguments, &[&out]);
    let expected = [1.0, 0.0, nan, nan, nan, nan, 0.5, 0.5, 0.5, 0.5];
    assert_close("softmax", &caller.values(&out), &expected);
}

/// The status of the workspace is that of the call, and nothing is queued.
#[test]
fn a_workspace_may_be_refused() {
    let caller = Caller {
        full: true,
        ..Caller::new(0)
    };
    let tensor = caller.tensor(FLAGOS_DTYPE_FLOAT32, &[2], &[1.0, 2.0]);
    let out = caller.result(FLAGOS_DTYPE_FLOAT32, &[2]);
    let arguments = [Value::Tensor(&tensor), Value::Int(0), Value::Bool(false)];
    let (code, _) = caller
        .queue("aten::_softmax", &arguments, &[&out])
        .expect_err("refused");
    assert_eq!(code, FLAGOS_VENDOR_OUT_OF_MEMORY);
    assert_eq!(caller.values(&out), [119.0; 2]);
}

#[test]
fn layer_norms() {
    let caller = Caller::new(0);
    for seed in 0..60 {
        let mut random = Random(seed);
        let sizes: Vec<_> = random
            .sizes(4)
            .into_iter()
            .map(|size| size.max(1))
            .collect();
        let normal = random.below(sizes.len() as i64 + 1) as usize;
        let (outer, shape) = sizes.split_at(sizes.len() - normal);
        let tensor = caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, &sizes);
        let parameters = [0, 1].map(|_| caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, shape));
        let given = [random.below(3) != 0, random.below(3) != 0];
        let value = |i: usize| {
            if given[i] {
                Value::Tensor(&parameters[i])
            } else {
                Value::None
            }
        };
        let statistics = [outer, &vec![1; normal]].concat();
        let outs = [&sizes, &statistics, &statistics];
        let outs = outs.map(|sizes| caller.scattered(&mut random, FLAGOS_DTYPE_FLOAT32, sizes));
        let arguments = [
            Value::Tensor(&tensor),
            Value::Ints(shape.to_vec()),
            value(0),
            value(1),
            Value::Float(1e-5),
        ];
        caller.call("aten::native_layer_norm", &arguments, &outs.each_ref());

        let reduced: Vec<_> = (0..sizes.len()).map(|dim| dim >= outer.len()).collect();
        let [weight, bias] = parameters.each_ref().map(|tensor| caller.values(tensor));
        let mut expected = [vec![], vec![], vec![]];
        for group in groups(&caller.values(&tensor), &sizes, &reduced) {
            let mean = group.iter().sum::<f64>() / group.len() as f64;
            let squares = group.iter().map(|value| (value - mean).powi(2));
            let scale = 1.0 / (squares.sum::<f64>() / group.len() as f64 + 1e-5).sqrt();
            for (i, value) in group.iter().enumerate() {
                let factor = if given[0] { weight[i] } else { 1.0 };
                let more = if given[1] { bias[i] } else { 0.0 };
                expected[0].push((value - mean) * scale * factor + more);
            }
            expected[1].push(mean);
            expected[2].push(scale);
        }
        for (out, expected) in outs.iter().zip(&expected) {
            assert_close(
                &format!("layer norm, seed {seed}"),
                &caller.values(out),
                expected,
            );
        }
    }
}
