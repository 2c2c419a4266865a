//! The current device of a thread on Ascend: its libraries of collectives work on the device whose context is current on
//! the calling thread, and leave their error texts with the ACL runtime.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::dialect::text;
use super::search::Opened;
use crate::{Config, Error, ErrorKind, Result};

/// The vendor whose devices these are.
pub(super) const VENDOR: &str = "ascend";

/// The functions of the ACL runtime, without their prefixes.
struct Api {
    set_device: unsafe extern "C" fn(i32) -> c_int,
    get_current_context: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    set_current_context: unsafe extern "C" fn(*mut c_void) -> c_int,
    get_recent_err_msg: unsafe extern "C" fn() -> *const c_char,
    get_soc_name: unsafe extern "C" fn() -> *const c_char,
}

static API: OnceLock<Api> = OnceLock::new();

fn api() -> Result<&'static Api> {
    if let Some(api) = API.get() {
        return Ok(api);
    }
    let library = Opened::open(None, &["libascendcl.so"])?;
    // SAFETY: the types are those of the runtime's interface.
    let loaded = unsafe {
        Api {
            set_device: library.function("aclrtSetDevice")?,
            get_current_context: library.function("aclrtGetCurrentContext")?,
            set_current_context: library.function("aclrtSetCurrentContext")?,
            get_recent_err_msg: library.function("aclGetRecentErrMsg")?,
            get_soc_name: library.function("aclrtGetSocName")?,
        }
    };
    Ok(API.get_or_init(|| loaded))
}

/// The runtime's text about this thread's last failure, once. Empty if no device of Ascend is in use.
pub(super) fn recent_error() -> Option<String> {
    // SAFETY: the text is the thread's own until its next call.
    unsafe {
        let text = (API.get()?.get_recent_err_msg)();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().trim().to_owned())
    }
}

/// Whether HCCL reduces `float64` and `uint64` on the chip. Chips before the Ascend 950 have names of two families; any other
/// chip, also of another vendor, is left to the library.
pub(super) fn reduces_wide_numbers(config: &Config) -> bool {
    let api = (config.vendor == VENDOR).then(api).and_then(Result::ok);
    // SAFETY: the name is static.
    let name = api.and_then(|api| unsafe { text((api.get_soc_name)()) });
    name.is_none_or(|name| {
        let is_310 = name.starts_with("Ascend310");
        let is_910 = name.starts_with("Ascend910") && !name.starts_with("Ascend910_95");
        !is_310 && !is_910
    })
}

fn check(what: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let why = recent_error().map_or(String::new(), |text| format!(": {text}"));
    Err(Error::new(
        ErrorKind::Library,
        format!("{what} failed in libascendcl.so (code {code}){why}"),
    ))
}

/// The default context of a device.
pub struct Context {
    api: &'static Api,
    handle: *mut c_void,
}

// SAFETY: the runtime takes a context on every thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The context of the configuration's device, made current on this thread; nothing for other vendors.
    pub fn of(config: &Config) -> Result<Option<Self>> {
        if config.vendor != VENDOR {
            return Ok(None);
        }
        let api = api()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a device of the vendor, and a valid output.
        unsafe {
            check("aclrtSetDevice", (api.set_device)(config.device))?;
            check(
                "aclrtGetCurrentContext",
                (api.get_current_context)(&raw mut handle),
            )?;
        }
        Ok(Some(Self { api, handle }))
    }

    /// Makes the context current on this thread, for good.
    pub fn make_current(&self) -> Result<()> {
        // SAFETY: the default context of a device lives as long as the process uses the device.
        check("aclrtSetCurrentContext", unsafe {
            (self.api.set_current_context)(self.handle)
        })
    }

    /// Makes the context current on this thread until the guard is dropped. A thread that had none keeps it.
    pub fn enter(&self) -> Result<Entered<'_>> {
        let mut before = std::ptr::null_mut();
        // SAFETY: a valid output, which stays NULL where the thread has no context.
        if unsafe { (self.api.get_current_context)(&raw mut before) } != 0 {
            before = std::ptr::null_mut();
            drop(recent_error());
        }
        if before != self.handle {
            self.make_current()?;
        }
        Ok(Entered {
            context: self,
            restore: (!before.is_null() && before != self.handle).then_some(before),
        })
    }
}

/// The guard of [`Context::enter`].
pub struct Entered<'c> {
    context: &'c Context,
    restore: Option<*mut c_void>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Some(before) = self.restore else { return };
        // SAFETY: what was current a moment ago on this thread.
        let code = unsafe { (self.context.api.set_current_context)(before) };
        if let Err(error) = check("aclrtSetCurrentContext", code) {
            tracing::error!(%error, "the context of a thread was not restored");
        }
    }
}
