//! Entries about launches of kernels.

use std::ffi::{CStr, c_char, c_void};

use crate::error::{Error, Result};
use crate::kernels::{Launch, LaunchSpec, Parameter};
use crate::runtime::launch::{Launcher, Shape, TENSOR_MAP_BYTES, TensorMap};
use crate::runtime::process;

use super::status::{give, null, quietly, status};
use super::types::{
    FLAGOS_LAUNCH_COOPERATIVE, FLAGOS_LAUNCH_PDL, FlagosLaunch, FlagosLaunchDesc, FlagosLaunchParam,
};

/// `FlagosApi::launch_create`.
///
/// # Safety
/// `desc` is NULL or describes a function loaded on the current device, with as many parameters behind
/// `params` as it says; `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn create(
    desc: *const FlagosLaunchDesc,
    out: *mut *mut FlagosLaunch,
) -> i32 {
    status(|| {
        if desc.is_null() || out.is_null() {
            return Err(null("the description or the output"));
        }
        // SAFETY: the caller's promise.
        let desc = unsafe { &*desc };
        // SAFETY: the caller's promise.
        let params = unsafe { slice(desc.params, desc.num_params, "params")? };
        let shape = Shape {
            block: desc.block,
            cluster: desc.cluster,
            shared_bytes: desc.shared_bytes,
            ..Shape::default()
        };
        let parameters = params.iter().enumerate().map(parameter);
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        let spec = LaunchSpec {
            function: desc.function,
            grid: desc.grid,
            shape: with_flags(shape, desc.flags)?,
            parameters: &parameters,
        };
        // SAFETY: the caller's promise.
        let launch = unsafe { Launch::new(launcher("launch_create")?, &spec)? };
        // SAFETY: the caller's promise.
        unsafe { give(out, Box::into_raw(Box::new(FlagosLaunch { launch }))) }
    })
}

/// `FlagosApi::function_load`.
///
/// # Safety
/// `image` is NULL or has `nbytes` bytes; `name` is NULL or ends with NUL; `function` is NULL or valid for writing.
pub(super) unsafe extern "C" fn load(
    device: i32,
    image: *const c_void,
    nbytes: usize,
    name: *const c_char,
    shared_bytes: u32,
    function: *mut u64,
) -> i32 {
    status(|| {
        if name.is_null() || function.is_null() {
            return Err(null("the name or the output"));
        }
        // SAFETY: the caller's promise.
        let (image, name) =
            unsafe { (slice(image.cast(), nbytes, "image")?, CStr::from_ptr(name)) };
        let loaded = launcher("function_load")?.load(device, image, name, shared_bytes)?;
        // SAFETY: the caller's promise.
        unsafe { function.write(loaded) };
        Ok(())
    })
}

/// The launcher of the vendor in use.
pub(super) fn launcher(operation: &'static str) -> Result<&'static dyn Launcher> {
    process::require(operation)?.vendor().launcher()
}

/// The shape with the attributes that the bits `FLAGOS_LAUNCH_*` name.
pub(super) fn with_flags(shape: Shape, flags: u32) -> Result<Shape> {
    let unknown = flags & !(FLAGOS_LAUNCH_COOPERATIVE | FLAGOS_LAUNCH_PDL);
    if unknown != 0 {
        let message = format!("unknown flags {unknown:#x}");
        return Err(Error::invalid_argument("launch_create", message));
    }
    Ok(Shape {
        cooperative: flags & FLAGOS_LAUNCH_COOPERATIVE != 0,
        pdl: flags & FLAGOS_LAUNCH_PDL != 0,
        ..shape
    })
}

fn parameter((index, param): (usize, &FlagosLaunchParam)) -> Result<Parameter> {
    let wrong = |message: String| {
        let error = Error::invalid_argument("launch_create", message);
        Err(error.with_context("parameter", index))
    };
    // SAFETY: the caller of `create` promises that it is NULL or valid.
    if let Some(map) = unsafe { param.map.as_ref() } {
        if param.pointer < 0 || param.size != TENSOR_MAP_BYTES {
            return wrong("a tensor map needs a pointer and a size of 128 bytes".to_string());
        }
        return Ok(Parameter::TensorMap {
            index: param.pointer as usize,
            offset: param.value,
            map: TensorMap {
                data_type: map.data_type,
                rank: map.rank,
                shape: map.shape,
                strides: map.strides,
                block: map.block,
                swizzle: map.swizzle,
                fills_with_nan: map.fills_with_nan != 0,
            },
        });
    }
    match (param.pointer, param.size) {
        (-1, size) => Ok(Parameter::Constant {
            size,
            value: param.value,
        }),
        (pointer, _) if pointer < 0 => {
            wrong(format!("pointer {pointer} is not an index; -1 means none"))
        }
        (pointer, 8) => Ok(Parameter::Pointer {
            index: pointer as usize,
            offset: param.value,
        }),
        (_, size) => wrong(format!("a pointer of {size} bytes; pointers have 8")),
    }
}

/// The slice that a caller passed as address and length.
///
/// # Safety
/// `data` is NULL, or the address of `length` values that live for `'a`.
pub(super) unsafe fn slice<'a, T>(data: *const T, length: usize, what: &str) -> Result<&'a [T]> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(what)),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data, length) }),
    }
}

/// `FlagosApi::launch_run`.
///
/// # Safety
/// `launch` is NULL or alive; there are `num_pointers` addresses behind `pointers`; the stream is alive; and
/// the kernel's accesses to the memory at these addresses are valid.
pub(super) unsafe extern "C" fn run(
    launch: *const FlagosLaunch,
    stream: u64,
    pointers: *const u64,
    num_pointers: usize,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let Some(launch) = (unsafe { launch.as_ref() }) else {
            return Err(null("the launch"));
        };
        // SAFETY: the caller's promise.
        unsafe {
            let pointers = slice(pointers, num_pointers, "pointers")?;
            launch.launch.run(stream, pointers)
        }
    })
}

/// `FlagosApi::launch_free`.
///
/// # Safety
/// `launch` is NULL or came from [`create`], and is not used any more.
pub(super) unsafe extern "C" fn free(launch: *mut FlagosLaunch) {
    if launch.is_null() {
        return;
    }
    quietly(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(launch) });
        Ok(())
    });
}
