//! The functions of the ACL runtime: their signatures, their values, and their lookup in the library.
//!
//! Between CANN 8.1 and today the runtime has only gained functions. Those of 8.1 are required, newer ones are used where
//! they are found.

// The functions keep the names of the vendor's documentation.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_void};

use flagos_core::runtime::HostFn;
pub(super) use flagos_vendor_kit::driver::Handle;
use flagos_vendor_kit::functions;

/// The name by which the dynamic linker finds the runtime.
pub(super) const SONAME: &str = "libascendcl.so";

/// An `aclError`.
pub(super) type Code = c_int;
/// `ACL_SUCCESS`.
pub(super) const SUCCESS: Code = 0;

/// `aclrtMemcpyKind`.
pub(super) mod kind {
    pub const HOST_TO_DEVICE: i32 = 1;
    pub const DEVICE_TO_HOST: i32 = 2;
    pub const DEVICE_TO_DEVICE: i32 = 3;
}

/// `ACL_MEM_MALLOC_HUGE_FIRST`: huge pages, and small ones where there are none.
pub(super) const HUGE_FIRST: i32 = 0;
/// `aclrtMemAttr`: which memory [`Api::aclrtGetMemInfo`] tells of.
pub(super) const MEMORY_DDR: i32 = 0;
pub(super) const MEMORY_HBM: i32 = 1;
/// `aclrtMemLocationType`.
pub(super) const LOCATION_HOST: u32 = 0;
pub(super) const LOCATION_UNREGISTERED: u32 = 2;
/// `ACL_EVENT_SYNC`: streams may wait for the event.
pub(super) const EVENT_SYNC: u32 = 0x1;
/// `ACL_EVENT_TIME_LINE`: the event has a time.
pub(super) const EVENT_TIME_LINE: u32 = 0x8;
/// `ACL_EVENT_RECORDED_STATUS_COMPLETE`.
pub(super) const RECORD_COMPLETE: i32 = 1;
/// `ACL_STREAM_STATUS_COMPLETE`: the other way round than that of events.
pub(super) const STREAM_COMPLETE: i32 = 0;
/// `ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC`.
pub(super) const STREAM_FLAGS: u32 = 0x1 | 0x2;
/// `ACL_MODEL_RI_CAPTURE_STATUS_NONE`: the stream is not captured.
pub(super) const CAPTURE_NONE: i32 = 0;
/// `ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE`; any other status is that of an invalid capture.
pub(super) const CAPTURE_ACTIVE: i32 = 1;
/// The bytes of a key of memory, with its end.
pub(super) const KEY_BYTES: usize = 65;
/// `ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION`: every process that has the key may import.
pub(super) const EXPORT_TO_ALL: u64 = 1;
/// `ACL_RT_OVERFLOW_MODE_INFNAN`: what overflows becomes infinite, and not the largest number.
pub(super) const OVERFLOW_TO_INFINITY: i32 = 1;
/// `ACL_CALLBACK_BLOCK`: the stream goes on after the function.
pub(super) const CALLBACK_BLOCK: i32 = 1;
/// `aclrtDevAttr`.
pub(super) const ATTRIBUTE_AI_CORES: i32 = 101;
pub(super) const ATTRIBUTE_MEMORY: i32 = 301;
/// `ACL_DEVICE_INFO_AI_CORE_NUM` of the older question.
pub(super) const CAPABILITY_AI_CORES: i32 = 0;

/// `aclrtPtrAttributes`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct PointerAttributes {
    /// The device of device memory.
    pub(super) device: u32,
    /// One of `LOCATION_*`.
    pub(super) location: u32,
    page_size: u32,
    reserved: [u32; 4],
}

functions! {
    Api
    required {
        aclInit(*const c_char);
        aclrtGetDeviceCount(*mut u32);
        aclrtSetDevice(i32);
        aclrtResetDevice(i32);
        aclrtSynchronizeDevice();
        aclrtGetCurrentContext(*mut Handle);
        aclrtSetCurrentContext(Handle);
        aclrtDeviceCanAccessPeer(*mut i32, i32, i32);
        aclrtDeviceEnablePeerAccess(i32, u32);
        aclrtGetMemInfo(i32, *mut usize, *mut usize);
        aclrtMallocAlign32(*mut *mut c_void, usize, i32);
        aclrtFree(*mut c_void);
        aclrtMallocHost(*mut *mut c_void, usize);
        aclrtFreeHost(*mut c_void);
        aclrtPointerGetAttributes(*const c_void, *mut PointerAttributes);
        aclrtMemcpy(*mut c_void, usize, *const c_void, usize, i32);
        aclrtMemcpyAsync(*mut c_void, usize, *const c_void, usize, i32, Handle);
        aclrtCreateStreamWithConfig(*mut Handle, u32, u32);
        aclrtDestroyStream(Handle);
        aclrtSynchronizeStream(Handle);
        aclrtStreamQuery(Handle, *mut i32);
        aclrtStreamWaitEvent(Handle, Handle);
        aclrtCreateEventExWithFlag(*mut Handle, u32);
        aclrtDestroyEvent(Handle);
        aclrtRecordEvent(Handle, Handle);
        aclrtQueryEventStatus(Handle, *mut i32);
        aclrtSynchronizeEvent(Handle);
        aclrtEventElapsedTime(*mut f32, Handle, Handle);
        aclrtSubscribeReport(u64, Handle);
        aclrtUnSubscribeReport(u64, Handle);
        aclrtLaunchCallback(HostFn, *mut c_void, i32, Handle);
        aclrtProcessReport(i32);
    }
    newer {
        aclGetDeviceCapability(u32, i32, *mut i64);
        aclrtGetDeviceInfo(u32, i32, *mut i64);
        aclrtDeviceGetStreamPriorityRange(*mut i32, *mut i32);
        aclrtLaunchHostFunc(Handle, HostFn, *mut c_void);
        aclsysGetVersionNum(*const c_char, *mut i32);
        aclrtCtxSetSysParamOpt(i32, i64);
        aclrtIpcMemGetExportKey(*mut c_void, usize, *mut c_char, usize, u64);
        aclrtIpcMemImportByKey(*mut *mut c_void, *const c_char, u64);
        aclrtIpcMemClose(*const c_char);
        aclrtSetDeviceSatMode(i32);
        aclmdlRICaptureBegin(Handle, i32);
        aclmdlRICaptureGetInfo(Handle, *mut i32, *mut Handle);
        aclmdlRICaptureEnd(Handle, *mut Handle);
        aclmdlRICaptureThreadExchangeMode(*mut i32);
        aclmdlRIExecuteAsync(Handle, Handle);
        aclmdlRIDestroy(Handle);
    }
    others {
        aclGetRecentErrMsg() -> *const c_char;
        aclrtGetSocName() -> *const c_char;
    }
}

impl Api {
    /// The vendor's text on the last failure of this thread, which asking for it clears.
    pub(super) fn recent_error(&self) -> Option<String> {
        // SAFETY: needs no initialisation.
        text(unsafe { (self.aclGetRecentErrMsg)() })
    }

    /// The name of the chip.
    pub(super) fn chip(&self) -> Option<String> {
        // SAFETY: the library is initialised wherever this is asked.
        text(unsafe { (self.aclrtGetSocName)() })
    }

    /// The version of CANN as one number, of a library that tells it: 90100000 is 9.1.0.
    pub(super) fn cann(&self) -> Option<i32> {
        let mut number = 0;
        // SAFETY: the name of a package, and a valid output.
        let code = unsafe { (self.aclsysGetVersionNum?)(c"runtime".as_ptr(), &mut number) };
        (code == SUCCESS).then_some(number)
    }
}

fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: a text of the library that ends with NUL, and stays until the next call.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned()).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_easily_confused() {
        // Of an event 1 is complete, of a stream 0.
        assert_ne!(RECORD_COMPLETE, STREAM_COMPLETE);
        assert_eq!(std::mem::size_of::<PointerAttributes>(), 28);
        assert_eq!(std::mem::offset_of!(PointerAttributes, location), 4);
    }

    #[test]
    fn every_required_function_is_named_once() {
        for name in Api::REQUIRED {
            let same = Api::REQUIRED.iter().filter(|other| *other == name);
            assert_eq!(same.count(), 1, "{name}");
            assert!(name.starts_with("acl"), "{name}");
        }
        // Newer than CANN 8.1: see the fallback of each.
        for newer in [
            "aclrtLaunchHostFunc",
            "aclrtGetDeviceInfo",
            "aclrtFreeWithDevSync",
        ] {
            assert!(!Api::REQUIRED.contains(&newer), "{newer}");
        }
    }
}
