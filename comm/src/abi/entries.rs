//! The table's functions.

use std::cell::RefCell;
use std::ffi::{c_char, c_void, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use super::types::{
    FlagosCollective, FlagosComm, FlagosCommConfig, FlagosCommStore, FLAGOS_COMM_ANY_RANK,
    FLAGOS_COMM_OK, FLAGOS_COMM_TIMEOUT,
};
use crate::{engine, Communicator, Config, Stream};
use crate::{library, Collective, DType, Error, ErrorKind, Kind, ReduceOp, Result, Store};

/// Bytes of a window unless the configuration says otherwise.
const WINDOW: usize = 1 << 20;

thread_local! {
    static LAST: RefCell<(CString, i32)> = RefCell::new((CString::default(), -1));
}

pub(super) extern "C" fn last_error() -> *const c_char {
    let message = LAST.try_with(|last| last.borrow().0.as_ptr());
    message.unwrap_or(c"the thread is ending".as_ptr())
}

pub(super) extern "C" fn last_culprit() -> i32 {
    LAST.try_with(|last| last.borrow().1).unwrap_or(-1)
}

/// # Safety
/// `string` is NULL or came from this table and has not been freed.
pub(super) unsafe extern "C" fn string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: strings of this table are made by `CString::into_raw`.
        drop(unsafe { CString::from_raw(string) });
    }
}

fn status(entry: impl FnOnce() -> Result<()>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(entry)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(Error::new(
            ErrorKind::Internal,
            format!(
                "panic: {}; this is a defect of flagos, please report it",
                text.unwrap_or("unknown")
            ),
        ))
    });
    match outcome {
        Ok(()) => FLAGOS_COMM_OK,
        Err(error) => {
            let text = error.to_string().replace('\0', "\u{fffd}");
            let culprit = error
                .culprit()
                .and_then(|rank| i32::try_from(rank).ok())
                .unwrap_or(-1);
            let _ = LAST
                .try_with(|last| last.replace((CString::new(text).unwrap_or_default(), culprit)));
            error.kind() as i32
        }
    }
}

fn null(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{what} is NULL"))
}

/// # Safety
/// `text` is NULL or a NUL-terminated string.
unsafe fn text(text: *const c_char) -> Option<String> {
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
unsafe fn list<'a, T>(list: *const T, length: usize) -> &'a [T] {
    if length == 0 || list.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(list, length) }
}

/// The store an adapter gave.
struct ForeignStore(FlagosCommStore);

/// Room for a message of the store.
const MESSAGE: usize = 1024;

impl ForeignStore {
    fn outcome(status: i32, what: &str, key: &CStr, message: &[u8; MESSAGE]) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let end = message
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(MESSAGE);
        let text = String::from_utf8_lossy(&message[..end]).into_owned();
        let key = key.to_string_lossy();
        Err(if status == FLAGOS_COMM_TIMEOUT {
            Error::new(
                ErrorKind::Timeout,
                format!("nobody has written {key}: {text}"),
            )
        } else {
            Error::new(
                ErrorKind::System,
                format!("the store could not {what} {key}: {text}"),
            )
        })
    }
}

fn key(key: &str) -> Result<CString> {
    CString::new(key).map_err(|_| Error::new(ErrorKind::Internal, "a key with a NUL"))
}

/// # Safety
/// `taker` is the `Vec` of `ForeignStore::get`, and `value` valid for `length`.
unsafe extern "C" fn take(taker: *mut c_void, value: *const u8, length: u64) {
    // SAFETY: the caller's promise.
    unsafe { (*taker.cast::<Vec<u8>>()).extend_from_slice(list(value, length as usize)) };
}

impl Store for ForeignStore {
    fn set(&self, name: &str, value: &[u8]) -> Result<()> {
        let name = key(name)?;
        let mut message = [0u8; MESSAGE];
        // SAFETY: the arguments outlive the call, and the store's functions are those of the adapter.
        let status = unsafe {
            (self.0.set)(
                self.0.context,
                name.as_ptr(),
                value.as_ptr(),
                value.len() as u64,
                message.as_mut_ptr().cast(),
                MESSAGE as u64,
            )
        };
        Self::outcome(status, "write", &name, &message)
    }

    fn get(&self, name: &str, timeout: Duration) -> Result<Vec<u8>> {
        let name = key(name)?;
        let mut message = [0u8; MESSAGE];
        let mut value: Vec<u8> = vec![];
        // SAFETY: as in `set`; `take` gets back the address of `value`.
        let status = unsafe {
            (self.0.get)(
                self.0.context,
                name.as_ptr(),
                timeout.as_millis() as u64,
                take,
                (&raw mut value).cast(),
                message.as_mut_ptr().cast(),
                MESSAGE as u64,
            )
        };
        Self::outcome(status, "read", &name, &message).map(|()| value)
    }
}

/// # Safety
/// `config` is NULL or valid, its strings NULL or NUL-terminated.
unsafe fn config(config: *const FlagosCommConfig) -> Result<Config> {
    // SAFETY: the caller's promise.
    let given = unsafe { config.as_ref() }.ok_or_else(|| null("the configuration"))?;
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
            group: text(given.group).unwrap_or_default(),
            rank: given.rank as usize,
            size: given.size as usize,
            timeout: Duration::from_millis(given.timeout_ms),
            window,
        })
    }
}

/// # Safety
/// Pointers are NULL or valid; the store's functions may be called until this returns.
pub(super) unsafe extern "C" fn connect(
    given: *const FlagosCommConfig,
    store: *const FlagosCommStore,
    out: *mut *mut FlagosComm,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (config, store) = unsafe {
            (
                config(given)?,
                store.as_ref().ok_or_else(|| null("the store"))?,
            )
        };
        if out.is_null() {
            return Err(null("an output"));
        }
        let communicator = engine::connect(&config, &ForeignStore(*store))?;
        // SAFETY: checked above, valid for writing.
        unsafe { out.write(Box::into_raw(Box::new(FlagosComm { communicator }))) };
        Ok(())
    })
}

/// # Safety
/// `comm` is NULL or came from `connect`, is used by no thread, and not afterwards.
pub(super) unsafe extern "C" fn disconnect(comm: *mut FlagosComm) {
    status(|| {
        if !comm.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(comm) });
        }
        Ok(())
    });
}

/// # Safety
/// `comm` is NULL or alive.
unsafe fn alive<'a>(comm: *const FlagosComm) -> Result<&'a dyn Communicator> {
    // SAFETY: the caller's promise.
    let comm = unsafe { comm.as_ref() }.ok_or_else(|| null("the communicator"))?;
    Ok(&*comm.communicator)
}

/// # Safety
/// `comm` is NULL or alive.
pub(super) unsafe extern "C" fn engine(comm: *const FlagosComm) -> *const c_char {
    // SAFETY: the caller's promise.
    let name = unsafe { alive(comm) }.map_or("", |comm| comm.engine());
    let name = match name {
        "shm" => c"shm",
        "nccl" => c"nccl",
        "flagcx" => c"flagcx",
        "hccl" => c"hccl",
        _ => c"",
    };
    name.as_ptr()
}

/// # Safety
/// `comm` is NULL or alive.
pub(super) unsafe extern "C" fn on_streams(comm: *const FlagosComm) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { alive(comm) }.map_or(0, |comm| i32::from(comm.on_streams()))
}

/// Parses a call and hands it on.
///
/// # Safety
/// `given` is NULL or valid, as are its lists.
unsafe fn with_call(
    given: *const FlagosCollective,
    run: impl FnOnce(&Collective<'_>) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let given = unsafe { given.as_ref() }.ok_or_else(|| null("the call"))?;
    let unknown = |what: &str, code: u32| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("there is no {what} {code}"),
        )
    };
    let kind = Kind::from_code(given.kind).ok_or_else(|| unknown("collective", given.kind))?;
    // SAFETY: the caller's promise; `usize` is 64 bits on every platform served.
    unsafe {
        let counts = |address: *const u64, length: u32| {
            let length = if address.is_null() {
                0
            } else {
                length as usize
            };
            list(address.cast::<usize>(), length)
        };
        run(&Collective {
            kind,
            dtype: DType::from_code(given.dtype).ok_or_else(|| unknown("type", given.dtype))?,
            reduce: ReduceOp::from_code(given.reduce)
                .ok_or_else(|| unknown("reduction", given.reduce))?,
            root: match given.root {
                FLAGOS_COMM_ANY_RANK => None,
                root => Some(usize::try_from(root).map_err(|_| {
                    Error::new(ErrorKind::InvalidArgument, format!("{root} is not a rank"))
                })?),
            },
            tag: given.tag,
            count: given.count as usize,
            factor: given.factor,
            sequence: given.sequence,
            timeout: Duration::from_millis(given.timeout_ms),
            send: list(given.send.cast(), given.sends as usize),
            recv: list(given.recv.cast(), given.receives as usize),
            send_counts: counts(given.send_counts, given.sends),
            recv_counts: counts(given.recv_counts, given.receives),
        })
    }
}

/// # Safety
/// `comm` is NULL or alive, `call` NULL or valid; its buffers are, until the call is done.
pub(super) unsafe extern "C" fn run(
    comm: *const FlagosComm,
    call: *const FlagosCollective,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let comm = alive(comm)?;
        with_call(call, |call| comm.run(call, Stream(stream)))
    })
}

/// # Safety
/// As [`run`]; `source` is NULL or valid for writing.
pub(super) unsafe extern "C" fn receive_any(
    comm: *const FlagosComm,
    call: *const FlagosCollective,
    source: *mut i32,
) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let comm = alive(comm)?;
        if source.is_null() {
            return Err(null("an output"));
        }
        with_call(call, |call| {
            source.write(comm.receive_any(call)? as i32);
            Ok(())
        })
    })
}

/// # Safety
/// `comm` is NULL or alive.
pub(super) unsafe extern "C" fn group_start(comm: *const FlagosComm) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { alive(comm) }?.group_start())
}

/// # Safety
/// `comm` is NULL or alive.
pub(super) unsafe extern "C" fn group_end(comm: *const FlagosComm) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { alive(comm) }?.group_end())
}

/// # Safety
/// `comm` is NULL or alive, `reason` NULL or a string.
pub(super) unsafe extern "C" fn abort(comm: *const FlagosComm, reason: *const c_char) {
    status(|| {
        // SAFETY: the caller's promise.
        let (comm, reason) = unsafe { (alive(comm)?, text(reason)) };
        comm.abort(reason.as_deref().unwrap_or("no reason was given"));
        Ok(())
    });
}

/// # Safety
/// `comm` is NULL or alive.
pub(super) unsafe extern "C" fn async_error(comm: *const FlagosComm) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { alive(comm) }?.async_error())
}

/// # Safety
/// `out` is NULL or valid for writing.
unsafe fn give(out: *mut *mut c_char, text: String) -> Result<()> {
    if out.is_null() {
        return Err(null("an output"));
    }
    let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // SAFETY: checked above.
    unsafe { out.write(text.into_raw()) };
    Ok(())
}

/// # Safety
/// `comm` is NULL or alive, `out` NULL or valid for writing.
pub(super) unsafe extern "C" fn state_json(comm: *const FlagosComm, out: *mut *mut c_char) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { give(out, alive(comm)?.state().to_string()) })
}

/// # Safety
/// `given` is NULL or valid, `out` NULL or valid for writing.
pub(super) unsafe extern "C" fn probe(
    given: *const FlagosCommConfig,
    out: *mut *mut c_char,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let config = unsafe { config(given)? };
        let (name, why) = engine::choose(&config)?;
        let what = match name {
            "shm" => "built in".to_owned(),
            name => library::probe(name, &config)?,
        };
        let answer = serde_json::json!({"engine": name, "serves": what, "why": why});
        // SAFETY: the caller's promise.
        unsafe { give(out, answer.to_string()) }
    })
}
