//! CUDA's driver functions: their signatures, and their lookup in the library.
//!
//! Types and signatures are cudarc's, generated from CUDA's headers. The lookup is our own: cudarc's
//! panics without a library, may prefer the stub `libcuda.so` of a toolkit to the driver's
//! `libcuda.so.1`, and its functions return an enum, for which a code that a newer driver added would be
//! undefined behaviour.

// The functions keep the names of CUDA's documentation.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUhostFn, CUlaunchConfig, CUmodule, CUpointer_attribute, CUresult,
    CUstream, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use flagos_vendor_kit::functions;

/// A `CUresult` as a number. The enum has `repr(u32)`, so the calling convention is the same.
pub(super) type Code = u32;
/// `CUDA_SUCCESS`.
pub(super) const SUCCESS: Code = CUresult::CUDA_SUCCESS as Code;

/// The oldest CUDA version that has every function listed under `required`.
pub(super) const OLDEST: c_int = 11_000;

/// Declares `Api`, and compares its functions with those of CUDA's headers.
macro_rules! driver_api {
    (
        required { $($name:ident($($argument:ty),*);)* }
        newer { $($newer:ident($($newer_argument:ty),*);)* }
    ) => {
        functions! {
            Api
            required { $($name($($argument),*);)* }
            newer { $($newer($($newer_argument),*);)* }
            // These take a code of any value.
            others {
                cuGetErrorName(Code, *mut *const c_char) -> Code;
                cuGetErrorString(Code, *mut *const c_char) -> Code;
            }
        }

        // A signature that differs from the one in CUDA's headers does not compile.
        $(const _: unsafe fn($($argument),*) -> CUresult = cudarc::driver::sys::$name;)*
        $(const _: unsafe fn($($newer_argument),*) -> CUresult = cudarc::driver::sys::$newer;)*
    };
}

/// The type of `cuGetErrorName` and `cuGetErrorString`.
type ErrorText = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

driver_api! {
    required {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
        cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        cuCtxGetCurrent(*mut CUcontext);
        cuCtxSetCurrent(CUcontext);
        cuCtxSynchronize();
        cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
        cuCtxEnablePeerAccess(CUcontext, c_uint);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemcpyAsync(CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuPointerGetAttribute(*mut c_void, CUpointer_attribute, CUdeviceptr);
        cuPointerGetAttributes(c_uint, *mut CUpointer_attribute, *mut *mut c_void, CUdeviceptr);
        cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int);
        cuStreamDestroy_v2(CUstream);
        cuStreamGetCtx(CUstream, *mut CUcontext);
        cuStreamQuery(CUstream);
        cuStreamSynchronize(CUstream);
        cuStreamWaitEvent(CUstream, CUevent, c_uint);
        cuLaunchHostFunc(CUstream, CUhostFn, *mut c_void);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventDestroy_v2(CUevent);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
        cuEventElapsedTime(*mut f32, CUevent, CUevent);
        cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int);
        cuModuleLoadData(*mut CUmodule, *const c_void);
        cuModuleUnload(CUmodule);
        cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    }
    newer {
        // CUDA 11.8.
        cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
        // CUDA 12.0, compute capability 9.0.
        cuTensorMapEncodeTiled(
            *mut CUtensorMap,
            CUtensorMapDataType,
            c_uint,
            *mut c_void,
            *const u64,
            *const u64,
            *const c_uint,
            *const c_uint,
            CUtensorMapInterleave,
            CUtensorMapSwizzle,
            CUtensorMapL2promotion,
            CUtensorMapFloatOOBfill
        );
        // CUDA 12.4.
        cuFuncGetParamInfo(CUfunction, usize, *mut usize, *mut usize);
    }
}

impl Api {
    /// The name and the description of a code, as the driver has them.
    pub(super) fn describe(&self, code: Code) -> (String, String) {
        let ask = |function: ErrorText| {
            let mut text = std::ptr::null();
            // SAFETY: a valid output; the driver refuses codes that it does not know.
            let known = unsafe { function(code, &mut text) };
            if known != SUCCESS || text.is_null() {
                return None;
            }
            // SAFETY: a static string of the driver that ends with NUL.
            Some(
                unsafe { CStr::from_ptr(text) }
                    .to_string_lossy()
                    .into_owned(),
            )
        };
        let name = ask(self.cuGetErrorName).unwrap_or_else(|| format!("error {code}"));
        let text = ask(self.cuGetErrorString);
        (name, text.unwrap_or_else(|| "no description".into()))
    }
}
