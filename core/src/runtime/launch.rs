//! Launching compiled kernels: a capability that a vendor may have.
//!
//! A kernel is checked once, when it is made of a loaded function and the shape of its launches, and then launched many
//! times: a launch is one virtual call. The function comes from a [`Module`] of the vendor, or from another library of
//! the process, such as Triton, which loaded it by the vendor's own library ([`Launcher`]).

use std::ffi::CStr;
use std::fmt::Debug;

use crate::error::{Error, Result};

/// The most parameters of a kernel: 4 KiB of 8 bytes each.
pub const MAX_PARAMETERS: usize = 512;

/// The most dimensions of a tensor map.
pub const MAX_RANK: usize = 5;

/// Bytes of a tensor map among the parameters of a kernel.
pub const TENSOR_MAP_BYTES: u32 = 128;

/// The configuration of a kernel's launches: everything except grid, stream and parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Threads of a block, along each axis.
    pub block: [u32; 3],
    /// Blocks of a cluster, along each axis; all 1 for no clusters. Clusters are spread over the device, as Triton
    /// has them.
    pub cluster: [u32; 3],
    /// Dynamic shared memory in bytes. The function's own limit must already allow them.
    pub shared_bytes: u32,
    /// Whether the launch is cooperative: all blocks run at the same time.
    pub cooperative: bool,
    /// Whether the launch is a programmatic dependent launch.
    pub pdl: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            block: [1; 3],
            cluster: [1; 3],
            shared_bytes: 0,
            cooperative: false,
            pdl: false,
        }
    }
}

/// A tensor without its address, from which the vendor makes the descriptor by which its copy engine finds the blocks of
/// the tensor. Dimensions are in the vendor's order: the one whose elements lie side by side first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap {
    /// The vendor's number of the elements' type.
    pub data_type: u32,
    /// Dimensions, 1 to 5.
    pub rank: u32,
    /// Elements along each.
    pub shape: [u64; MAX_RANK],
    /// Bytes from one element to the next along each dimension but the first.
    pub strides: [u64; MAX_RANK],
    /// Elements of a block along each dimension.
    pub block: [u32; MAX_RANK],
    /// The vendor's number of the order in which a block lies in shared memory.
    pub swizzle: u32,
    /// Whether elements outside the tensor read as NaN instead of zero.
    pub fills_with_nan: bool,
}

/// A parameter of a kernel, without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// A number or an address of this many bytes: 1, 2, 4 or 8.
    Word(u32),
    /// A tensor map of [`TENSOR_MAP_BYTES`].
    TensorMap(TensorMap),
}

impl ParameterType {
    /// Bytes of the parameter.
    #[must_use]
    pub const fn size(&self) -> u32 {
        match self {
            Self::Word(size) => *size,
            Self::TensorMap(_) => TENSOR_MAP_BYTES,
        }
    }
}

/// Launches functions that another library of the process loaded.
pub trait Launcher: Send + Sync {
    /// The kernel of a function, given by its handle in the vendor's own library.
    ///
    /// Fails with `InvalidArgument` when the parameters are not the function's, where the vendor can tell, or when the
    /// shape exceeds a limit; with `Unsupported` for tensor maps of a vendor that has none.
    ///
    /// # Safety
    /// The function is loaded on the device that is current in the vendor's own library on this thread, and stays loaded
    /// as long as the kernel is launched.
    unsafe fn kernel(
        &self,
        function: u64,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>>;

    /// The handle, in the vendor's own library, of a function of a program, which is loaded on the device that is current
    /// there on this thread, and stays loaded as long as the process lives. On a thread where none is, `device` becomes
    /// current, as its number in that library. Launches of the function may have this much dynamic shared memory, in bytes.
    ///
    /// Fails with `InvalidArgument` when the image has no such function, with `Device` for an image that is not of this
    /// device, and with `Unsupported` where the vendor loads none.
    fn load(&self, device: i32, image: &[u8], name: &CStr, shared_bytes: u32) -> Result<u64> {
        let _ = (device, image, name, shared_bytes);
        Err(Error::unsupported(
            "function_load",
            "this vendor loads no functions",
        ))
    }

    /// The address by which kernels of the current device reach this memory; `None` when they do not, as with ordinary
    /// host memory of most vendors.
    fn device_address(&self, address: u64) -> Result<Option<u64>>;
}

/// A program that the vendor loaded on one device. It is unloaded after its last kernel.
pub trait Module: Send + Sync {
    /// The kernel of the function of this name. Fails as [`Launcher::kernel`], and with `InvalidArgument` when there is
    /// no such function.
    fn kernel(
        &self,
        name: &CStr,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>>;
}

/// A function with the shape of its launches.
pub trait Kernel: Debug + Send + Sync {
    /// Fails with `InvalidArgument` for a grid that no launch can have. A vendor may also refuse a grid at the launch
    /// alone.
    fn check_grid(&self, grid: [u32; 3]) -> Result<()> {
        let _ = grid;
        Ok(())
    }

    /// Queues the kernel on a stream, given by its handle in the vendor's own library, over a grid of blocks, which are
    /// counted singly and not in clusters. There is a word for each parameter: a number in its lowest bytes, an address,
    /// and for a tensor map the address of the tensor.
    ///
    /// Fails with `InvalidArgument` for another number of words than parameters.
    ///
    /// # Safety
    /// The stream is alive and belongs to the kernel's device, the kernel lives until it has run, and its accesses to
    /// memory with these parameters are valid.
    unsafe fn launch(&self, stream: u64, grid: [u32; 3], words: &[u64]) -> Result<()>;
}
