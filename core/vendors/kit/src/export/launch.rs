//! The functions of the table that launch kernels.

use std::ffi::{CStr, c_char, c_void};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::{
    MAX_PARAMETERS, ParameterType, Shape, TENSOR_MAP_BYTES, TensorMap,
};

use super::handle::{Instance, KernelHandle, ModuleHandle, device};
use super::outcome::{give, status};
use flagos_core::vendors::library::*;

// The functions below get live instances, modules and kernels, and valid outputs.

/// `FlagosVendor::module_load`.
pub(super) unsafe extern "C" fn module_load(
    instance: *mut FlagosVendorInstance,
    index: i32,
    image: *const c_void,
    nbytes: usize,
    out: *mut *mut FlagosVendorModule,
) -> i32 {
    // SAFETY: a live instance, an image of this size, and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let image = if image.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(image.cast(), nbytes)
            };
            let handle = ModuleHandle {
                module: instance.vendor.load_module(device(index), image)?,
                description: instance.description,
            };
            Ok(Box::into_raw(Box::new(handle)).cast())
        })
    }
}

/// `FlagosVendor::module_unload`.
pub(super) unsafe extern "C" fn module_unload(handle: *mut FlagosVendorModule) -> i32 {
    // SAFETY: made by `module_load`, and not used any more.
    let handle = unsafe { Box::from_raw(handle.cast::<ModuleHandle>()) };
    let description = handle.description;
    status(description, || {
        drop(handle);
        Ok(())
    })
}

/// `FlagosVendor::kernel_create`.
pub(super) unsafe extern "C" fn kernel_create(
    module: *mut FlagosVendorModule,
    name: *const c_char,
    options: *const FlagosVendorKernelOptions,
    out: *mut *mut FlagosVendorKernel,
) -> i32 {
    // SAFETY: a live module, a text, valid options and a valid output.
    unsafe {
        let module = ModuleHandle::of(module);
        give(module.description, out, || {
            if name.is_null() {
                return Err(Error::invalid_argument("kernel_create", "the name is NULL"));
            }
            let (shape, parameters) = read(options)?;
            let name = CStr::from_ptr(name);
            let kernel = module.module.kernel(name, &shape, &parameters)?;
            Ok(KernelHandle::give(
                kernel,
                parameters.len(),
                module.description,
            ))
        })
    }
}

/// `FlagosVendor::kernel_external`.
pub(super) unsafe extern "C" fn kernel_external(
    instance: *mut FlagosVendorInstance,
    function: *mut c_void,
    options: *const FlagosVendorKernelOptions,
    out: *mut *mut FlagosVendorKernel,
) -> i32 {
    // SAFETY: a live instance, a function that the user keeps loaded, valid options and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let (shape, parameters) = read(options)?;
            let launcher = instance.vendor.launcher()?;
            let kernel = launcher.kernel(function as u64, &shape, &parameters)?;
            Ok(KernelHandle::give(
                kernel,
                parameters.len(),
                instance.description,
            ))
        })
    }
}

/// `FlagosVendor::kernel_destroy`.
pub(super) unsafe extern "C" fn kernel_destroy(handle: *mut FlagosVendorKernel) -> i32 {
    // SAFETY: made by one of the two functions above, and not used any more.
    let handle = unsafe { Box::from_raw(handle.cast::<KernelHandle>()) };
    let description = handle.description;
    status(description, || {
        drop(handle);
        Ok(())
    })
}

/// `FlagosVendor::kernel_launch`.
pub(super) unsafe extern "C" fn kernel_launch(
    handle: *mut FlagosVendorKernel,
    stream: *mut c_void,
    grid: *const u32,
    words: *const u64,
) -> i32 {
    // SAFETY: a live kernel, three numbers, and as many words as the kernel has parameters. The user answers for the
    // stream and for what the kernel does.
    unsafe {
        let handle = KernelHandle::of(handle);
        status(handle.description, || {
            let words = if words.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(words, handle.parameters)
            };
            let grid = grid.cast::<[u32; 3]>().read();
            handle.kernel.launch(stream as u64, grid, words)
        })
    }
}

/// `FlagosVendor::memory_device_address`.
pub(super) unsafe extern "C" fn memory_device_address(
    instance: *mut FlagosVendorInstance,
    address: *mut c_void,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let found = instance.vendor.launcher()?.device_address(address as u64)?;
            Ok(found.unwrap_or_default() as usize as *mut c_void)
        })
    }
}

/// The options that a host gave.
///
/// # Safety
/// `options` is NULL or valid, with all that it points at.
unsafe fn read(options: *const FlagosVendorKernelOptions) -> Result<(Shape, Vec<ParameterType>)> {
    let wrong = |message: String| Error::invalid_argument("kernel", message);
    // SAFETY: the caller's promise.
    let Some(options) = (unsafe { options.as_ref() }) else {
        return Err(wrong("the options are NULL".into()));
    };
    let unknown =
        options.flags & !(FLAGOS_VENDOR_LAUNCH_COOPERATIVE | FLAGOS_VENDOR_LAUNCH_DEPENDENT);
    if unknown != 0 {
        let message = format!("the flags {unknown:#x} have no meaning here");
        return Err(Error::unsupported("kernel", message));
    }
    let count = options.num_parameters;
    if count > MAX_PARAMETERS || (count > 0 && options.parameters.is_null()) {
        return Err(wrong(format!(
            "{count} parameters at {:p}; at most {MAX_PARAMETERS} are possible",
            options.parameters
        )));
    }
    let shape = Shape {
        block: options.block,
        cluster: options.cluster,
        shared_bytes: options.shared_bytes,
        cooperative: options.flags & FLAGOS_VENDOR_LAUNCH_COOPERATIVE != 0,
        pdl: options.flags & FLAGOS_VENDOR_LAUNCH_DEPENDENT != 0,
    };
    let parameters = (0..count).map(|index| {
        // SAFETY: the caller's promise: `count` structs, each as long as the first says.
        let parameter = unsafe {
            let first = options.parameters;
            &*first.byte_add(index * (*first).struct_size)
        };
        // SAFETY: NULL or valid.
        let map = unsafe { parameter.map.as_ref() };
        match (map, parameter.size) {
            (None, size @ (1 | 2 | 4 | 8)) => Ok(ParameterType::Word(size)),
            (Some(map), TENSOR_MAP_BYTES) => Ok(ParameterType::TensorMap(tensor_map(map))),
            (_, size) => Err(wrong(format!("parameter {index} has {size} bytes"))),
        }
    });
    Ok((shape, parameters.collect::<Result<_>>()?))
}

fn tensor_map(map: &FlagosVendorTensorMap) -> TensorMap {
    TensorMap {
        data_type: map.data_type,
        rank: map.rank,
        shape: map.shape,
        strides: map.strides,
        block: map.block,
        swizzle: map.swizzle,
        fills_with_nan: map.fills_with_nan != 0,
    }
}
