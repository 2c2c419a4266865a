//! Tensor maps, by which the tensor memory accelerator of Hopper and later finds the blocks of a tensor.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType as DataType, CUtensorMapFloatOOBfill as Outside,
    CUtensorMapInterleave as Interleave, CUtensorMapL2promotion as Promotion,
    CUtensorMapSwizzle as Swizzle,
};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::{MAX_RANK, TENSOR_MAP_BYTES, TensorMap};

use super::api::{Api, Code, SUCCESS};
use super::error::failed;

/// An encoded map, as a kernel takes it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Encoded(CUtensorMap);

const _: () = assert!(size_of::<Encoded>() == TENSOR_MAP_BYTES as usize);

type Encode = unsafe extern "C" fn(
    *mut CUtensorMap,
    DataType,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    *const c_uint,
    *const c_uint,
    Interleave,
    Swizzle,
    Promotion,
    Outside,
) -> Code;

/// A checked map without its address.
pub(super) struct Map {
    api: &'static Api,
    encode: Encode,
    data_type: DataType,
    swizzle: Swizzle,
    outside: Outside,
    map: TensorMap,
}

impl Map {
    /// Checks what the driver does not check: that numbers are values of its enumerations, and that the rank
    /// fits the arrays.
    ///
    /// # Errors
    /// `InvalidArgument` for a number of dimensions, a data type or a swizzle that no map has; `Unsupported`
    /// when the driver has no tensor maps.
    pub(super) fn new(api: &'static Api, map: &TensorMap) -> Result<Self> {
        let (data_type, swizzle) = numbers(map)?;
        let encode = api.cuTensorMapEncodeTiled.ok_or_else(|| {
            Error::unsupported("launch_create", "the driver has no tensor maps")
                .with_hint("install a driver for CUDA 12")
        })?;
        let outside = if map.fills_with_nan {
            Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
        } else {
            Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
        };
        Ok(Self {
            api,
            encode,
            data_type,
            swizzle,
            outside,
            map: *map,
        })
    }

    /// The map of the tensor at this address, as Triton encodes it: not interleaved, promoted to 128 bytes
    /// in L2.
    ///
    /// # Errors
    /// The driver's, for a tensor that it cannot describe, or an address that is no multiple of 16.
    #[inline]
    pub(super) fn encode(&self, address: u64) -> Result<Encoded> {
        const ELEMENT_STRIDES: [u32; MAX_RANK] = [1; MAX_RANK];
        // SAFETY: a structure of integers.
        let mut encoded = Encoded(unsafe { std::mem::zeroed() });
        // SAFETY: the arrays have room for the most dimensions there are, the output is aligned by its type, and
        // the driver does not read the memory at the address.
        let code = unsafe {
            (self.encode)(
                &mut encoded.0,
                self.data_type,
                self.map.rank,
                address as usize as *mut c_void,
                self.map.shape.as_ptr(),
                self.map.strides.as_ptr(),
                self.map.block.as_ptr(),
                ELEMENT_STRIDES.as_ptr(),
                Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                self.swizzle,
                Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                self.outside,
            )
        };
        match code {
            SUCCESS => Ok(encoded),
            code => Err(failed(self.api, "cuTensorMapEncodeTiled", code)),
        }
    }
}

/// The numbers of a map as values of the driver's enumerations.
fn numbers(map: &TensorMap) -> Result<(DataType, Swizzle)> {
    let wrong = |message: String| Err(Error::invalid_argument("launch_create", message));
    if !(1..=MAX_RANK as u32).contains(&map.rank) {
        let rank = map.rank;
        return wrong(format!(
            "a tensor map of {rank} dimensions; 1 to {MAX_RANK} are possible"
        ));
    }
    match (data_type(map.data_type), swizzle(map.swizzle)) {
        (Some(data_type), Some(swizzle)) => Ok((data_type, swizzle)),
        _ => wrong(format!(
            "a tensor map of data type {} and swizzle {}",
            map.data_type, map.swizzle
        )),
    }
}

fn data_type(number: u32) -> Option<DataType> {
    Some(match number {
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

fn swizzle(number: u32) -> Option<Swizzle> {
    Some(match number {
        0 => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        1 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        2 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        3 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => return None,
    })
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
        assert!(numbers(&map).is_ok());
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
            let error = numbers(&wrong).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
