//! The entry that describes the vendor.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::mem::size_of;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::vendors::Description;

use super::init::chosen_description;
use super::status::{null, status};
use super::types::FlagosVendorInfo;

/// `FlagosApi::vendor`.
///
/// # Safety
/// `out` is NULL, or as many bytes as its `struct_size` says are valid for writing.
pub(super) unsafe extern "C" fn describe(out: *mut FlagosVendorInfo) -> i32 {
    status(|| {
        if out.is_null() {
            return Err(null("an output"));
        }
        // SAFETY: the caller's promise; every version has the first member.
        let struct_size = unsafe { out.cast::<usize>().read() };
        if struct_size < size_of::<FlagosVendorInfo>() {
            let needed = size_of::<FlagosVendorInfo>();
            let message = format!("struct_size is {struct_size}, at least {needed} is needed");
            return Err(Error::invalid_argument("FlagosVendorInfo", message)
                .with_hint("set struct_size to sizeof(FlagosVendorInfo) before the call"));
        }
        let info = info(chosen_description()?)?;
        // SAFETY: the caller's promise, for at least the size of the struct.
        unsafe {
            out.write(FlagosVendorInfo {
                struct_size,
                ..info
            });
        }
        Ok(())
    })
}

/// The description for C. Its texts are made once per vendor, and live as long as the process.
fn info(description: &'static Description) -> Result<FlagosVendorInfo> {
    static TEXTS: Mutex<BTreeMap<&'static str, &'static CString>> = Mutex::new(BTreeMap::new());
    let mut texts = TEXTS.lock();
    let mut text = |text: &'static str| -> Result<*const c_char> {
        if let Some(known) = texts.get(text) {
            return Ok(known.as_ptr());
        }
        let made = CString::new(text).map_err(|error| {
            let message = format!("`{}` has a NUL inside", text.escape_default());
            Error::internal("vendor", message).with_source(error)
        })?;
        let made: &'static CString = Box::leak(Box::new(made));
        texts.insert(text, made);
        Ok(made.as_ptr())
    };
    let mut optional = |given: Option<&'static str>| given.map_or(Ok(std::ptr::null()), &mut text);
    Ok(FlagosVendorInfo {
        struct_size: size_of::<FlagosVendorInfo>(),
        name: optional(Some(&description.name))?,
        torch_device_type: optional(description.serving.torch_device_type())?,
        collective_engine: optional(description.collective_engine.as_deref())?,
        triton_backend: optional(description.triton_backend.as_deref())?,
        flaggems_vendor: optional(description.flaggems_vendor.as_deref())?,
        serving: description.serving.number(),
        dlpack_device_type: description.dlpack_device_type,
    })
}
