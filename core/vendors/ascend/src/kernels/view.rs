//! Tensors as CANN's operators see them: a part of a storage, with sizes and strides.

use std::ffi::c_void;
use std::ptr::null_mut;

use flagos_core::error::{Error, Result};
use flagos_core::vendors::library::*;

use super::dtype::DType;

/// The most dimensions of a tensor that CANN takes.
pub(super) const MOST_DIMS: usize = 8;

/// Numbers of up to [`MOST_DIMS`] dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dims {
    numbers: [i64; MOST_DIMS],
    count: usize,
}

impl Dims {
    /// The numbers, or a call that is declined if there are too many.
    pub(super) fn new(numbers: &[i64]) -> Result<Self> {
        let mut dims = Self {
            numbers: [0; MOST_DIMS],
            count: numbers.len(),
        };
        match dims.numbers.get_mut(..numbers.len()) {
            Some(place) => place.copy_from_slice(numbers),
            None => {
                return decline(format!(
                    "a tensor has {} dimensions, and CANN takes {MOST_DIMS}",
                    numbers.len()
                ));
            }
        }
        Ok(dims)
    }
}

impl std::ops::Deref for Dims {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.numbers[..self.count]
    }
}

impl std::ops::DerefMut for Dims {
    fn deref_mut(&mut self) -> &mut [i64] {
        &mut self.numbers[..self.count]
    }
}

/// Declines a call: the CPU computes it, and the reason is counted.
#[cold]
pub(super) fn decline<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::unsupported("aclnn", reason))
}

/// A tensor in device memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// The memory that all elements lie in.
    pub(super) storage: *mut c_void,
    /// The bytes from `storage`.
    pub(super) storage_nbytes: usize,
    /// From `storage` to the first element, in elements.
    pub(super) offset: i64,
    pub(super) sizes: Dims,
    /// In elements.
    pub(super) strides: Dims,
    pub(super) dtype: DType,
}

impl View {
    /// A tensor of a call.
    pub(super) fn new(tensor: &FlagosKernelTensor) -> Result<Self> {
        let Some(dtype) = DType::of_host(tensor.dtype) else {
            return decline(format!(
                "CANN has no type for torch's dtype {}",
                tensor.dtype
            ));
        };
        let count = usize::try_from(tensor.num_dims).unwrap_or(0);
        let list = |list: *const i64| match count {
            0 => &[][..],
            // SAFETY: the host promises as many numbers as there are dimensions.
            _ => unsafe { std::slice::from_raw_parts(list, count) },
        };
        let bytes = (tensor.data as usize).wrapping_sub(tensor.storage as usize);
        if bytes % dtype.size() != 0 {
            return decline(
                "a tensor does not begin at a multiple of its elements' size in its storage",
            );
        }
        Ok(Self {
            storage: tensor.storage,
            storage_nbytes: tensor.storage_nbytes,
            offset: (bytes / dtype.size()) as i64,
            sizes: Dims::new(list(tensor.sizes))?,
            strides: Dims::new(list(tensor.strides))?,
            dtype,
        })
    }

    /// A contiguous tensor at this address.
    pub(super) fn contiguous(storage: *mut c_void, dtype: DType, sizes: &[i64]) -> Result<Self> {
        let sizes = Dims::new(sizes)?;
        let elements: i64 = sizes.iter().product();
        Ok(Self {
            storage,
            storage_nbytes: elements as usize * dtype.size(),
            offset: 0,
            sizes,
            strides: Dims::new(&dense(&sizes))?,
            dtype,
        })
    }

    /// The address of the first element.
    pub(super) fn data(&self) -> *mut c_void {
        self.storage
            .wrapping_byte_add(self.offset as usize * self.dtype.size())
    }

    pub(super) fn elements(&self) -> i64 {
        self.sizes.iter().product()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// Whether the elements lie side by side in the order of their indices.
    pub(super) fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (size, stride) in self.sizes.iter().zip(self.strides.iter()).rev() {
            if *size != 1 && *stride != expected {
                return false;
            }
            expected *= size;
        }
        true
    }

    /// Whether both are the same elements in the same order.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.data() == other.data()
            && self.dtype == other.dtype
            && self.sizes == other.sizes
            && self.strides == other.strides
    }

    /// The same elements with other sizes and strides.
    pub(super) fn with(mut self, sizes: &[i64], strides: &[i64]) -> Result<Self> {
        self.sizes = Dims::new(sizes)?;
        self.strides = Dims::new(strides)?;
        Ok(self)
    }

    /// A contiguous tensor with other sizes of as many elements.
    pub(super) fn reshaped(self, sizes: &[i64]) -> Result<Self> {
        self.with(sizes, &dense(sizes))
    }

    /// The part at one index of a dimension, which is dropped.
    pub(super) fn select(mut self, dim: usize, index: i64) -> Result<Self> {
        self.offset += index * self.strides[dim];
        let keep = |numbers: &[i64]| {
            let mut kept = numbers.to_vec();
            kept.remove(dim);
            Dims::new(&kept)
        };
        (self.sizes, self.strides) = (keep(&self.sizes)?, keep(&self.strides)?);
        Ok(self)
    }

    /// The elements repeated to these sizes, as torch broadcasts.
    pub(super) fn expanded(self, sizes: &[i64]) -> Result<Self> {
        let ahead = sizes.len() - self.sizes.len();
        let mut strides = vec![0; sizes.len()];
        for (dim, (size, stride)) in self.sizes.iter().zip(self.strides.iter()).enumerate() {
            if *size == sizes[ahead + dim] {
                strides[ahead + dim] = *stride;
            }
        }
        self.with(sizes, &strides)
    }

    /// `aclFormat`, by the number of dimensions as CANN's operators for images want it.
    pub(super) fn format(&self) -> i32 {
        const ND: i32 = 2;
        match self.sizes.len() {
            3 => 47, // NCL
            4 => 0,  // NCHW
            5 => 30, // NCDHW
            _ => ND,
        }
    }

    /// A tensor without memory, for parameters whose tensor has no elements.
    pub(super) fn nothing(dtype: DType) -> Result<Self> {
        Self::contiguous(null_mut(), dtype, &[0])
    }
}

/// The strides of a contiguous tensor.
pub(super) fn dense(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim] * sizes[dim].max(1);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(sizes: &[i64]) -> View {
        View::contiguous(0x1000 as *mut c_void, DType::F32, sizes).expect("few dimensions")
    }

    #[test]
    fn parts_keep_the_storage_and_move_the_offset() {
        let whole = view(&[2, 3, 4]);
        let part = whole.select(1, 2).expect("a part");
        assert_eq!(part.offset, 2 * 4);
        assert_eq!((&*part.sizes, &*part.strides), (&[2, 4][..], &[12, 1][..]));
        assert_eq!(part.data() as usize, 0x1000 + 8 * 4);
        assert!(whole.is_contiguous() && !part.is_contiguous());
    }

    #[test]
    fn repeated_dimensions_have_no_stride() {
        let wide = view(&[3, 1]).expanded(&[2, 3, 4]).expect("as broadcast");
        assert_eq!(&*wide.strides, &[0, 1, 0]);
    }

    #[test]
    fn more_dimensions_than_cann_takes_are_declined() {
        let error = Dims::new(&[1; 9]).expect_err("nine dimensions");
        assert!(error.to_string().contains("9 dimensions"), "{error}");
    }
}
