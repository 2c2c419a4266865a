//! Launching a kernel whose function another library loaded, such as Triton or torch.
//!
//! Launches use the driver library of the vendor `cuda`, but need no open device of it.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use cudarc::driver::sys::{
    CUclusterSchedulingPolicy, CUcontext, CUfunction, CUfunction_attribute, CUlaunchAttribute,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUpointer_attribute, CUresult,
    CUstream,
};

use crate::error::{Error, Result};

use super::api::{Api, Code, SUCCESS};
use super::driver;
use super::error::{cuda, failed};
use super::tensor_map::Encoded;

/// The most parameters of a kernel: CUDA passes 4 KiB, and a parameter takes up to 8 bytes here.
pub const MAX_PARAMETERS: usize = 512;

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

impl Shape {
    fn check(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::invalid_argument("launch_create", message));
        let block = self.block;
        let threads = block.iter().map(|&n| u128::from(n)).product::<u128>();
        // The limits of every compute capability since 2.0.
        if !(1..=1024).contains(&threads) || block[2] > 64 {
            return wrong(format!(
                "a block of {block:?} threads; 1 to 1024 are possible, at most 64 of them in z"
            ));
        }
        let cluster = self.cluster;
        let blocks = cluster.iter().map(|&n| u128::from(n)).product::<u128>();
        if !(1..=16).contains(&blocks) {
            return wrong(format!(
                "a cluster of {cluster:?} blocks; 1 to 16 are possible"
            ));
        }
        Ok(())
    }

    fn cluster_blocks(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// The attributes of a launch, in Triton's order.
    fn attributes(&self) -> Box<[CUlaunchAttribute]> {
        use CUlaunchAttributeID as Id;
        let mut attributes = Vec::new();
        let mut add = |id, set: &dyn Fn(&mut CUlaunchAttributeValue)| {
            let mut value = CUlaunchAttributeValue { pad: [0; 64] };
            set(&mut value);
            let pad = [0; 4];
            attributes.push(CUlaunchAttribute { id, pad, value });
        };
        if self.pdl {
            let id = Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            add(id, &|value| {
                value.programmaticStreamSerializationAllowed = 1
            });
        }
        if self.cooperative {
            add(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &|value| {
                value.cooperative = 1;
            });
        }
        if self.cluster_blocks() != 1 {
            let [x, y, z] = self.cluster;
            add(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &|value| {
                value.clusterDim.x = x;
                value.clusterDim.y = y;
                value.clusterDim.z = z;
            });
            let id = Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
            add(id, &|value| {
                value.clusterSchedulingPolicyPreference =
                    CUclusterSchedulingPolicy::CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
            });
        }
        attributes.into()
    }
}

type LaunchKernelEx = unsafe extern "C" fn(
    *const CUlaunchConfig,
    CUfunction,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;

/// A loaded function with its launch configuration.
pub struct Kernel {
    api: &'static Api,
    launch: LaunchKernelEx,
    function: CUfunction,
    /// The context the function was loaded in.
    context: CUcontext,
    shape: Shape,
    attributes: Box<[CUlaunchAttribute]>,
    parameters: usize,
}

// SAFETY: the driver's handles may be used from every thread, and nothing is changed after `new`: the
// driver only reads attributes.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("function", &self.function)
            .field("shape", &self.shape)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// Checks that a function takes parameters of these sizes, in bytes, and can be launched with this shape.
    ///
    /// # Errors
    /// `InvalidArgument` when the sizes are not the function's, or the shape exceeds a limit; `Device`
    /// without a driver or a current context; `Unsupported` when the driver is older than CUDA 11.8.
    ///
    /// # Safety
    /// The function is loaded in the current context, and stays loaded as long as it is launched.
    pub unsafe fn new(function: u64, shape: Shape, sizes: &[u32]) -> Result<Self> {
        shape.check()?;
        if function == 0 {
            return Err(Error::invalid_argument(
                "launch_create",
                "the function is NULL",
            ));
        }
        if sizes.len() > MAX_PARAMETERS {
            return Err(Error::invalid_argument(
                "launch_create",
                format!("more than {MAX_PARAMETERS} parameters"),
            ));
        }
        let api = driver::initialize()?;
        let launch = api.cuLaunchKernelEx.ok_or_else(|| {
            Error::unsupported("launch_create", "the driver has no cuLaunchKernelEx")
                .with_hint("install a driver for CUDA 12")
        })?;
        let mut context = std::ptr::null_mut();
        // SAFETY: a valid output.
        unsafe { cuda!(api, cuCtxGetCurrent(&mut context)) }?;
        if context.is_null() {
            return Err(Error::device("launch_create", "no CUDA context is current")
                .with_hint("select the device the function was loaded on first"));
        }
        let function = function as usize as CUfunction;
        // SAFETY: the caller's promise.
        unsafe { compare(api, function, sizes)? };
        if shape.cluster_blocks() > 8 {
            let allowed = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            // SAFETY: a loaded function.
            unsafe { cuda!(api, cuFuncSetAttribute(function, allowed, 1)) }?;
        }
        Ok(Self {
            api,
            launch,
            function,
            context,
            shape,
            attributes: shape.attributes(),
            parameters: sizes.len(),
        })
    }

    /// Queues the kernel with one little-endian word for each parameter. The driver refuses a grid without
    /// blocks.
    ///
    /// # Errors
    /// The driver's; `InvalidArgument` for another number of words than parameters.
    ///
    /// # Safety
    /// The stream belongs to the function's context, and the kernel's memory accesses with these parameters
    /// are valid.
    #[inline]
    pub unsafe fn launch(&self, stream: u64, grid: [u32; 3], words: &[u64]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_with_maps(stream, grid, words, &[]) }
    }

    /// Launches as [`Self::launch`] does, with tensor maps for the parameters named in `maps`, whose words are not
    /// read.
    ///
    /// # Errors
    /// As [`Self::launch`].
    ///
    /// # Safety
    /// As [`Self::launch`], and the named parameters exist.
    #[inline]
    pub unsafe fn launch_with_maps(
        &self,
        stream: u64,
        grid: [u32; 3],
        words: &[u64],
        maps: &[(usize, Encoded)],
    ) -> Result<()> {
        if words.len() != self.parameters {
            return Err(self.another_number(words.len()));
        }
        if driver::is_forked() {
            return Err(Error::forked("cuLaunchKernelEx"));
        }
        let mut addresses = [MaybeUninit::<*mut c_void>::uninit(); MAX_PARAMETERS];
        for (address, word) in addresses.iter_mut().zip(words) {
            // The driver copies as many bytes as the parameter has, and writes nothing.
            address.write(std::ptr::from_ref(word).cast_mut().cast());
        }
        for (parameter, map) in maps {
            addresses[*parameter].write(std::ptr::from_ref(map).cast_mut().cast());
        }
        let [block_x, block_y, block_z] = self.shape.block;
        let config = CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: self.shape.shared_bytes,
            hStream: stream as usize as CUstream,
            attrs: self.attributes.as_ptr().cast_mut(),
            numAttrs: self.attributes.len() as u32,
        };
        let queue = || {
            // SAFETY: a loaded function, an address for each of its parameters, and a configuration that
            // outlives the call. The caller answers for the kernel's memory accesses.
            unsafe {
                (self.launch)(
                    &config,
                    self.function,
                    addresses.as_ptr().cast_mut().cast(),
                    std::ptr::null_mut(),
                )
            }
        };
        match queue() {
            SUCCESS => Ok(()),
            code => self.refused(code, queue),
        }
    }

    /// Handles a refused launch. On a thread that never called the CUDA runtime no context is current: the
    /// function's context is made current, as the runtime would do, and the launch is tried again. The refused
    /// launch has queued nothing.
    #[cold]
    fn refused(&self, mut code: Code, queue: impl Fn() -> Code) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: a valid output.
        let asked = unsafe { (self.api.cuCtxGetCurrent)(&mut current) };
        if code == CUresult::CUDA_ERROR_INVALID_CONTEXT as Code
            && asked == SUCCESS
            && current.is_null()
        {
            // SAFETY: the context of a loaded function.
            unsafe { cuda!(self.api, cuCtxSetCurrent(self.context)) }?;
            code = queue();
        }
        match code {
            SUCCESS => Ok(()),
            code => Err(failed(self.api, "cuLaunchKernelEx", code)),
        }
    }

    #[cold]
    fn another_number(&self, given: usize) -> Error {
        let expected = self.parameters;
        Error::invalid_argument(
            "cuLaunchKernelEx",
            format!("{given} parameters were given to a kernel of {expected}"),
        )
    }
}

/// The address by which kernels of the current context reach this memory; `None` when they cannot, as with
/// ordinary host memory. Asks the driver the same question as Triton does.
///
/// # Errors
/// The driver's.
pub fn device_address(address: u64) -> Result<Option<u64>> {
    let api = driver::initialize()?;
    let mut found = 0_u64;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
    // SAFETY: the attribute is an address, which `found` has room for; any value may be asked about.
    match unsafe { (api.cuPointerGetAttribute)((&raw mut found).cast(), attribute, address) } {
        SUCCESS => Ok(Some(found)),
        code if code == CUresult::CUDA_ERROR_INVALID_VALUE as Code => Ok(None),
        code => Err(failed(api, "cuPointerGetAttribute", code)),
    }
}

/// Compares sizes with the function's own, which a driver before CUDA 12.4 does not tell.
///
/// # Safety
/// The function is loaded.
unsafe fn compare(api: &Api, function: CUfunction, sizes: &[u32]) -> Result<()> {
    let Some(info) = api.cuFuncGetParamInfo else {
        return Ok(());
    };
    let mut own = Vec::with_capacity(sizes.len());
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: valid outputs and a loaded function.
        let code = unsafe { info(function, own.len(), &mut offset, &mut size) };
        // The index is beyond the last parameter.
        if code == CUresult::CUDA_ERROR_INVALID_VALUE as Code {
            break;
        }
        if code != SUCCESS {
            return Err(failed(api, "cuFuncGetParamInfo", code));
        }
        own.push(size);
    }
    let wrong = |message: String| Err(Error::invalid_argument("launch_create", message));
    if own.len() != sizes.len() {
        let (own, given) = (own.len(), sizes.len());
        return wrong(format!(
            "the function has {own} parameters, and {given} were given"
        ));
    }
    for (index, (own, given)) in own.iter().zip(sizes).enumerate() {
        if *own != *given as usize {
            return wrong(format!(
                "parameter {index} of the function has {own} bytes, and {given} were given"
            ));
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_cuda_accepts() {
        let shape = |block, cluster| Shape {
            block,
            cluster,
            ..Shape::default()
        };
        assert!(shape([1024, 1, 1], [16, 1, 1]).check().is_ok());
        for (block, cluster) in [
            ([0, 1, 1], [1; 3]),
            ([32, 33, 1], [1; 3]),
            ([1, 1, 65], [1; 3]),
            ([1; 3], [0, 1, 1]),
            ([1; 3], [17, 1, 1]),
            ([u32::MAX; 3], [1; 3]),
        ] {
            let shape = shape(block, cluster);
            let refused = shape
                .check()
                .is_err_and(|e| e.to_string().contains("possible"));
            assert!(refused, "{shape:?}");
        }
    }

    #[test]
    fn attributes_are_given_only_where_they_say_something() {
        use CUlaunchAttributeID as Id;
        let ids = |shape: Shape| shape.attributes().iter().map(|a| a.id).collect::<Vec<_>>();
        assert_eq!(ids(Shape::default()), []);
        let everything = Shape {
            cluster: [2, 1, 1],
            cooperative: true,
            pdl: true,
            ..Shape::default()
        };
        assert_eq!(
            ids(everything),
            [
                Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
            ]
        );
    }
}
