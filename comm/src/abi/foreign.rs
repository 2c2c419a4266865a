//! The framework's side of the table: strings, lists, its store, its devices.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use super::failure::null;
use super::types::{FLAGOS_COMM_TIMEOUT, FlagosCommConfig, FlagosCommStore};
use crate::group::UseDevice;
use crate::{Config, Error, ErrorKind, Result, Store};

/// Bytes of a window without a setting of the configuration.
const WINDOW: usize = 1 << 20;
/// Bytes of the room for a message of the framework's functions.
const MESSAGE: usize = 1024;

/// # Safety
/// `text` is NULL or a NUL-terminated string.
pub(super) unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    (!text.is_empty()).then_some(text)
}

/// # Safety
/// `list` is valid for `length` entries, or `length` is 0.
pub(super) unsafe fn list<'a, T>(list: *const T, length: usize) -> &'a [T] {
    if length == 0 || list.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(list, length) }
}

/// Calls a function of the framework, which writes a message when it fails.
fn ask(call: impl FnOnce(*mut c_char, u64) -> i32) -> std::result::Result<(), (i32, String)> {
    let mut message = [0u8; MESSAGE];
    let status = call(message.as_mut_ptr().cast(), MESSAGE as u64);
    if status == 0 {
        return Ok(());
    }
    let text = message.split(|&byte| byte == 0).next().unwrap_or_default();
    Err((status, String::from_utf8_lossy(text).into_owned()))
}

/// The store of the framework.
pub(super) struct ForeignStore(FlagosCommStore);

// SAFETY: the table asks for functions that any thread may call.
unsafe impl Send for ForeignStore {}
// SAFETY: as above.
unsafe impl Sync for ForeignStore {}

impl ForeignStore {
    /// # Safety
    /// `store` is NULL or valid, and its functions may be called until it is released.
    pub(super) unsafe fn new(store: *const FlagosCommStore) -> Result<Self> {
        // SAFETY: the caller's promise.
        let store = unsafe { store.as_ref() };
        store
            .map(|store| Self(*store))
            .ok_or_else(|| null("the store"))
    }
}

impl Drop for ForeignStore {
    fn drop(&mut self) {
        // SAFETY: the adapter's function, called once.
        unsafe { (self.0.release)(self.0.context) };
    }
}

fn key(key: &str) -> Result<CString> {
    CString::new(key).map_err(|_| Error::new(ErrorKind::Internal, "a key with a NUL"))
}

fn failed(what: &str, key: &str, (status, text): (i32, String)) -> Error {
    if status == FLAGOS_COMM_TIMEOUT {
        return Error::new(
            ErrorKind::Timeout,
            format!("no rank has written {key}: {text}"),
        );
    }
    Error::new(
        ErrorKind::System,
        format!("the store could not {what} {key}: {text}"),
    )
}

/// # Safety
/// `taker` is the `Vec` of `ForeignStore::get`, and `value` valid for `length`.
unsafe extern "C" fn take(taker: *mut c_void, value: *const u8, length: u64) {
    // SAFETY: the caller's promise.
    unsafe { (*taker.cast::<Vec<u8>>()).extend_from_slice(list(value, length as usize)) };
}

impl Store for ForeignStore {
    fn set(&self, name: &str, value: &[u8]) -> Result<()> {
        let in_c = key(name)?;
        // SAFETY: the arguments outlive the call, and the store's functions are those of the adapter.
        ask(|error, capacity| unsafe {
            (self.0.set)(
                self.0.context,
                in_c.as_ptr(),
                value.as_ptr(),
                value.len() as u64,
                error,
                capacity,
            )
        })
        .map_err(|failure| failed("write", name, failure))
    }

    fn get(&self, name: &str, timeout: Duration) -> Result<Vec<u8>> {
        let in_c = key(name)?;
        let mut value: Vec<u8> = vec![];
        let taker = (&raw mut value).cast();
        // SAFETY: as in `set`; `take` gets back the address of `value`.
        ask(|error, capacity| unsafe {
            (self.0.get)(
                self.0.context,
                in_c.as_ptr(),
                timeout.as_millis() as u64,
                take,
                taker,
                error,
                capacity,
            )
        })
        .map_err(|failure| failed("read", name, failure))?;
        Ok(value)
    }
}

/// # Safety
/// The configuration's strings are NULL or NUL-terminated.
pub(super) unsafe fn config(given: &FlagosCommConfig) -> Result<Config> {
    let window = if given.window == 0 {
        WINDOW
    } else {
        given.window as usize
    };
    if window < 4096 || window % 4096 != 0 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a window of {window} bytes: it must be a multiple of 4096"),
        ));
    }
    // SAFETY: the caller's promise.
    unsafe {
        Ok(Config {
            engine: text(given.engine),
            library: text(given.library).map(Into::into),
            vendor: text(given.vendor).ok_or_else(|| null("the vendor"))?,
            vendor_engine: text(given.vendor_engine),
            device: -1,
            group: text(given.group).unwrap_or_default(),
            rank: given.rank as usize,
            size: given.size as usize,
            timeout: Duration::from_millis(given.timeout_ms),
            window,
        })
    }
}

/// The function that makes a device the current one.
pub(super) fn use_device(given: &FlagosCommConfig) -> UseDevice {
    let function = given.use_device;
    Arc::new(move |device| {
        // SAFETY: the adapter's function, for any thread; the message outlives the call.
        ask(|error, capacity| unsafe { function(device, error, capacity) })
            .map_err(|(_, text)| Error::new(ErrorKind::Library, format!("device {device}: {text}")))
    })
}
