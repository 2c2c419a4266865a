//! Launching kernels, whose functions this vendor or another library loaded, such as Triton or torch.
//!
//! Functions of other libraries need the driver library, but no open device of the vendor.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_uint, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUcontext, CUfunction, CUfunction_attribute, CUlaunchAttribute, CUlaunchConfig, CUmodule,
    CUpointer_attribute, CUresult, CUstream,
};
use parking_lot::Mutex;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::{
    Kernel, Launcher, MAX_PARAMETERS, Module, ParameterType, Shape,
};
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{Discarded, DriverDevice as _};

use super::api::{Api, Code, SUCCESS};
use super::device::Device;
use super::driver;
use super::error::failed;
use super::shape;
use super::tensor_map::{Encoded, Map};

/// The most tensor maps of a kernel.
const MAX_MAPS: usize = 8;

/// The dynamic shared memory, in bytes, that every function may have.
const STATIC_SHARED: u32 = 48 << 10;

type LaunchKernelEx = unsafe extern "C" fn(
    *const CUlaunchConfig,
    CUfunction,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;

/// The contexts of the functions that [`Launcher::load`] loaded, as addresses. Threads on which no context is current make
/// kernels of them, too.
static LOADED: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// The launcher of functions that other libraries loaded.
pub(super) static LAUNCHER: CudaLauncher = CudaLauncher;

/// See [`LAUNCHER`].
pub(super) struct CudaLauncher;

impl Launcher for CudaLauncher {
    /// As the trait says. Fails with `Device` without a driver or a current context, and with `Unsupported` when the driver
    /// is older than CUDA 11.8.
    unsafe fn kernel(
        &self,
        function: u64,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>> {
        let api = driver::initialize()?;
        let loaded_in = LOADED.lock().get(&function).copied();
        if let (None, Some(context)) = (current(api)?, loaded_in) {
            // SAFETY: a primary context, or one of a library that keeps its functions loaded.
            unsafe { call!(api, cuCtxSetCurrent(context as CUcontext)) }?;
        }
        let function = function as usize as CUfunction;
        // SAFETY: the caller's promise.
        let kernel = unsafe { CudaKernel::new(api, function, shape, parameters, None)? };
        Ok(Box::new(kernel))
    }

    /// As the trait says. Fails with `Device` without a driver.
    fn load(&self, device: i32, image: &[u8], name: &CStr, shared_bytes: u32) -> Result<u64> {
        let api = driver::initialize()?;
        if current(api)?.is_none() {
            let (mut handle, mut context) = (0, std::ptr::null_mut());
            // SAFETY: valid outputs. The primary context, which the CUDA runtime uses too, is kept as long as the process
            // lives, because the function is.
            unsafe {
                call!(api, cuDeviceGet(&mut handle, device))?;
                call!(api, cuDevicePrimaryCtxRetain(&mut context, handle))?;
                call!(api, cuCtxSetCurrent(context))?;
            }
        }
        let module = load(api, image)?;
        let loaded = function(api, module, name).and_then(|function| {
            if shared_bytes > STATIC_SHARED {
                let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                // SAFETY: a loaded function.
                unsafe { call!(api, cuFuncSetAttribute(function, most, shared_bytes as i32)) }
                    .map_err(|error| error.with_context("shared_bytes", shared_bytes))?;
            }
            Ok(function as usize as u64)
        });
        if loaded.is_err() {
            // SAFETY: a module of which nobody has a function. What is wrong is told by the first error.
            let _ = unsafe { (api.cuModuleUnload)(module) };
        }
        if let (Ok(function), Some(context)) = (&loaded, current(api)?) {
            LOADED.lock().insert(*function, context as usize);
        }
        loaded
    }

    /// Asks the driver the same question as Triton does.
    fn device_address(&self, address: u64) -> Result<Option<u64>> {
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
}

/// A program that was loaded for a device.
pub(super) struct CudaModule(Arc<Loaded>);

/// The handle of a module, which its kernels own too.
struct Loaded {
    device: Arc<Device>,
    handle: CUmodule,
}

// SAFETY: the driver's handles may be used from every thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl CudaModule {
    /// Loads PTX, a cubin or a fatbin.
    pub(super) fn load(device: &Arc<Device>, image: &[u8]) -> Result<Self> {
        let _entered = device.enter("load_module")?;
        let handle = load(device.api, image).map_err(|error| device.located(error))?;
        Ok(Self(Arc::new(Loaded {
            device: Arc::clone(device),
            handle,
        })))
    }
}

impl Loaded {
    fn function(&self, name: &CStr) -> Result<CUfunction> {
        function(self.device.api, self.handle, name)
    }
}

/// The context that is current on this thread.
fn current(api: &Api) -> Result<Option<CUcontext>> {
    let mut context = std::ptr::null_mut();
    // SAFETY: a valid output.
    unsafe { call!(api, cuCtxGetCurrent(&mut context)) }?;
    Ok((!context.is_null()).then_some(context))
}

/// Loads PTX, a cubin or a fatbin in the current context.
fn load(api: &Api, image: &[u8]) -> Result<CUmodule> {
    if image.is_empty() {
        let message = "the image is empty; PTX, a cubin or a fatbin is expected";
        return Err(Error::invalid_argument("load_module", message));
    }
    // PTX is a text, which has to end with NUL; of the others the driver knows the size.
    let image = [image, &[0]].concat();
    let mut handle = std::ptr::null_mut();
    // SAFETY: a valid output, and an image that ends with NUL.
    unsafe { call!(api, cuModuleLoadData(&mut handle, image.as_ptr().cast())) }
        .map_err(|error| error.with_context("bytes", image.len() - 1))?;
    Ok(handle)
}

/// The function of a loaded module.
fn function(api: &Api, module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let mut function = std::ptr::null_mut();
    // SAFETY: a valid output, a loaded module, and a name.
    let code = unsafe { (api.cuModuleGetFunction)(&mut function, module, name.as_ptr()) };
    match code {
        SUCCESS => Ok(function),
        code if code == CUresult::CUDA_ERROR_NOT_FOUND as Code => {
            let message = format!("the module has no kernel `{}`", name.to_string_lossy());
            Err(Error::invalid_argument("module_kernel", message)
                .with_hint("kernels of PTX are declared with .visible .entry"))
        }
        code => Err(failed(api, "cuModuleGetFunction", code)),
    }
}

impl Module for CudaModule {
    fn kernel(
        &self,
        name: &CStr,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>> {
        let Loaded { device, .. } = &*self.0;
        let _entered = device.enter("module_kernel")?;
        let kernel = self.0.function(name).and_then(|function| {
            let owner = Some(Arc::clone(&self.0));
            // SAFETY: a function of the module, which the kernel keeps loaded.
            unsafe { CudaKernel::new(device.api, function, shape, parameters, owner) }
        });
        Ok(Box::new(kernel.map_err(|error| device.located(error))?))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.device.discard(Discarded::Module(self.handle.cast()));
    }
}

/// A loaded function with its launch configuration.
struct CudaKernel {
    api: &'static Api,
    launch: LaunchKernelEx,
    function: CUfunction,
    /// The context the function was loaded in.
    context: CUcontext,
    shape: Shape,
    attributes: Box<[CUlaunchAttribute]>,
    parameters: usize,
    /// The tensor maps among the parameters, each with its index.
    maps: Box<[(usize, Map)]>,
    /// The module of the function, unless another library loaded it. Its device becomes current for a launch.
    module: Option<Arc<Loaded>>,
}

// SAFETY: the driver's handles may be used from every thread, and nothing is changed after `new`: the
// driver only reads attributes.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

impl std::fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaKernel")
            .field("function", &self.function)
            .field("shape", &self.shape)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

impl CudaKernel {
    /// Checks that a function takes these parameters, and can be launched with this shape.
    ///
    /// # Safety
    /// The function is loaded in the current context, and stays loaded as long as it is launched.
    unsafe fn new(
        api: &'static Api,
        function: CUfunction,
        shape: &Shape,
        parameters: &[ParameterType],
        module: Option<Arc<Loaded>>,
    ) -> Result<Self> {
        shape::check(shape)?;
        let wrong = |message: String| Err(Error::invalid_argument("launch_create", message));
        if function.is_null() {
            return wrong("the function is NULL".into());
        }
        if parameters.len() > MAX_PARAMETERS {
            return wrong(format!("more than {MAX_PARAMETERS} parameters"));
        }
        let maps: Vec<_> = (parameters.iter().enumerate())
            .filter_map(|(index, parameter)| match parameter {
                ParameterType::Word(_) => None,
                ParameterType::TensorMap(map) => Some((index, map)),
            })
            .collect();
        if maps.len() > MAX_MAPS {
            let maps = maps.len();
            return wrong(format!(
                "{maps} tensor maps; at most {MAX_MAPS} are supported"
            ));
        }
        let maps = maps
            .into_iter()
            .map(|(index, map)| match Map::new(api, map) {
                Ok(map) => Ok((index, map)),
                Err(error) => Err(error.with_context("parameter", index)),
            });
        let maps = maps.collect::<Result<Box<[_]>>>()?;
        let launch = api.cuLaunchKernelEx.ok_or_else(|| {
            Error::unsupported("launch_create", "the driver has no cuLaunchKernelEx")
                .with_hint("install a driver for CUDA 12")
        })?;
        let mut context = std::ptr::null_mut();
        // SAFETY: a valid output.
        unsafe { call!(api, cuCtxGetCurrent(&mut context)) }?;
        if context.is_null() {
            return Err(Error::device("launch_create", "no CUDA context is current")
                .with_hint("select the device the function was loaded on first"));
        }
        // SAFETY: the caller's promise.
        unsafe { compare(api, function, parameters)? };
        if shape::cluster_blocks(shape) > 8 {
            let allowed = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            // SAFETY: a loaded function.
            unsafe { call!(api, cuFuncSetAttribute(function, allowed, 1)) }?;
        }
        Ok(Self {
            api,
            launch,
            function,
            context,
            shape: *shape,
            attributes: shape::attributes(shape),
            parameters: parameters.len(),
            maps,
            module,
        })
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
            unsafe { call!(self.api, cuCtxSetCurrent(self.context)) }?;
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

impl Kernel for CudaKernel {
    fn check_grid(&self, grid: [u32; 3]) -> Result<()> {
        shape::check_grid(grid)
    }

    /// As the trait says. The driver refuses a grid without blocks.
    unsafe fn launch(&self, stream: u64, grid: [u32; 3], words: &[u64]) -> Result<()> {
        if words.len() != self.parameters {
            return Err(self.another_number(words.len()));
        }
        if driver::PROCESS.is_forked() {
            return Err(Error::forked("cuLaunchKernelEx"));
        }
        let mut addresses = [MaybeUninit::<*mut c_void>::uninit(); MAX_PARAMETERS];
        for (address, word) in addresses.iter_mut().zip(words) {
            // The driver copies as many bytes as the parameter has, and writes nothing.
            address.write(std::ptr::from_ref(word).cast_mut().cast());
        }
        let mut encoded = [MaybeUninit::<Encoded>::uninit(); MAX_MAPS];
        for ((parameter, map), room) in self.maps.iter().zip(&mut encoded) {
            let map = room.write(map.encode(words[*parameter])?);
            addresses[*parameter].write(std::ptr::from_mut(map).cast());
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
            numAttrs: self.attributes.len() as c_uint,
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
        let module = self.module.as_deref();
        let _entered = match module {
            Some(module) => Some(module.device.enter("cuLaunchKernelEx")?),
            None => None,
        };
        match queue() {
            SUCCESS => Ok(()),
            code => self.refused(code, queue),
        }
    }
}

/// Compares parameters with the function's own, which a driver before CUDA 12.4 does not tell.
///
/// # Safety
/// The function is loaded.
unsafe fn compare(api: &Api, function: CUfunction, parameters: &[ParameterType]) -> Result<()> {
    let Some(info) = api.cuFuncGetParamInfo else {
        return Ok(());
    };
    let mut own = Vec::with_capacity(parameters.len());
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
    if own.len() != parameters.len() {
        let (own, given) = (own.len(), parameters.len());
        return wrong(format!(
            "the function has {own} parameters, and {given} were given"
        ));
    }
    for (index, (own, given)) in own.iter().zip(parameters).enumerate() {
        let given = given.size();
        if *own != given as usize {
            return wrong(format!(
                "parameter {index} of the function has {own} bytes, and {given} were given"
            ));
        }
    }
    Ok(())
}
