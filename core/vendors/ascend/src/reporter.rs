//! The thread that calls functions for streams, where the runtime has no `aclrtLaunchHostFunc`.
//!
//! There a function runs on the thread to which its stream is subscribed, while that thread processes reports. Each
//! device has one such thread, which sleeps when no call is queued. So functions of all streams of a device run one after
//! the other.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::HostFn;
use flagos_vendor_kit::call;
use flagos_vendor_kit::stream_work::Call;

use super::api::{Api, SUCCESS};

/// The milliseconds after which the thread looks again whether calls are left.
const PATIENCE_MS: i32 = 100;

/// The number of queued calls that have not been made.
#[derive(Default)]
struct Outstanding {
    calls: Mutex<usize>,
    some: Condvar,
}

impl Outstanding {
    /// A call is being queued.
    fn queued(&self) {
        *self.calls.lock() += 1;
        self.some.notify_one();
    }

    /// A call was made, or could not be queued.
    fn finished(&self) {
        *self.calls.lock() -= 1;
    }

    fn wait(&self) {
        let mut calls = self.calls.lock();
        while *calls == 0 {
            self.some.wait(&mut calls);
        }
    }
}

/// The thread of a device.
pub(super) struct Reporter {
    /// The thread as `aclrtSubscribeReport` knows it.
    pub(super) thread: u64,
    outstanding: Arc<Outstanding>,
}

impl Reporter {
    /// Starts the thread, which makes the context current on itself.
    pub(super) fn start(api: &'static Api, context: *mut c_void) -> Result<Self> {
        let outstanding = Arc::<Outstanding>::default();
        let (tell, told) = sync_channel(1);
        let (context, inside) = (context as usize, Arc::clone(&outstanding));
        let body = move || {
            // SAFETY: a context that is never given back.
            let entered = unsafe { call!(api, aclrtSetCurrentContext(context as *mut c_void)) };
            // SAFETY: the thread's own number.
            let thread = unsafe { libc::pthread_self() };
            let works = entered.is_ok();
            // Nobody listens any more only where the process ends.
            if tell.send(entered.map(|()| thread as u64)).is_ok() && works {
                process(api, &inside);
            }
        };
        let builder = std::thread::Builder::new().name("flagos-ascend".into());
        builder.spawn(body).map_err(|error| {
            Error::device("launch", "the thread of host functions was not started")
                .with_source(error)
        })?;
        let thread = told
            .recv()
            .map_err(|_| Error::internal("launch", "the thread of host functions ended"))??;
        Ok(Self {
            thread,
            outstanding,
        })
    }

    /// Queues a call by `queue`, as [`stream_work::queue`](flagos_vendor_kit::stream_work::queue), on a stream that is
    /// subscribed.
    pub(super) fn queue(
        &self,
        function: HostFn,
        context: *mut c_void,
        queue: impl FnOnce(HostFn, *mut c_void) -> Result<()>,
    ) -> Result<()> {
        let call = Box::into_raw(Box::new(Reported {
            call: Call::new(function, context),
            outstanding: Arc::clone(&self.outstanding),
        }));
        self.outstanding.queued();
        let queued = queue(run, call.cast());
        if queued.is_err() {
            // SAFETY: the call will not be made, so the box is still ours.
            drop(unsafe { Box::from_raw(call) });
            self.outstanding.finished();
        }
        queued
    }
}

/// A call of a stream that is subscribed to a reporter.
struct Reported {
    call: Call,
    outstanding: Arc<Outstanding>,
}

/// # Safety
/// `call` is a leaked box of [`Reported`], which nothing else uses, and its function may be called.
unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: promised by the caller of `Stream::launch`; the reporter makes each call once.
    unsafe {
        let Reported { call, outstanding } = *Box::from_raw(call.cast());
        call.make();
        outstanding.finished();
    }
}

/// Makes calls for as long as the process lives.
fn process(api: &Api, outstanding: &Outstanding) {
    loop {
        outstanding.wait();
        let start = Instant::now();
        // SAFETY: the thread has a context; the functions are `run` with the calls queued for it.
        let code = unsafe { (api.aclrtProcessReport)(PATIENCE_MS) };
        if code == SUCCESS {
            continue;
        }
        // Usually the time is up. Any other failure must not make the thread spin.
        let error = api.check("aclrtProcessReport", code);
        if start.elapsed() < Duration::from_millis(1) {
            tracing::debug!(?error, "no report of a host function");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
