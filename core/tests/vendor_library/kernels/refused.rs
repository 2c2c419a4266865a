//! Calls that the chip declines, for the host to compute them.

use std::ffi::CString;

use flagos_core::vendors::library::*;

use super::caller::{Caller, Value};

#[test]
fn its_names_are_those_that_it_finds() {
    let library = crate::forms::loaded();
    let names = library.kernels().expect("kernels").names();
    assert!(names.len() >= 12);
    for name in names {
        let name = CString::new(&**name).expect("no NUL");
        assert!(
            library.kernel(&name).expect("an answer").is_some(),
            "{name:?}"
        );
    }
    for name in [c"aten::mm.out", c"aten::conv2d", c"", c"mm"] {
        assert_eq!(library.kernel(name).expect("an answer"), None);
    }
}

#[test]
fn what_the_chip_lacks_has_a_reason() {
    let caller = Caller::new(0);
    let float = caller.result(FLAGOS_DTYPE_FLOAT32, &[2, 2]);
    let double = caller.result(FLAGOS_DTYPE_FLOAT64, &[2, 2]);
    let whole = caller.result(FLAGOS_DTYPE_INT64, &[2, 2]);
    let truth = caller.result(FLAGOS_DTYPE_BOOL, &[2, 2]);
    let line = caller.result(FLAGOS_DTYPE_FLOAT32, &[3]);
    let nine = float.view(0, &[1; 9], &[1; 9]);
    let unknown = super::tensor::Tensor {
        dtype: 36,
        ..line.clone()
    };
    let t = Value::Tensor;
    for (name, arguments, output, says) in [
        (
            "aten::add.Tensor",
            vec![t(&float), t(&double), Value::Int(1)],
            &double,
            "the dtypes 6 and 7",
        ),
        (
            "aten::add.Tensor",
            vec![t(&truth), t(&truth), Value::Int(1)],
            &truth,
            "the dtype 11",
        ),
        (
            "aten::add.Tensor",
            vec![t(&float), t(&float), Value::None],
            &float,
            "alpha",
        ),
        (
            "aten::add.Tensor",
            vec![t(&whole), t(&whole), Value::Float(0.5)],
            &whole,
            "alpha",
        ),
        (
            "aten::add.Tensor",
            vec![t(&float), t(&line), Value::Int(1)],
            &float,
            "shapes",
        ),
        (
            "aten::mul.Tensor",
            vec![t(&float), Value::None],
            &float,
            "not the tensor",
        ),
        ("aten::neg", vec![t(&nine)], &nine, "9 dimensions"),
        ("aten::neg", vec![], &float, "not the tensor"),
        (
            "aten::copy_",
            vec![t(&line), t(&unknown)],
            &line,
            "the dtype 36",
        ),
        (
            "aten::mm",
            vec![t(&double), t(&double)],
            &double,
            "matrices of float32",
        ),
        (
            "aten::mm",
            vec![t(&float), t(&line)],
            &float,
            "matrices of float32",
        ),
        (
            "aten::_softmax",
            vec![t(&whole), Value::Int(0), Value::Bool(false)],
            &float,
            "softmax of the dtype 4",
        ),
        (
            "aten::_softmax",
            vec![t(&float), Value::Int(2), Value::Bool(false)],
            &float,
            "no dimension 2",
        ),
        (
            "aten::sum.dim_IntList",
            vec![t(&whole), Value::None, Value::Bool(true)],
            &float,
            "the dtype 4 as 6",
        ),
        (
            "aten::sum.dim_IntList",
            vec![t(&float), Value::Ints(vec![5]), Value::Bool(true)],
            &float,
            "dimensions",
        ),
        (
            "aten::embedding",
            vec![t(&float), t(&line)],
            &float,
            "the indices have the dtype 6",
        ),
        (
            "aten::uniform_",
            vec![t(&whole), Value::Float(0.0), Value::Float(1.0)],
            &whole,
            "float32 and float64",
        ),
        (
            "aten::uniform_",
            vec![t(&float), Value::Float(1.0), Value::Float(0.0)],
            &float,
            "no range",
        ),
        (
            "aten::bernoulli_.float",
            vec![t(&float), Value::Float(1.5)],
            &float,
            "no probability",
        ),
        (
            "aten::native_layer_norm",
            vec![t(&float)],
            &float,
            "not wanted",
        ),
    ] {
        let reason = caller.reason(name, &arguments, &[output]);
        assert!(reason.contains(says), "{name}: {reason}");
    }
    let none = caller
        .queue("aten::neg", &[t(&float)], &[])
        .expect_err("declined");
    assert_eq!(none.0, FLAGOS_VENDOR_UNSUPPORTED);
    assert!(caller.stream.is_idle(), "nothing was queued");
}
