//! What the runtime has for captures, and what goes on.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::CaptureMode;
use flagos_vendor_kit::lacking;

use super::api::{Api, Code, Handle, RECORD_COMPLETE, SONAME, SUCCESS};

/// The functions of graphs, of a runtime that has all of them.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) begin: unsafe extern "C" fn(Handle, i32) -> Code,
    pub(super) info: unsafe extern "C" fn(Handle, *mut i32, *mut Handle) -> Code,
    pub(super) end: unsafe extern "C" fn(Handle, *mut Handle) -> Code,
    pub(super) execute: unsafe extern "C" fn(Handle, Handle) -> Code,
    destroy: unsafe extern "C" fn(Handle) -> Code,
}

impl Functions {
    /// The functions. Fails with the names of those that the runtime does not have.
    pub(super) fn of(api: &Api) -> Result<Self> {
        match (
            api.aclmdlRICaptureBegin,
            api.aclmdlRICaptureGetInfo,
            api.aclmdlRICaptureEnd,
            api.aclmdlRIExecuteAsync,
            api.aclmdlRIDestroy,
        ) {
            (Some(begin), Some(info), Some(end), Some(execute), Some(destroy)) => Ok(Self {
                begin,
                info,
                end,
                execute,
                destroy,
            }),
            _ => Err(missing(api)),
        }
    }
}

#[cold]
fn missing(api: &Api) -> Error {
    let functions = lacking!(
        api,
        aclmdlRICaptureBegin,
        aclmdlRICaptureGetInfo,
        aclmdlRICaptureEnd,
        aclmdlRIExecuteAsync,
        aclmdlRIDestroy
    );
    let message = format!("{SONAME} has no {}", functions.unwrap_or_default());
    Error::unsupported("capture", message).with_hint("install CANN 8.1 or newer")
}

/// The refusal of a call that would wait for captured work.
#[cold]
pub(super) fn refused(operation: &'static str, message: &str) -> Error {
    Error::unsupported(operation, message).with_hint("do it before the capture, or after it")
}

/// The captures of the process that go on.
pub(super) static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// While it lives, this thread may make calls of which the runtime takes for granted that they disturb a capture, wherever
/// it goes on. They do not: they are for other streams.
pub(super) struct Undisturbing<'a> {
    api: &'a Api,
    before: Option<i32>,
    /// Keeps the guard on its thread.
    _thread: PhantomData<*const ()>,
}

/// The guard for calls that this vendor has found harmless. A context is current.
pub(super) fn undisturbing(api: &Api) -> Undisturbing<'_> {
    let mut before = None;
    if CAPTURES.load(Ordering::SeqCst) != 0 {
        before = exchange(api, CaptureMode::Relaxed as i32);
    }
    Undisturbing {
        api,
        before,
        _thread: PhantomData,
    }
}

/// Sets the mode of this thread, and returns the one before.
fn exchange(api: &Api, mut mode: i32) -> Option<i32> {
    let exchange = api.aclmdlRICaptureThreadExchangeMode?;
    // SAFETY: a mode, and a valid output.
    let code = unsafe { exchange(&mut mode) };
    if code != SUCCESS {
        drop(api.recent_error());
    }
    (code == SUCCESS).then_some(mode)
}

impl Drop for Undisturbing<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            exchange(self.api, before);
        }
    }
}

/// Destroys a graph, whose context is current; false while a run has not ended, behind which these events are.
///
/// # Safety
/// The graph and the events are live; the graph has no other user.
pub(super) unsafe fn destroy(api: &Api, graph: Handle, runs: &[usize]) -> Result<bool> {
    let functions = Functions::of(api)?;
    for event in runs {
        let mut status = RECORD_COMPLETE;
        // SAFETY: a live event, and a valid output.
        let code = unsafe { (api.aclrtQueryEventStatus)(*event as Handle, &mut status) };
        if code == SUCCESS && status != RECORD_COMPLETE {
            return Ok(false);
        }
        if code != SUCCESS {
            // After a failure nothing runs any more.
            drop(api.recent_error());
        }
    }
    // SAFETY: a live graph of which no run is left.
    let code = unsafe { (functions.destroy)(graph) };
    api.check("aclmdlRIDestroy", code).map(|()| true)
}
