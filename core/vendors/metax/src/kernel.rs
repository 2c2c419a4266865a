//! Launching kernels, whose functions this vendor or another library loaded, such as Triton.
//!
//! The runtime tells nothing of a function's parameters, so that their number is the caller's promise.

use std::ffi::{CStr, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::{
    Kernel, Launcher, MAX_PARAMETERS, Module, ParameterType, Shape,
};
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{Discarded, DriverDevice as _};

use super::api::{Api, Handle, POINTER_DEVICE_ADDRESS, SUCCESS};
use super::device::Device;
use super::driver;
use super::error::{INVALID_VALUE, NOT_FOUND, failed};

/// The launcher of functions that other libraries loaded.
pub(super) static LAUNCHER: MetaxLauncher = MetaxLauncher;

/// See [`LAUNCHER`].
pub(super) struct MetaxLauncher;

impl Launcher for MetaxLauncher {
    unsafe fn kernel(
        &self,
        function: u64,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>> {
        let (api, _) = driver::initialize()?;
        let function = function as usize as Handle;
        Ok(Box::new(MetaxKernel::new(
            api, function, shape, parameters, None,
        )?))
    }

    /// Asks the runtime the same question as MetaX's Triton does.
    fn device_address(&self, address: u64) -> Result<Option<u64>> {
        let (api, _) = driver::initialize()?;
        let ask = api
            .mcPointerGetAttribute
            .ok_or_else(|| api.lacks("mcPointerGetAttribute"))?;
        let mut found = 0_u64;
        let asked = address as usize as *mut c_void;
        // SAFETY: the attribute is an address, which `found` has room for; any value may be asked about.
        match unsafe { ask((&raw mut found).cast(), POINTER_DEVICE_ADDRESS, asked) } {
            SUCCESS => Ok(Some(found)),
            INVALID_VALUE => {
                api.forget_failure();
                Ok(None)
            }
            code => Err(failed(api, "mcPointerGetAttribute", code)),
        }
    }
}

/// A program that was loaded for a device.
pub(super) struct MetaxModule(Arc<Loaded>);

/// The handle of a module, which its kernels own too.
struct Loaded {
    device: Arc<Device>,
    handle: Handle,
}

// SAFETY: the runtime's handles may be used from every thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl MetaxModule {
    /// Loads a program of MACA's compiler.
    pub(super) fn load(device: &Arc<Device>, image: &[u8]) -> Result<Self> {
        if image.is_empty() {
            let message = "the image is empty; a program of MACA's compiler (mcfatbin) is expected";
            return Err(Error::invalid_argument("load_module", message));
        }
        // The runtime is not told the size, and a text would have to end with NUL.
        let image = [image, &[0]].concat();
        let mut handle = null_mut();
        let _entered = device.enter("load_module")?;
        // SAFETY: a valid output, and an image that ends with NUL.
        unsafe {
            call!(
                device.api,
                mcModuleLoadData(&mut handle, image.as_ptr().cast())
            )
        }
        .map_err(|error| device.located(error).with_context("bytes", image.len() - 1))?;
        Ok(Self(Arc::new(Loaded {
            device: Arc::clone(device),
            handle,
        })))
    }
}

impl Loaded {
    fn function(&self, name: &CStr) -> Result<Handle> {
        let api = self.device.api;
        let mut function = null_mut();
        // SAFETY: a valid output, a loaded module, and a name.
        match unsafe { (api.mcModuleGetFunction)(&mut function, self.handle, name.as_ptr()) } {
            SUCCESS => Ok(function),
            NOT_FOUND => {
                api.forget_failure();
                let message = format!("the module has no kernel `{}`", name.to_string_lossy());
                Err(Error::invalid_argument("module_kernel", message)
                    .with_hint("give the name that the compiler gave it, as of extern \"C\""))
            }
            code => Err(failed(api, "mcModuleGetFunction", code)),
        }
    }
}

impl Module for MetaxModule {
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
            MetaxKernel::new(device.api, function, shape, parameters, owner)
        });
        Ok(Box::new(kernel.map_err(|error| device.located(error))?))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.device.discard(Discarded::Module(self.handle));
    }
}

/// A loaded function with its launch configuration.
struct MetaxKernel {
    api: &'static Api,
    function: Handle,
    shape: Shape,
    parameters: usize,
    /// The module of the function, unless another library loaded it. Its device becomes current for a launch.
    module: Option<Arc<Loaded>>,
}

// SAFETY: the runtime's handles may be used from every thread, and nothing is changed after `new`.
unsafe impl Send for MetaxKernel {}
// SAFETY: as above.
unsafe impl Sync for MetaxKernel {}

impl std::fmt::Debug for MetaxKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaxKernel")
            .field("function", &self.function)
            .field("shape", &self.shape)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

/// Fails for a shape that no device of MetaX launches.
fn check_shape(shape: &Shape) -> Result<()> {
    let wrong = |message: String| Err(Error::invalid_argument("launch_create", message));
    let threads = shape.block.iter().map(|&n| u128::from(n)).product::<u128>();
    if !(1..=1024).contains(&threads) {
        let block = shape.block;
        return wrong(format!(
            "a block of {block:?} threads; 1 to 1024 are possible"
        ));
    }
    let lacks = |what: &str| {
        let message = format!("mcModuleLaunchKernel has no {what}");
        Err(Error::unsupported("launch_create", message))
    };
    match (shape.cluster, shape.cooperative, shape.pdl) {
        ([1, 1, 1], false, false) => Ok(()),
        (_, true, _) => lacks("cooperative launches"),
        (_, _, true) => lacks("programmatic dependent launches"),
        _ => lacks("clusters of blocks"),
    }
}

impl MetaxKernel {
    fn new(
        api: &'static Api,
        function: Handle,
        shape: &Shape,
        parameters: &[ParameterType],
        module: Option<Arc<Loaded>>,
    ) -> Result<Self> {
        check_shape(shape)?;
        let wrong = |message: String| Err(Error::invalid_argument("launch_create", message));
        if function.is_null() {
            return wrong("the function is NULL".into());
        }
        if parameters.len() > MAX_PARAMETERS {
            return wrong(format!("more than {MAX_PARAMETERS} parameters"));
        }
        let is_map = |parameter: &ParameterType| matches!(parameter, ParameterType::TensorMap(_));
        if let Some(index) = parameters.iter().position(is_map) {
            let message = "devices of MetaX have no tensor maps";
            return Err(
                Error::unsupported("launch_create", message).with_context("parameter", index)
            );
        }
        Ok(Self {
            api,
            function,
            shape: *shape,
            parameters: parameters.len(),
            module,
        })
    }
}

impl Kernel for MetaxKernel {
    /// As the trait says.
    unsafe fn launch(&self, stream: u64, grid: [u32; 3], words: &[u64]) -> Result<()> {
        if words.len() != self.parameters {
            let (given, expected) = (words.len(), self.parameters);
            let message = format!("{given} parameters were given to a kernel of {expected}");
            return Err(Error::invalid_argument("mcModuleLaunchKernel", message));
        }
        if driver::PROCESS.is_forked() {
            return Err(Error::forked("mcModuleLaunchKernel"));
        }
        let mut addresses = [MaybeUninit::<*mut c_void>::uninit(); MAX_PARAMETERS];
        for (address, word) in addresses.iter_mut().zip(words) {
            // The runtime copies as many bytes as the parameter has, and writes nothing.
            address.write(std::ptr::from_ref(word).cast_mut().cast());
        }
        let [block_x, block_y, block_z]: [c_uint; 3] = self.shape.block;
        let _entered = match self.module.as_deref() {
            Some(module) => Some(module.device.enter("mcModuleLaunchKernel")?),
            None => None,
        };
        // SAFETY: a loaded function, and an address for each of its parameters, by the caller's promise, who also answers
        // for the kernel's accesses to memory.
        unsafe {
            call!(
                self.api,
                mcModuleLaunchKernel(
                    self.function,
                    grid[0],
                    grid[1],
                    grid[2],
                    block_x,
                    block_y,
                    block_z,
                    self.shape.shared_bytes,
                    stream as usize as Handle,
                    addresses.as_mut_ptr().cast(),
                    null_mut(),
                )
            )
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_that_mcmodulelaunchkernel_has() {
        let shape = Shape {
            block: [1024, 1, 1],
            ..Shape::default()
        };
        assert!(check_shape(&shape).is_ok());
        for (wrong, says) in [
            (
                Shape {
                    block: [0, 1, 1],
                    ..shape
                },
                "1 to 1024 are possible",
            ),
            (
                Shape {
                    block: [u32::MAX; 3],
                    ..shape
                },
                "1 to 1024 are possible",
            ),
            (
                Shape {
                    cluster: [2, 1, 1],
                    ..shape
                },
                "no clusters",
            ),
            (
                Shape {
                    cooperative: true,
                    ..shape
                },
                "no cooperative launches",
            ),
            (
                Shape { pdl: true, ..shape },
                "no programmatic dependent launches",
            ),
        ] {
            let error = check_shape(&wrong).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
