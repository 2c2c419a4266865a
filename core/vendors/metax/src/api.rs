//! The functions of MACA's runtime: their signatures, their values, and their lookup in the library.
//!
//! MetaX publishes no header. The signatures were gathered from programs that call the functions; where only one program
//! does, or where a signature is that of the CUDA function of the same name, [`super::inferred`] says so and tries the
//! function out. Numbers of errors, flags and kinds are CUDA's, those of attributes are MACA's own.

// The functions keep the vendor's names.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use flagos_core::runtime::HostFn;
pub(super) use flagos_vendor_kit::driver::Handle;
use flagos_vendor_kit::functions;

/// The name by which the dynamic linker finds the runtime.
pub(super) const SONAME: &str = "libmcruntime.so";

/// An `mcError_t`.
pub(super) type Code = c_int;
/// `mcSuccess`.
pub(super) const SUCCESS: Code = 0;
/// `mcErrorNotReady`: work has not finished, which is no error.
pub(super) const NOT_READY: Code = 600;

/// `mcMemcpyKind`.
pub(super) mod kind {
    pub const HOST_TO_DEVICE: i32 = 1;
    pub const DEVICE_TO_HOST: i32 = 2;
    pub const DEVICE_TO_DEVICE: i32 = 3;
    /// The runtime finds out where the memory lies.
    pub const DEFAULT: i32 = 4;
}

/// `mcDeviceAttribute_t`, which counts otherwise than CUDA.
pub(super) mod attribute {
    pub const MAX_THREADS_PER_BLOCK: i32 = 0;
    pub const WAVE_SIZE: i32 = 10;
    pub const MULTIPROCESSOR_COUNT: i32 = 16;
    pub const CAPABILITY_MAJOR: i32 = 21;
    pub const CAPABILITY_MINOR: i32 = 22;
}

/// `mcStreamNonBlocking`: the stream does not wait for the default stream.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;
/// `mcEventDefault`.
pub(super) const EVENT_DEFAULT: c_uint = 0;
/// `mcEventDisableTiming`.
pub(super) const EVENT_DISABLE_TIMING: c_uint = 2;
/// The third argument of `mcMallocHost`, which has a default in C++ alone.
pub(super) const HOST_DEFAULT: c_uint = 0;
/// `mcIpcMemLazyEnablePeerAccess`.
pub(super) const IPC_LAZY_PEER_ACCESS: c_uint = 1;
/// `mcPointerAttributeDevicePointer`, of `mcPointerGetAttribute`.
pub(super) const POINTER_DEVICE_ADDRESS: c_int = 3;
/// Threads that run in step.
pub(super) const WAVE: c_int = 64;

/// `mcIpcMemHandle_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct IpcHandle(pub(super) [u8; Self::BYTES]);

impl IpcHandle {
    pub(super) const BYTES: usize = 64;
}

functions! {
    Api
    required {
        mcGetDeviceCount(*mut c_int);
        mcGetDevice(*mut c_int);
        mcSetDevice(c_int);
        mcDeviceSynchronize();
        mcDeviceCanAccessPeer(*mut c_int, c_int, c_int);
        mcDeviceEnablePeerAccess(c_int, c_uint);
        mcMemGetInfo(*mut usize, *mut usize);
        mcMalloc(*mut *mut c_void, usize);
        mcFree(*mut c_void);
        mcMallocHost(*mut *mut c_void, usize, c_uint);
        mcFreeHost(*mut c_void);
        mcMemcpyAsync(*mut c_void, *const c_void, usize, c_int, Handle);
        mcStreamCreateWithFlags(*mut Handle, c_uint);
        mcStreamCreateWithPriority(*mut Handle, c_uint, c_int);
        mcStreamDestroy(Handle);
        mcStreamSynchronize(Handle);
        mcStreamQuery(Handle);
        mcStreamWaitEvent(Handle, Handle, c_uint);
        mcLaunchHostFunc(Handle, HostFn, *mut c_void);
        mcEventCreateWithFlags(*mut Handle, c_uint);
        mcEventDestroy(Handle);
        mcEventRecord(Handle, Handle);
        mcEventSynchronize(Handle);
        mcEventQuery(Handle);
        mcEventElapsedTime(*mut f32, Handle, Handle);
        mcGetLastError();
        mcModuleLoadData(*mut Handle, *const c_void);
        mcModuleGetFunction(*mut Handle, Handle, *const c_char);
        mcModuleUnload(Handle);
        mcModuleLaunchKernel(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        );
    }
    newer {
        mcDeviceGetName(*mut c_char, c_int, c_int);
        mcDeviceGetAttribute(*mut c_int, c_int, c_int);
        mcDeviceGetStreamPriorityRange(*mut c_int, *mut c_int);
        mcStreamGetDevice(Handle, *mut c_int);
        mcStreamIsCapturing(Handle, *mut c_int);
        mcPointerGetAttribute(*mut c_void, c_int, *mut c_void);
        mcIpcGetMemHandle(*mut IpcHandle, *mut c_void);
        mcIpcOpenMemHandle(*mut *mut c_void, IpcHandle, c_uint);
        mcIpcCloseMemHandle(*mut c_void);
    }
    others {
        mcGetErrorName(Code) -> *const c_char;
        mcGetErrorString(Code) -> *const c_char;
    }
}

impl Api {
    /// The name and the description of a code, as the library has them.
    pub(super) fn describe(&self, code: Code) -> (Option<String>, Option<String>) {
        // SAFETY: both take any number.
        unsafe {
            let name = text((self.mcGetErrorName)(code));
            (name, text((self.mcGetErrorString)(code)))
        }
    }

    /// Takes away the failure that the runtime keeps for this thread, which another library would take for its own.
    pub(super) fn forget_failure(&self) {
        // SAFETY: may be called at any time; the failure is known.
        let _known = unsafe { (self.mcGetLastError)() };
    }
}

/// # Safety
/// Null, or a text that ends with NUL and stays.
unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned()).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_required_function_is_named_once() {
        for name in Api::REQUIRED {
            let same = Api::REQUIRED.iter().filter(|other| *other == name);
            assert_eq!(same.count(), 1, "{name}");
            assert!(name.starts_with("mc"), "{name}");
        }
        // What is known by inference is not required.
        for inferred in crate::inferred::DECLARATIONS {
            assert!(!Api::REQUIRED.contains(&inferred.name), "{}", inferred.name);
        }
    }

    #[test]
    fn a_handle_of_memory_is_passed_by_value() {
        assert_eq!(std::mem::size_of::<IpcHandle>(), 64);
    }
}
