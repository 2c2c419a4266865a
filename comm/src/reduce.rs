//! Reducing the values of several ranks, always in the order of the ranks.
//!
//! Values of half precision are added in `f32` over all ranks and rounded once, while a chain of pairwise
//! reductions would round at every rank. `f32` and `f64` are added in their own precision.

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};

use crate::{DType, Error, ErrorKind, Result};

/// How values are combined. The discriminants are those of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ReduceOp {
    Sum = 0,
    /// The sum divided by the number of ranks; integers round towards zero.
    Avg = 1,
    Prod = 2,
    Min = 3,
    Max = 4,
    BitAnd = 5,
    BitOr = 6,
    BitXor = 7,
    /// The sum of values multiplied by a factor of their rank.
    PremulSum = 8,
}

impl ReduceOp {
    /// Every operation, by discriminant.
    pub const ALL: [Self; 9] = [
        Self::Sum,
        Self::Avg,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::PremulSum,
    ];

    /// The operation with this code in the C table.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// torch's name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Prod => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::BitAnd => "band",
            Self::BitOr => "bor",
            Self::BitXor => "bxor",
            Self::PremulSum => "premul_sum",
        }
    }

    /// Fails for a type that this operation is not defined on.
    pub fn check(self, dtype: DType) -> Result<()> {
        use DType as D;
        let bitwise = matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor);
        let fine = match dtype {
            D::Float8E4M3Fn | D::Float8E5M2 | D::Float8E4M3FnUz | D::Float8E5M2FnUz | D::Bytes => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{} cannot be reduced: reduce in bfloat16 or float32",
                        dtype.name()
                    ),
                ));
            }
            D::Complex64 | D::Complex128 => matches!(self, Self::Sum | Self::Avg | Self::PremulSum),
            D::Float16 | D::BFloat16 | D::Float32 | D::Float64 => !bitwise,
            D::Bool => !matches!(self, Self::Avg | Self::PremulSum),
            _ => self != Self::PremulSum,
        };
        if fine {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} is not defined on {}", self.name(), dtype.name()),
        ))
    }
}

/// The number of elements that are reduced at a time, whose accumulators fit the first-level cache.
const BLOCK: usize = 1024;

/// An element of a buffer, and the type it is accumulated in.
trait Element: Copy {
    type Wide: Copy + Default;
    fn widen(from: &[Self], to: &mut [Self::Wide]);
    fn narrow(from: &[Self::Wide], to: &mut [Self]);
}

macro_rules! own_width {
    ($($t:ty),*) => {$(
        impl Element for $t {
            type Wide = $t;
            fn widen(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
            fn narrow(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
        }
    )*};
}
own_width!(u8, i8, i16, i32, i64, u16, u32, u64, f32, f64);

macro_rules! in_f32 {
    ($($t:ty),*) => {$(
        impl Element for $t {
            type Wide = f32;
            fn widen(from: &[Self], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            fn narrow(from: &[f32], to: &mut [Self]) {
                to.convert_from_f32_slice(from);
            }
        }
    )*};
}
in_f32!(f16, bf16);

/// Reduces `inputs`, one for each rank, element by element into `out` and, if given, into `mirror` too.
///
/// `factors` has one factor for each rank for [`ReduceOp::PremulSum`] and is empty otherwise. `out` and
/// `mirror` may be one of the inputs, and may not overlap otherwise. The caller has called
/// [`ReduceOp::check`].
///
/// # Safety
/// Every pointer is valid for `count` elements of `dtype`, aligned to it.
pub unsafe fn reduce(
    op: ReduceOp,
    dtype: DType,
    factors: &[f64],
    inputs: &[*const u8],
    count: usize,
    out: *mut u8,
    mirror: Option<*mut u8>,
) {
    let call = Call {
        inputs,
        count,
        out,
        mirror,
        factors,
    };
    // SAFETY: the caller's promise, for the type that each arm names.
    unsafe {
        match dtype {
            DType::Float32 => float32(op, &call),
            DType::Float64 => float64(op, &call),
            DType::Float16 => half_precision::<f16>(op, &call),
            DType::BFloat16 => half_precision::<bf16>(op, &call),
            DType::Complex64 => float32(op, &call.twice()),
            DType::Complex128 => float64(op, &call.twice()),
            DType::Bool => boolean(op, &call),
            DType::UInt8 => integer_u8(op, &call),
            DType::Int8 => integer_i8(op, &call),
            DType::Int16 => integer_i16(op, &call),
            DType::Int32 => integer_i32(op, &call),
            DType::Int64 => integer_i64(op, &call),
            DType::UInt16 => integer_u16(op, &call),
            DType::UInt32 => integer_u32(op, &call),
            DType::UInt64 => integer_u64(op, &call),
            // `check` refuses these.
            DType::Float8E4M3Fn
            | DType::Float8E5M2
            | DType::Float8E4M3FnUz
            | DType::Float8E5M2FnUz
            | DType::Bytes => {}
        }
    }
}

struct Call<'a> {
    inputs: &'a [*const u8],
    count: usize,
    out: *mut u8,
    mirror: Option<*mut u8>,
    factors: &'a [f64],
}

impl Call<'_> {
    /// The call on complex numbers as one on twice as many real numbers.
    fn twice(&self) -> Self {
        Self {
            count: self.count * 2,
            ..*self
        }
    }

    /// Folds block by block: `scale` each rank's values, `combine` them in order, `finish` the result.
    ///
    /// # Safety
    /// As [`reduce`], for elements of type `T`.
    unsafe fn fold<T: Element>(
        &self,
        scale: impl Fn(T::Wide, usize) -> T::Wide,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
        finish: impl Fn(T::Wide) -> T::Wide,
    ) {
        let mut total = [T::Wide::default(); BLOCK];
        let mut next = [T::Wide::default(); BLOCK];
        let mut start = 0;
        while start < self.count {
            let n = BLOCK.min(self.count - start);
            for (rank, &input) in self.inputs.iter().enumerate() {
                // SAFETY: in range of the input; results of this block are written after it was read.
                let values = unsafe { std::slice::from_raw_parts(input.cast::<T>().add(start), n) };
                if rank == 0 {
                    T::widen(values, &mut total[..n]);
                    for value in &mut total[..n] {
                        *value = scale(*value, 0);
                    }
                } else {
                    T::widen(values, &mut next[..n]);
                    for (value, &other) in total[..n].iter_mut().zip(&next[..n]) {
                        *value = combine(*value, scale(other, rank));
                    }
                }
            }
            for value in &mut total[..n] {
                *value = finish(*value);
            }
            for out in std::iter::once(self.out).chain(self.mirror) {
                // SAFETY: in range of the output, and the slices of inputs are gone.
                let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<T>().add(start), n) };
                T::narrow(&total[..n], out);
            }
            start += n;
        }
    }
}

macro_rules! floating {
    ($name:ident, $generic:ident, $wide:ty) => {
        /// # Safety
        /// As [`Call::fold`].
        unsafe fn $name<$generic: Element<Wide = $wide>>(op: ReduceOp, call: &Call<'_>) {
            let same = |x: $wide, _: usize| x;
            let done = |x: $wide| x;
            let ranks = call.inputs.len() as $wide;
            // The maximum with NaN is NaN, as in torch.max.
            let max = |a: $wide, b: $wide| if a > b || a.is_nan() { a } else { b };
            let min = |a: $wide, b: $wide| if a < b || a.is_nan() { a } else { b };
            // SAFETY: the caller's promise.
            unsafe {
                match op {
                    ReduceOp::Sum => call.fold::<$generic>(same, |a, b| a + b, done),
                    ReduceOp::Avg => call.fold::<$generic>(same, |a, b| a + b, |x| x / ranks),
                    ReduceOp::Prod => call.fold::<$generic>(same, |a, b| a * b, done),
                    ReduceOp::Min => call.fold::<$generic>(same, min, done),
                    ReduceOp::Max => call.fold::<$generic>(same, max, done),
                    ReduceOp::PremulSum => {
                        let scale = |x: $wide, rank: usize| x * call.factors[rank] as $wide;
                        call.fold::<$generic>(scale, |a, b| a + b, done);
                    }
                    // `check` refuses these.
                    ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => {}
                }
            }
        }
    };
}
floating!(narrow_float, T, f32);
floating!(wide_float, T, f64);

/// # Safety
/// As [`Call::fold`].
unsafe fn half_precision<T: Element<Wide = f32>>(op: ReduceOp, call: &Call<'_>) {
    // SAFETY: the caller's promise.
    unsafe { narrow_float::<T>(op, call) }
}

/// # Safety
/// As [`Call::fold`].
unsafe fn float32(op: ReduceOp, call: &Call<'_>) {
    if let (ReduceOp::Sum, [a, b]) = (op, call.inputs) {
        // The sum of two ranks, the most frequent case, needs no accumulators.
        // SAFETY: the caller's promise.
        unsafe { add_two(a.cast(), b.cast(), call) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { narrow_float::<f32>(op, call) }
}

/// # Safety
/// As [`Call::fold`].
unsafe fn float64(op: ReduceOp, call: &Call<'_>) {
    // SAFETY: the caller's promise.
    unsafe { wide_float::<f64>(op, call) }
}

/// # Safety
/// `a` and `b` are the two inputs of `call`, of `f32`.
unsafe fn add_two(a: *const f32, b: *const f32, call: &Call<'_>) {
    let mut start = 0;
    while start < call.count {
        let n = BLOCK.min(call.count - start);
        let mut sum = [0f32; BLOCK];
        // SAFETY: in range; results of this block are written after it was read.
        let (a, b) = unsafe {
            (
                std::slice::from_raw_parts(a.add(start), n),
                std::slice::from_raw_parts(b.add(start), n),
            )
        };
        for ((sum, a), b) in sum[..n].iter_mut().zip(a).zip(b) {
            *sum = a + b;
        }
        for out in std::iter::once(call.out).chain(call.mirror) {
            // SAFETY: in range of the output, and the input slices are not used any more.
            unsafe {
                std::ptr::copy_nonoverlapping(sum.as_ptr(), out.cast::<f32>().add(start), n);
            }
        }
        start += n;
    }
}

/// Reduces booleans: any value but 0 is true, and results are 0 or 1.
///
/// # Safety
/// As [`Call::fold`].
unsafe fn boolean(op: ReduceOp, call: &Call<'_>) {
    let truth = |x: u8, _: usize| u8::from(x != 0);
    let done = |x: u8| x;
    // SAFETY: the caller's promise; a bool is a byte.
    unsafe {
        match op {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::BitOr => {
                call.fold::<u8>(truth, |a, b| a | b, done);
            }
            ReduceOp::Prod | ReduceOp::Min | ReduceOp::BitAnd => {
                call.fold::<u8>(truth, |a, b| a & b, done);
            }
            ReduceOp::BitXor => call.fold::<u8>(truth, |a, b| a ^ b, done),
            // `check` refuses these.
            ReduceOp::Avg | ReduceOp::PremulSum => {}
        }
    }
}

macro_rules! integer {
    ($($name:ident: $t:ty),*) => {$(
        /// # Safety
        /// As [`Call::fold`].
        unsafe fn $name(op: ReduceOp, call: &Call<'_>) {
            let same = |x: $t, _: usize| x;
            let done = |x: $t| x;
            let ranks = call.inputs.len() as i128;
            // SAFETY: the caller's promise.
            unsafe {
                match op {
                    ReduceOp::Sum => call.fold::<$t>(same, <$t>::wrapping_add, done),
                    #[allow(clippy::unnecessary_cast, reason = "of every integer type")]
                    ReduceOp::Avg => {
                        call.fold::<$t>(same, <$t>::wrapping_add, |x| (x as i128 / ranks) as $t);
                    }
                    ReduceOp::Prod => call.fold::<$t>(same, <$t>::wrapping_mul, done),
                    ReduceOp::Min => call.fold::<$t>(same, Ord::min, done),
                    ReduceOp::Max => call.fold::<$t>(same, Ord::max, done),
                    ReduceOp::BitAnd => call.fold::<$t>(same, |a, b| a & b, done),
                    ReduceOp::BitOr => call.fold::<$t>(same, |a, b| a | b, done),
                    ReduceOp::BitXor => call.fold::<$t>(same, |a, b| a ^ b, done),
                    ReduceOp::PremulSum => {} // `check` refuses it
                }
            }
        }
    )*};
}
integer!(
    integer_u8: u8, integer_i8: i8, integer_i16: i16, integer_i32: i32, integer_i64: i64,
    integer_u16: u16, integer_u32: u32, integer_u64: u64
);

#[cfg(all(test, not(loom)))]
#[path = "reduce_tests.rs"]
mod tests;
