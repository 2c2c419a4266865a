//! Modules and kernels of a library.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::runtime::launch::{Kernel, MAX_PARAMETERS, Module, ParameterType, Shape, TensorMap};

use super::call::{call, give_back};
use super::instance::Instance;
use super::queue::Cut;
use super::types::*;

/// A module of a library. Its kernels own it.
pub(super) struct LibraryModule(Arc<Loaded>);

struct Loaded {
    instance: Arc<Instance>,
    handle: *mut FlagosVendorModule,
}

// SAFETY: the library's handles may be used from every thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl LibraryModule {
    pub(super) fn load(instance: &Arc<Instance>, device: usize, image: &[u8]) -> Result<Self> {
        let index = instance.device(device)?;
        if image.is_empty() {
            return Err(Error::invalid_argument(
                "module_load",
                "the image is empty; a program in the vendor's format is expected",
            ));
        }
        let mut handle = std::ptr::null_mut();
        let (start, nbytes) = (image.as_ptr().cast(), image.len());
        // SAFETY: a device of the instance, an image of this size, and a valid output.
        unsafe {
            call!(
                instance,
                module_load(instance.context, index, start, nbytes, &mut handle)
            )
        }
        .map_err(|error| error.with_context("bytes", nbytes))?;
        if handle.is_null() {
            return Err(instance.library.broken("module_load", "no module"));
        }
        let instance = Arc::clone(instance);
        Ok(Self(Arc::new(Loaded { instance, handle })))
    }
}

impl Module for LibraryModule {
    fn kernel(
        &self,
        name: &CStr,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>> {
        let Loaded { instance, handle } = &*self.0;
        let mut kernel = std::ptr::null_mut();
        // SAFETY: a live module, a name, and a valid output; the kernel keeps the module loaded.
        let made = with_options(shape, parameters, |options| unsafe {
            call!(
                instance,
                kernel_create(*handle, name.as_ptr(), options, &mut kernel)
            )
        });
        made?;
        let module = Some(Arc::clone(&self.0));
        LibraryKernel::adopt(instance, "kernel_create", kernel, parameters.len(), module)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: a live module, which has no other user.
        unsafe {
            give_back!(self.instance, module_unload(self.handle));
        }
    }
}

/// A kernel of a library.
struct LibraryKernel {
    instance: Arc<Instance>,
    handle: *mut FlagosVendorKernel,
    parameters: usize,
    /// Dropped after the kernel.
    _module: Option<Arc<Loaded>>,
}

// SAFETY: as for `Loaded`.
unsafe impl Send for LibraryKernel {}
// SAFETY: as above.
unsafe impl Sync for LibraryKernel {}

impl std::fmt::Debug for LibraryKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LibraryKernel")
            .field("handle", &self.handle)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

impl LibraryKernel {
    /// The kernel that `function` of the library wrote.
    fn adopt(
        instance: &Arc<Instance>,
        function: &'static str,
        handle: *mut FlagosVendorKernel,
        parameters: usize,
        module: Option<Arc<Loaded>>,
    ) -> Result<Box<dyn Kernel>> {
        if handle.is_null() {
            return Err(instance.library.broken(function, "no kernel"));
        }
        Ok(Box::new(Self {
            instance: Arc::clone(instance),
            handle,
            parameters,
            _module: module,
        }))
    }

    #[cold]
    fn another_number(&self, given: usize) -> Error {
        let expected = self.parameters;
        let message = format!("{given} parameters were given to a kernel of {expected}");
        Error::invalid_argument("kernel_launch", message)
    }
}

impl Kernel for LibraryKernel {
    unsafe fn launch(&self, stream: u64, grid: [u32; 3], words: &[u64]) -> Result<()> {
        if words.len() != self.parameters {
            return Err(self.another_number(words.len()));
        }
        let stream = stream as usize as *mut c_void;
        self.instance.drain(Cut::Other);
        // SAFETY: a live kernel, as many words as it has parameters, and the caller's promise.
        unsafe {
            call!(
                self.instance,
                kernel_launch(self.handle, stream, grid.as_ptr(), words.as_ptr())
            )
        }
    }
}

impl Drop for LibraryKernel {
    fn drop(&mut self) {
        // SAFETY: a live kernel, which has no other user.
        unsafe {
            give_back!(self.instance, kernel_destroy(self.handle));
        }
    }
}

/// The kernel of a function of the vendor's own library.
///
/// # Safety
/// As [`crate::runtime::launch::Launcher::kernel`].
pub(super) unsafe fn external(
    instance: &Arc<Instance>,
    function: u64,
    shape: &Shape,
    parameters: &[ParameterType],
) -> Result<Box<dyn Kernel>> {
    let function = function as usize as *mut c_void;
    if function.is_null() {
        return Err(Error::invalid_argument(
            "kernel_external",
            "the function is NULL",
        ));
    }
    let mut kernel = std::ptr::null_mut();
    // SAFETY: the caller's promise, and a valid output.
    let made = with_options(shape, parameters, |options| unsafe {
        call!(
            instance,
            kernel_external(instance.context, function, options, &mut kernel)
        )
    });
    made?;
    LibraryKernel::adopt(instance, "kernel_external", kernel, parameters.len(), None)
}

/// Calls `make` with the options of a kernel.
fn with_options<T>(
    shape: &Shape,
    parameters: &[ParameterType],
    make: impl FnOnce(&FlagosVendorKernelOptions) -> Result<T>,
) -> Result<T> {
    if parameters.len() > MAX_PARAMETERS {
        let message = format!("more than {MAX_PARAMETERS} parameters");
        return Err(Error::invalid_argument("kernel", message));
    }
    let maps: Box<[_]> = parameters.iter().map(map).collect();
    let parameters: Box<[_]> = parameters
        .iter()
        .zip(&maps)
        .map(|(parameter, map)| FlagosVendorParameter {
            struct_size: size_of::<FlagosVendorParameter>(),
            map: map.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            size: parameter.size(),
            reserved_word: 0,
        })
        .collect();
    let mut flags = 0;
    if shape.cooperative {
        flags |= FLAGOS_VENDOR_LAUNCH_COOPERATIVE;
    }
    if shape.pdl {
        flags |= FLAGOS_VENDOR_LAUNCH_DEPENDENT;
    }
    make(&FlagosVendorKernelOptions {
        struct_size: size_of::<FlagosVendorKernelOptions>(),
        block: shape.block,
        cluster: shape.cluster,
        shared_bytes: shape.shared_bytes,
        flags,
        parameters: parameters.as_ptr(),
        num_parameters: parameters.len(),
        reserved: [std::ptr::null(); 8],
    })
}

/// The description of a parameter's tensor, if it is a tensor map.
fn map(parameter: &ParameterType) -> Option<FlagosVendorTensorMap> {
    let ParameterType::TensorMap(map) = parameter else {
        return None;
    };
    let TensorMap {
        data_type,
        rank,
        shape,
        strides,
        block,
        swizzle,
        fills_with_nan,
    } = *map;
    Some(FlagosVendorTensorMap {
        struct_size: size_of::<FlagosVendorTensorMap>(),
        data_type,
        rank,
        shape,
        strides,
        block,
        swizzle,
        fills_with_nan: fills_with_nan.into(),
        reserved_word: 0,
    })
}
