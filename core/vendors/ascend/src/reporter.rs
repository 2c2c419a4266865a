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

use super::api::{Api, SUCCESS};
use super::error::{acl, check};

/// The milliseconds after which the thread looks again whether calls are left.
const PATIENCE_MS: i32 = 100;

/// The number of queued calls that have not been made.
#[derive(Default)]
pub(super) struct Outstanding {
    calls: Mutex<usize>,
    some: Condvar,
}

impl Outstanding {
    /// A call is being queued.
    pub(super) fn queued(&self) {
        *self.calls.lock() += 1;
        self.some.notify_one();
    }

    /// A call was made, or could not be queued.
    pub(super) fn finished(&self) {
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
    pub(super) outstanding: Arc<Outstanding>,
}

impl Reporter {
    /// Starts the thread, which makes the context current on itself.
    pub(super) fn start(api: &'static Api, context: *mut c_void) -> Result<Self> {
        let outstanding = Arc::<Outstanding>::default();
        let (tell, told) = sync_channel(1);
        let (context, inside) = (context as usize, Arc::clone(&outstanding));
        let body = move || {
            // SAFETY: a context that is never given back.
            let entered = unsafe { acl!(api, aclrtSetCurrentContext(context as *mut c_void)) };
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
}

/// Makes calls for as long as the process lives.
fn process(api: &Api, outstanding: &Outstanding) {
    loop {
        outstanding.wait();
        let start = Instant::now();
        // SAFETY: the thread has a context; the functions are `work::run` with the calls queued for it.
        let code = unsafe { (api.aclrtProcessReport)(PATIENCE_MS) };
        if code == SUCCESS {
            continue;
        }
        // Usually the time is up. Any other failure must not make the thread spin.
        let error = check(api, "aclrtProcessReport", code);
        if start.elapsed() < Duration::from_millis(1) {
            tracing::debug!(?error, "no report of a host function");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
