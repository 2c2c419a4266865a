//! Tensors in the chip's memory, and elements of every dtype.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

use flagos_core::runtime::{Stream, Vendor};
use flagos_core::vendors::library::*;

/// Memory of a device. Freed after the work on its stream.
pub struct Memory {
    vendor: Arc<dyn Vendor>,
    stream: Arc<dyn Stream>,
    pub address: NonNull<u8>,
    pub nbytes: usize,
}

// SAFETY: only the device uses the memory.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(vendor: &Arc<dyn Vendor>, stream: &Arc<dyn Stream>, nbytes: usize) -> Self {
        let room = nbytes.max(1);
        Self {
            vendor: Arc::clone(vendor),
            stream: Arc::clone(stream),
            address: vendor.alloc(stream.device(), room).expect("memory"),
            nbytes,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        while !self.stream.is_idle() {
            std::thread::yield_now();
        }
        let device = self.stream.device();
        // SAFETY: allocated in `new`; the stream that uses it is idle.
        unsafe { self.vendor.free(device, self.address, self.nbytes.max(1)) };
    }
}

/// A strided tensor.
#[derive(Clone)]
pub struct Tensor {
    pub memory: Arc<Memory>,
    pub dtype: i32,
    /// In elements.
    pub offset: usize,
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
}

/// The strides of a tensor whose elements lie side by side.
pub fn contiguous(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim] * sizes[dim].max(1);
    }
    strides
}

/// Every index into a tensor of these sizes, the last dimension the fastest.
pub fn indices(sizes: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for &size in sizes {
        let longer = |index: Vec<i64>| {
            (0..size).map(move |i| {
                let mut index = index.clone();
                index.push(i);
                index
            })
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

impl Tensor {
    pub fn num_elements(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// Where each element lies in the memory, in elements.
    pub fn places(&self) -> Vec<usize> {
        let place = |index: &Vec<i64>| {
            let steps = index.iter().zip(&self.strides);
            self.offset + steps.map(|(i, stride)| i * stride).sum::<i64>() as usize
        };
        indices(&self.sizes).iter().map(place).collect()
    }

    /// Another view of the memory.
    pub fn view(&self, offset: usize, sizes: &[i64], strides: &[i64]) -> Self {
        Self {
            offset,
            sizes: sizes.to_vec(),
            strides: strides.to_vec(),
            ..self.clone()
        }
    }

    /// With the dimensions in another order.
    pub fn permuted(&self, order: &[usize]) -> Self {
        Self {
            sizes: order.iter().map(|&dim| self.sizes[dim]).collect(),
            strides: order.iter().map(|&dim| self.strides[dim]).collect(),
            ..self.clone()
        }
    }
}

/// The bytes of an element.
pub fn size_of(dtype: i32) -> usize {
    match dtype {
        FLAGOS_DTYPE_UINT8 | FLAGOS_DTYPE_INT8 | FLAGOS_DTYPE_BOOL => 1,
        FLAGOS_DTYPE_INT16 | FLAGOS_DTYPE_FLOAT16 | FLAGOS_DTYPE_BFLOAT16 => 2,
        FLAGOS_DTYPE_INT32 | FLAGOS_DTYPE_FLOAT32 => 4,
        FLAGOS_DTYPE_COMPLEX128 => 16,
        _ => 8,
    }
}

/// The value of a float16, by its definition.
pub fn float16(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    sign * match i32::from(bits >> 10 & 31) {
        0 => fraction * 2_f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1.0 + fraction) * 2_f64.powi(exponent - 15),
    }
}

/// The element as a number.
pub fn decode(dtype: i32, bytes: &[u8]) -> f64 {
    macro_rules! number {
        ($type:ty) => {
            <$type>::from_ne_bytes(bytes.try_into().expect("an element"))
        };
    }
    match dtype {
        FLAGOS_DTYPE_UINT8 | FLAGOS_DTYPE_BOOL => bytes[0].into(),
        FLAGOS_DTYPE_INT8 => number!(i8).into(),
        FLAGOS_DTYPE_INT16 => number!(i16).into(),
        FLAGOS_DTYPE_INT32 => number!(i32).into(),
        FLAGOS_DTYPE_INT64 => number!(i64) as f64,
        FLAGOS_DTYPE_FLOAT16 => float16(number!(u16)),
        FLAGOS_DTYPE_BFLOAT16 => f32::from_bits(u32::from(number!(u16)) << 16).into(),
        FLAGOS_DTYPE_FLOAT32 => number!(f32).into(),
        FLAGOS_DTYPE_FLOAT64 => number!(f64),
        _ => unreachable!("no test has the dtype {dtype}"),
    }
}

/// The element that is this number, which the dtype has.
pub fn encode(dtype: i32, value: f64) -> Vec<u8> {
    match dtype {
        FLAGOS_DTYPE_UINT8 | FLAGOS_DTYPE_BOOL => vec![value as u8],
        FLAGOS_DTYPE_INT8 => vec![value as i8 as u8],
        FLAGOS_DTYPE_INT16 => (value as i16).to_ne_bytes().into(),
        FLAGOS_DTYPE_INT32 => (value as i32).to_ne_bytes().into(),
        FLAGOS_DTYPE_INT64 => (value as i64).to_ne_bytes().into(),
        FLAGOS_DTYPE_FLOAT16 => {
            static ALL: LazyLock<HashMap<u64, u16>> = LazyLock::new(|| {
                let all = (0..=u16::MAX).map(|bits| (float16(bits).to_bits(), bits));
                all.collect()
            });
            let bits = ALL.get(&value.to_bits());
            bits.expect("a float16").to_ne_bytes().into()
        }
        FLAGOS_DTYPE_BFLOAT16 => {
            let bits = (value as f32).to_bits();
            assert_eq!(bits & 0xffff, 0, "a bfloat16");
            ((bits >> 16) as u16).to_ne_bytes().into()
        }
        FLAGOS_DTYPE_FLOAT32 => (value as f32).to_ne_bytes().into(),
        FLAGOS_DTYPE_FLOAT64 => value.to_ne_bytes().into(),
        _ => unreachable!("no test has the dtype {dtype}"),
    }
}

/// Random numbers, the same each time.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A number below `end`.
    pub fn below(&mut self, end: i64) -> i64 {
        (self.next() % end as u64) as i64
    }

    /// Up to `most` sizes, few of them 0 or larger than a row of the chip.
    pub fn sizes(&mut self, most: i64) -> Vec<i64> {
        let num_dims = self.below(most + 1);
        let mut sizes: Vec<_> = (0..num_dims).map(|_| 1 + self.below(3)).collect();
        if let Some(size) = sizes.last_mut() {
            *size = [0, 300, 600, 5, 5, 5, 5][self.below(7) as usize];
        }
        for i in (1..sizes.len()).rev() {
            sizes.swap(i, self.below(i as i64 + 1) as usize);
        }
        sizes
    }

    /// Sizes that broadcast to these.
    pub fn narrower(&mut self, sizes: &[i64]) -> Vec<i64> {
        let dropped = self.below(sizes.len() as i64 + 1) / 2;
        let kept = sizes[dropped as usize..].iter();
        kept.map(|&size| if self.below(4) == 0 { 1 } else { size })
            .collect()
    }

    /// Strides with the dimensions in any order and gaps between elements, and how many elements they reach over.
    pub fn strides(&mut self, sizes: &[i64]) -> (Vec<i64>, i64) {
        let mut order: Vec<_> = (0..sizes.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.below(i as i64 + 1) as usize);
        }
        let (mut strides, mut reach) = (vec![0; sizes.len()], 1 + self.below(4) / 3);
        for dim in order {
            strides[dim] = reach;
            reach *= sizes[dim].max(1) + self.below(4) / 3;
        }
        (strides, reach)
    }

    /// A number that every dtype has, or, of a dtype that can, one with a fraction or a sign.
    pub fn number(&mut self, dtype: i32) -> f64 {
        let whole = self.below(100) as f64;
        match dtype {
            FLAGOS_DTYPE_BOOL => (self.below(2)) as f64,
            FLAGOS_DTYPE_UINT8 => whole,
            FLAGOS_DTYPE_FLOAT32 | FLAGOS_DTYPE_FLOAT64 => {
                (whole - 50.0) / 8.0 + 1e-3 * whole as f32 as f64
            }
            FLAGOS_DTYPE_FLOAT16 | FLAGOS_DTYPE_BFLOAT16 => (whole - 50.0) / 2.0,
            _ => whole - 50.0,
        }
    }
}

/// The numbers of a tensor of sizes `from`, repeated to `to`.
pub fn broadcast(values: &[f64], from: &[i64], to: &[i64]) -> Vec<f64> {
    let strides = contiguous(from);
    let missing = to.len() - from.len();
    let at = |index: &Vec<i64>| {
        let of_dim = |dim: usize| {
            if from[dim] == 1 {
                0
            } else {
                index[dim + missing] * strides[dim]
            }
        };
        values[(0..from.len()).map(of_dim).sum::<i64>() as usize]
    };
    indices(to).iter().map(at).collect()
}

/// Whether the numbers are these, or as near as float32 can tell; NaN is NaN.
pub fn assert_close(what: &str, values: &[f64], expected: &[f64]) {
    assert_eq!(values.len(), expected.len(), "{what}");
    for (i, (value, expected)) in values.iter().zip(expected).enumerate() {
        let same = value == expected || value.is_nan() && expected.is_nan();
        let near = (value - expected).abs() <= 1e-6 * expected.abs().max(1e-3);
        assert!(
            same || near,
            "{what}: element {i} is {value} instead of {expected}"
        );
    }
}
