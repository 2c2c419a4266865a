//! Tensor maps, by which the tensor memory accelerator of Hopper and later finds the blocks of a tensor.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType as DataType, CUtensorMapFloatOOBfill as Outside,
    CUtensorMapInterleave as Interleave, CUtensorMapL2promotion as Promotion,
    CUtensorMapSwizzle as Swizzle,
};

use crate::error::{Error, Result};

use super::api::SUCCESS;
use super::driver;
use super::error::failed;

/// The most dimensions of a tensor map.
pub const MAX_RANK: usize = 5;

/// Bytes of an encoded map, as a kernel takes it.
pub const ENCODED_BYTES: u32 = 128;

/// A tensor without its address. Dimensions are in the driver's order: the one whose elements lie side by
/// side first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap {
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// Dimensions, 1 to 5.
    pub rank: u32,
    /// Elements along each.
    pub shape: [u64; MAX_RANK],
    /// Bytes from one element to the next along each dimension but the first.
    pub strides: [u64; MAX_RANK],
    /// Elements of a block along each dimension.
    pub block: [u32; MAX_RANK],
    /// `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// Whether elements outside the tensor read as NaN instead of zero.
    pub fills_with_nan: bool,
}

/// An encoded map.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Encoded(CUtensorMap);

impl TensorMap {
    /// Checks what the driver does not check: that numbers are values of its enumerations, and that the rank
    /// fits the arrays.
    ///
    /// # Errors
    /// `InvalidArgument` for a number of dimensions, a data type or a swizzle that no map has; `Unsupported`
    /// when the driver has no tensor maps.
    pub fn check(&self) -> Result<()> {
        if !(1..=MAX_RANK as u32).contains(&self.rank) {
            let message = format!(
                "a tensor map of {} dimensions; 1 to {MAX_RANK} are possible",
                self.rank
            );
            return Err(Error::invalid_argument("launch_create", message));
        }
        if self.data_type().is_none() || self.swizzle().is_none() {
            let message = format!(
                "a tensor map of data type {} and swizzle {}",
                self.data_type, self.swizzle
            );
            return Err(Error::invalid_argument("launch_create", message));
        }
        if driver::initialize()?.cuTensorMapEncodeTiled.is_none() {
            return Err(
                Error::unsupported("launch_create", "the driver has no tensor maps")
                    .with_hint("install a driver for CUDA 12"),
            );
        }
        Ok(())
    }

    fn data_type(&self) -> Option<DataType> {
        Some(match self.data_type {
            0 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            1 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            2 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            3 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
            4 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
            5 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
            6 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            7 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            8 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
            9 => DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            10 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
            11 => DataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
            12 => DataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
            _ => return None,
        })
    }

    fn swizzle(&self) -> Option<Swizzle> {
        Some(match self.swizzle {
            0 => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            1 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            2 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            3 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            _ => return None,
        })
    }

    /// The map of the tensor at this address, as Triton encodes it: not interleaved, promoted to 128 bytes
    /// in L2.
    ///
    /// # Errors
    /// The driver's, for a tensor that it cannot describe, or an address that is no multiple of 16.
    #[inline]
    pub fn encode(&self, address: u64) -> Result<Encoded> {
        const ELEMENT_STRIDES: [u32; MAX_RANK] = [1; MAX_RANK];
        let outside = match self.fills_with_nan {
            true => Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
            false => Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        };
        let api = driver::initialize()?;
        let parts = (api.cuTensorMapEncodeTiled, self.data_type(), self.swizzle());
        let (Some(encode), Some(data_type), Some(swizzle)) = parts else {
            let message = "the driver has no such tensor map";
            return Err(Error::unsupported("launch_run", message));
        };
        // SAFETY: a structure of integers.
        let mut map = Encoded(unsafe { std::mem::zeroed() });
        // SAFETY: the arrays have room for the most dimensions there are, the output is aligned by its type, and
        // the driver does not read the memory at the address.
        let code = unsafe {
            encode(
                &mut map.0,
                data_type,
                self.rank,
                address as usize as *mut c_void,
                self.shape.as_ptr(),
                self.strides.as_ptr(),
                self.block.as_ptr(),
                ELEMENT_STRIDES.as_ptr(),
                Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                outside,
            )
        };
        match code {
            SUCCESS => Ok(map),
            code => Err(failed(api, "cuTensorMapEncodeTiled", code)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_map_has_are_refused() {
        let map = TensorMap {
            data_type: 9,
            rank: 2,
            shape: [64, 64, 0, 0, 0],
            strides: [128, 0, 0, 0, 0],
            block: [64, 32, 0, 0, 0],
            swizzle: 3,
            fills_with_nan: false,
        };
        for (wrong, says) in [
            (TensorMap { rank: 0, ..map }, "0 dimensions"),
            (TensorMap { rank: 6, ..map }, "6 dimensions"),
            (
                TensorMap {
                    data_type: 13,
                    ..map
                },
                "data type 13",
            ),
            (TensorMap { swizzle: 4, ..map }, "swizzle 4"),
        ] {
            let error = wrong.check().expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
