//! What a call computes on: its stream, its libraries, and memory for its work.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

use flagos_core::error::{Error, Result};
use flagos_core::vendors::library::*;
use flagos_vendor_kit::export::status;

use super::super::description::description;
use super::super::stream::AscendStream;
use super::library::Library;

/// The surroundings of a call.
pub(super) struct Context<'c> {
    pub(super) raw: &'c FlagosKernelCall,
    pub(super) stream: &'c AscendStream,
    pub(super) library: &'static Library,
    /// How many functions have been queued.
    queued: Cell<usize>,
}

impl<'c> Context<'c> {
    pub(super) fn new(
        raw: &'c FlagosKernelCall,
        stream: &'c AscendStream,
        library: &'static Library,
    ) -> Self {
        Self {
            raw,
            stream,
            library,
            queued: Cell::new(0),
        }
    }

    /// Whether a function of the call has been queued.
    pub(super) fn has_queued(&self) -> bool {
        self.queued.get() > 0
    }

    /// Notes that a function has been queued.
    pub(super) fn note_queued(&self) {
        self.queued.set(self.queued.get() + 1);
    }

    pub(super) fn is_deterministic(&self) -> bool {
        self.raw.flags & FLAGOS_CALL_DETERMINISTIC != 0
    }

    /// Has the host call this, which queues work of the call, now or on another thread, in the order of the stream.
    pub(super) fn post<Part>(&self, part: Part) -> Result<()>
    where
        Part: FnOnce() -> Result<()> + Send + 'static,
    {
        unsafe extern "C" fn run<Part: FnOnce() -> Result<()>>(
            argument: *mut c_void,
            queues: i32,
        ) -> i32 {
            status(description(), || {
                // SAFETY: the box leaked below, which the host gives back once.
                let part = unsafe { Box::from_raw(argument.cast::<Part>()) };
                if queues == 0 { Ok(()) } else { part() }
            })
        }
        let Some(post) = self.raw.post else {
            return part();
        };
        let argument = Box::into_raw(Box::new(part));
        // SAFETY: the host's function with its context, on the thread of `run`.
        let code = unsafe { post(self.raw.context, run::<Part>, argument.cast()) };
        told_by_host("post", code)
    }

    /// Waits until all that was posted on the stream is queued, before the call queues work by itself or waits for it.
    pub(super) fn flush(&self) -> Result<()> {
        let Some(flush) = self.raw.flush else {
            return Ok(());
        };
        // SAFETY: as above.
        told_by_host("flush", unsafe { flush(self.raw.context) })
    }

    /// Device memory for work that is queued during this call.
    pub(super) fn workspace(&self, nbytes: usize) -> Result<*mut c_void> {
        let mut address = null_mut();
        if nbytes == 0 {
            return Ok(address);
        }
        let Some(give) = self.raw.workspace else {
            return Err(Error::invalid_argument(
                "run",
                "the host gives no workspace",
            ));
        };
        // SAFETY: the host's function with its context, on the thread of `run`.
        match unsafe { give(self.raw.context, nbytes, &mut address) } {
            FLAGOS_VENDOR_OK => Ok(address),
            status => Err(Error::out_of_memory(
                "workspace",
                format!("{nbytes} bytes; status {status}"),
            )),
        }
    }
}

/// The outcome of a function of the host, which knows the text.
fn told_by_host(function: &'static str, code: i32) -> Result<()> {
    match code {
        FLAGOS_VENDOR_OK => Ok(()),
        code => Err(Error::device(function, format!("status {code}"))),
    }
}
