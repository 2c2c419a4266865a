//! The vendor as a library with kernels of its own: what they compute, beside the same on the host.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use flagos_core::runtime::{LibraryHandle, Stream, Vendor};
use flagos_core::vendors::library::*;

use crate::{Memory, there_is_a_device, turn};

/// The library, its opened vendor, and a stream.
struct Opened {
    library: &'static Library,
    vendor: Arc<dyn Vendor>,
    stream: Arc<dyn Stream>,
}

fn opened() -> Opened {
    let program = std::env::current_exe().expect("this program");
    let library = Library::load(&program.with_file_name("libflagos_cudalib.so"));
    let library = library.expect("it was built, and carried, with this program");
    let vendor = open(library, Box::leak(Box::default())).expect("CUDA can be initialised");
    let stream = vendor.stream(0, 0).expect("a stream");
    Opened {
        library,
        vendor,
        stream,
    }
}

/// A tensor of `float32` on the device, with the values of its whole memory.
struct Tensor<'o> {
    memory: Memory<'o>,
    values: Vec<f32>,
    sizes: Vec<i64>,
    strides: Vec<i64>,
}

impl<'o> Tensor<'o> {
    fn new(opened: &'o Opened, values: &[f32], sizes: &[i64], strides: &[i64]) -> Self {
        let memory = Memory::new(&*opened.vendor, 0, 4 * values.len().max(1));
        let from = values.as_ptr().cast();
        crate::copy(&*opened.stream, memory.address(), from, 4 * values.len());
        opened.stream.sync().expect("copied");
        Self {
            memory,
            values: values.into(),
            sizes: sizes.into(),
            strides: strides.into(),
        }
    }

    /// A tensor of numbers that differ, with rows behind each other.
    fn counted(opened: &'o Opened, sizes: &[i64]) -> Self {
        let mut strides = vec![1; sizes.len()];
        for dim in (1..sizes.len()).rev() {
            strides[dim - 1] = strides[dim] * sizes[dim];
        }
        let count = sizes.iter().product::<i64>();
        let values: Vec<_> = (0..count).map(|i| i as f32 * 0.37 - 4.0).collect();
        Self::new(opened, &values, sizes, &strides)
    }

    /// Its last two dimensions exchanged.
    fn transposed(mut self) -> Self {
        let last = self.sizes.len() - 1;
        self.sizes.swap(last - 1, last);
        self.strides.swap(last - 1, last);
        self
    }

    fn raw(&self) -> FlagosKernelTensor {
        FlagosKernelTensor {
            struct_size: size_of::<FlagosKernelTensor>(),
            data: self.memory.address().cast(),
            storage: self.memory.address().cast(),
            storage_nbytes: 4 * self.values.len(),
            sizes: self.sizes.as_ptr(),
            strides: self.strides.as_ptr(),
            num_elements: self.sizes.iter().product(),
            num_dims: self.sizes.len() as i32,
            dtype: FLAGOS_DTYPE_FLOAT32,
            flags: 0,
            reserved_word: 0,
        }
    }

    /// The value at an index of a larger tensor, repeated as broadcasting has it.
    fn at(&self, index: &[i64]) -> f32 {
        let behind = &index[index.len() - self.sizes.len()..];
        let steps = behind.iter().zip(&self.sizes).zip(&self.strides);
        let place: i64 = steps
            .map(|((at, size), stride)| if *size == 1 { 0 } else { at * stride })
            .sum();
        self.values[place as usize]
    }

    /// Reads the values from the device.
    fn fetch(&mut self, opened: &Opened) {
        let to = self.values.as_mut_ptr().cast();
        let nbytes = 4 * self.values.len();
        crate::copy(&*opened.stream, to, self.memory.address(), nbytes);
        opened.stream.sync().expect("copied");
    }
}

/// Every index of a tensor of these sizes.
fn indices(sizes: &[i64]) -> Vec<Vec<i64>> {
    sizes.iter().fold(vec![vec![]], |before, size| {
        let longer = |index: &Vec<i64>| {
            let index = index.clone();
            (0..*size).map(move |at| [&index[..], &[at]].concat())
        };
        before.iter().flat_map(longer).collect()
    })
}

fn tensor(raw: &FlagosKernelTensor) -> FlagosKernelValue {
    FlagosKernelValue {
        tag: FLAGOS_VALUE_TENSOR,
        count: 0,
        r#as: FlagosKernelContent { tensor: raw },
    }
}

fn real(real: f64) -> FlagosKernelValue {
    FlagosKernelValue {
        tag: FLAGOS_VALUE_FLOAT,
        count: 0,
        r#as: FlagosKernelContent { real },
    }
}

fn integer(integer: i64) -> FlagosKernelValue {
    FlagosKernelValue {
        tag: FLAGOS_VALUE_INT,
        count: 0,
        r#as: FlagosKernelContent { integer },
    }
}

/// A number of the program as a tensor.
fn number(value: &f64) -> FlagosKernelTensor {
    FlagosKernelTensor {
        struct_size: size_of::<FlagosKernelTensor>(),
        data: std::ptr::from_ref(value).cast_mut().cast(),
        storage: std::ptr::from_ref(value).cast_mut().cast(),
        storage_nbytes: 8,
        sizes: null(),
        strides: null(),
        num_elements: 1,
        num_dims: 0,
        dtype: FLAGOS_DTYPE_FLOAT64,
        flags: FLAGOS_TENSOR_HOST | FLAGOS_TENSOR_NUMBER,
        reserved_word: 0,
    }
}

unsafe extern "C" fn no_workspace(_: *mut c_void, _: usize, _: *mut *mut c_void) -> i32 {
    FLAGOS_VENDOR_OUT_OF_MEMORY
}

impl Opened {
    /// Calls an operator; the error is what it says when it declines.
    fn run(
        &self,
        operator: &CStr,
        arguments: &[FlagosKernelValue],
        out: &FlagosKernelTensor,
    ) -> Result<(), String> {
        let LibraryHandle { instance, stream } =
            self.stream.library_handle().expect("a library's stream");
        let outputs = [std::ptr::from_ref(out)];
        let call = FlagosKernelCall {
            struct_size: size_of::<FlagosKernelCall>(),
            instance: instance.as_ptr().cast(),
            stream: stream.as_ptr().cast(),
            device: 0,
            flags: 0,
            arguments: arguments.as_ptr(),
            num_arguments: arguments.len(),
            outputs: outputs.as_ptr(),
            num_outputs: 1,
            workspace: Some(no_workspace),
            context: null_mut(),
            seed: 0,
            offset: 0,
            resize: None,
            post: None,
            flush: None,
            reserved: [null(); 5],
        };
        let kernel = self.library.kernel(operator).expect("it is asked");
        let kernel = kernel.expect("there is a kernel");
        let table = self.library.kernels().expect("kernels").table();
        // SAFETY: a kernel of the table, and a call whose tensors live until the stream is synchronised.
        unsafe {
            match (table.run.expect("required"))(kernel, &call) {
                FLAGOS_VENDOR_OK => Ok(()),
                FLAGOS_VENDOR_UNSUPPORTED => {
                    let text = CStr::from_ptr((table.last_error.expect("required"))());
                    Err(text.to_string_lossy().into_owned())
                }
                code => panic!("{operator:?} failed with {code}"),
            }
        }
    }

    /// Calls an element-wise operator, and compares every element with what `expected` makes of its index.
    fn check(
        &self,
        operator: &CStr,
        arguments: &[FlagosKernelValue],
        mut out: Tensor<'_>,
        expected: impl Fn(&[i64]) -> f32,
    ) {
        self.run(operator, arguments, &out.raw()).expect("computed");
        let before = out.values.clone();
        out.fetch(self);
        let mut written = vec![false; before.len()];
        for index in indices(&out.sizes) {
            let (got, wanted) = (out.at(&index), expected(&index));
            let same = got == wanted || (got.is_nan() && wanted.is_nan());
            assert!(same, "{operator:?} at {index:?}: {got}, not {wanted}");
            let place = index
                .iter()
                .zip(&out.strides)
                .map(|(at, stride)| at * stride);
            written[place.sum::<i64>() as usize] = true;
        }
        for (place, was) in before.iter().enumerate() {
            let outside = !written[place] && out.values[place].to_bits() != was.to_bits();
            assert!(!outside, "{operator:?} wrote beside its result, at {place}");
        }
    }
}

#[test]
fn elements_are_computed_wherever_they_lie() {
    if !there_is_a_device() {
        return;
    }
    let _turn = turn();
    let opened = opened();
    let o = &opened;
    let three = [5, 3, 7];
    let a = Tensor::counted(o, &three);
    let row = Tensor::counted(o, &[7]);
    let turned = Tensor::counted(o, &[5, 7, 3]).transposed();
    let column = Tensor::counted(o, &[5, 1, 1]);
    let half = 0.5;
    let (raw_a, raw_half) = (a.raw(), number(&half));
    for other in [&a, &row, &turned, &column] {
        let raw = other.raw();
        for (left, right) in [(&a, other), (other, &a)] {
            let raws = if std::ptr::eq(left, &a) {
                [tensor(&raw_a), tensor(&raw)]
            } else {
                [tensor(&raw), tensor(&raw_a)]
            };
            let sum = [raws[0], raws[1], real(-1.25)];
            o.check(c"aten::add.Tensor", &sum, Tensor::counted(o, &three), |i| {
                right.at(i).mul_add(-1.25, left.at(i))
            });
            let out = Tensor::counted(o, &[5, 7, 3]).transposed();
            o.check(c"aten::mul.Tensor", &raws, out, |i| {
                left.at(i) * right.at(i)
            });
        }
    }
    let half = half as f32;
    for (arguments, expected) in [
        (
            [tensor(&raw_a), tensor(&raw_half), integer(3)],
            Box::new(|i: &[i64]| half.mul_add(3.0, a.at(i))) as Box<dyn Fn(&[i64]) -> f32>,
        ),
        (
            [tensor(&raw_half), tensor(&raw_a), integer(3)],
            Box::new(|i: &[i64]| a.at(i).mul_add(3.0, half)),
        ),
    ] {
        let out = Tensor::counted(o, &three);
        o.check(c"aten::add.Tensor", &arguments, out, expected);
    }
    for arguments in [
        [tensor(&raw_a), tensor(&raw_half)],
        [tensor(&raw_half), tensor(&raw_a)],
    ] {
        let out = Tensor::counted(o, &three);
        o.check(c"aten::mul.Tensor", &arguments, out, |i| a.at(i) * half);
    }
    let raw_turned = turned.raw();
    let out = Tensor::counted(o, &three);
    o.check(
        c"aten::copy_",
        &[tensor(&raw_a), tensor(&raw_turned)],
        out,
        |i| turned.at(i),
    );
    // Every second column of a matrix of 10.
    let out = Tensor::new(o, &[9.0; 40], &[4, 5], &[10, 2]);
    o.check(
        c"aten::fill_.Scalar",
        &[tensor(&raw_a), integer(7)],
        out,
        |_| 7.0,
    );
    let odd = [
        f32::NAN,
        -1.0,
        -0.0,
        0.0,
        2.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let odd = Tensor::new(o, &odd, &[7], &[1]);
    let raw_odd = odd.raw();
    let out = Tensor::counted(o, &[7]);
    o.check(c"aten::relu", &[tensor(&raw_odd)], out, |i| {
        match odd.at(i) {
            x if x <= 0.0 => 0.0,
            x => x,
        }
    });
}

#[test]
fn a_result_may_be_an_argument() {
    if !there_is_a_device() {
        return;
    }
    let _turn = turn();
    let opened = opened();
    let o = &opened;
    // More than a block, and not a multiple of it.
    let (mut a, b) = (Tensor::counted(o, &[1000]), Tensor::counted(o, &[1000]));
    let before = a.values.clone();
    let (raw, other) = (a.raw(), b.raw());
    let arguments = [tensor(&raw), tensor(&other), integer(1)];
    for _ in 0..2 {
        o.run(c"aten::add.Tensor", &arguments, &raw)
            .expect("computed");
    }
    a.fetch(o);
    let expected: Vec<_> = before.iter().map(|x| x + x + x).collect();
    assert_eq!(a.values, expected);
}

#[test]
fn matrices_are_multiplied() {
    if !there_is_a_device() {
        return;
    }
    let _turn = turn();
    let opened = opened();
    let o = &opened;
    for length in [0, 1, 17] {
        let a = Tensor::counted(o, &[13, length]);
        let b = Tensor::counted(o, &[11, length]).transposed();
        let (raw_a, raw_b) = (a.raw(), b.raw());
        let out = Tensor::counted(o, &[11, 13]).transposed();
        o.check(c"aten::mm", &[tensor(&raw_a), tensor(&raw_b)], out, |i| {
            (0..length).fold(0.0, |sum: f32, k| {
                a.at(&[i[0], k]).mul_add(b.at(&[k, i[1]]), sum)
            })
        });
    }
}

#[test]
fn other_calls_are_declined() {
    if !there_is_a_device() {
        return;
    }
    let _turn = turn();
    let opened = opened();
    let o = &opened;
    let a = Tensor::counted(o, &[4]);
    let raw = a.raw();
    let declined = |operator, arguments: &[FlagosKernelValue], out: &FlagosKernelTensor| {
        o.run(operator, arguments, out).expect_err("declined")
    };
    let double = FlagosKernelTensor {
        dtype: FLAGOS_DTYPE_FLOAT64,
        ..a.raw()
    };
    let said = declined(c"aten::relu", &[tensor(&double)], &raw);
    assert!(said.contains("float32"), "{said}");
    let said = declined(c"aten::relu", &[tensor(&raw)], &double);
    assert!(said.contains("float32"), "{said}");
    let said = declined(c"aten::fill_.Scalar", &[tensor(&raw), real(1e300)], &raw);
    assert!(said.contains("is no float32"), "{said}");
    let (sizes, strides) = ([2_i64; 5], [1000_i64, 300, 70, 20, 2]);
    let five = FlagosKernelTensor {
        sizes: sizes.as_ptr(),
        strides: strides.as_ptr(),
        num_elements: 32,
        num_dims: 5,
        ..a.raw()
    };
    let said = declined(c"aten::relu", &[tensor(&five)], &five);
    assert!(said.contains("5 dimensions"), "{said}");
    let half = 0.5;
    let (x, y) = (number(&half), number(&half));
    let said = declined(c"aten::mul.Tensor", &[tensor(&x), tensor(&y)], &raw);
    assert!(said.contains("numbers"), "{said}");
    let empty = Tensor::new(o, &[], &[0, 3], &[3, 1]);
    let raw = empty.raw();
    o.run(c"aten::relu", &[tensor(&raw)], &raw)
        .expect("nothing to do");
    assert_eq!(o.library.kernel(c"aten::cosh").expect("asked"), None);
    let names = o.library.kernels().expect("kernels").names();
    assert!(names.iter().any(|name| name == "aten::mm"), "{names:?}");
}
