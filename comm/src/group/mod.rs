//! One rank's end of a process group of a framework, without its tensors, streams and events.
//!
//! * [`host`] runs calls on host memory, on the calling thread or in a [`lane`].
//! * [`endpoints`] connects communicators on devices, within a time.
//! * [`monitored_barrier`] names the ranks that are missing.
//! * [`flight_recorder`] keeps the last calls, and writes them to a file when one fails.

mod endpoints;
mod flight_recorder;
mod host;
mod lane;
mod monitored_barrier;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use serde_json::{json, Value};

pub use endpoints::{Endpoint, UseDevice};
pub use flight_recorder::FlightRecorder;
pub use host::{Ended, QueuedCall};
pub use lane::After;

use crate::store::Within;
use crate::{Collective, Config, ErrorKind, Result, Store};
use endpoints::Endpoints;
use host::Host;

/// The communicators that a request concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The communicator on host memory.
    Host,
    /// The communicators on devices.
    Devices,
}

/// One rank's end of a process group.
pub struct Group {
    config: Config,
    store: Arc<dyn Store>,
    recorder: Arc<FlightRecorder>,
    host: Result<Host>,
    endpoints: Endpoints,
    monitored_barriers: AtomicU64,
}

impl Group {
    /// Connects the ranks on host memory. The first call on a device connects them there.
    ///
    /// `config` describes the communicators on devices. A failing call leaves its report in the folder `dump`.
    ///
    /// Fails when the ranks do not meet in time. Ranks that share no memory form a group too, whose calls on host
    /// memory fail with the reason.
    pub fn open(
        config: Config,
        dump: Option<PathBuf>,
        store: Arc<dyn Store>,
        use_device: UseDevice,
    ) -> Result<Self> {
        let recorder = Arc::new(FlightRecorder::new(config.group.clone(), config.rank, dump));
        let on_host = Config {
            engine: Some("shm".into()),
            library: None,
            vendor: "host".into(),
            vendor_engine: Some("shm".into()),
            ..config.clone()
        };
        let host = crate::engine::connect(&on_host, &Within::new(store.clone(), "host/"))
            .map(|communicator| Host::new(communicator, recorder.clone()));
        match host {
            Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
            host => Ok(Self {
                endpoints: Endpoints::new(config.clone(), store.clone(), use_device),
                config,
                store,
                recorder,
                host,
                monitored_barriers: AtomicU64::new(0),
            }),
        }
    }

    /// The ranks on host memory. Fails with the reason when they share no memory.
    pub fn host(&self) -> Result<&Host> {
        self.host.as_ref().map_err(Clone::clone)
    }

    /// The communicators on devices.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The log of the last calls.
    pub fn recorder(&self) -> &FlightRecorder {
        &self.recorder
    }

    /// Notes a call that is queued on a device. Returns its number for [`FlightRecorder::ended`].
    pub fn record(&self, call: &Collective<'_>, asynchronous: bool) -> u64 {
        self.recorder.begin(call, asynchronous)
    }

    /// Reports a failure on a device, once in the group's life.
    pub fn report(&self, why: &str) {
        self.recorder.report(&self.endpoints.state(), why);
    }

    /// Ends the calls of one side, with a reason.
    pub fn abort(&self, side: Side, reason: &str) {
        match (side, &self.host) {
            (Side::Host, Ok(host)) => host.communicator().abort(reason),
            (Side::Host, Err(_)) => {}
            (Side::Devices, _) => self.endpoints.abort(reason),
        }
    }

    /// A failure of one side that happened after a call had returned.
    pub fn async_error(&self, side: Side) -> Result<()> {
        match (side, &self.host) {
            (Side::Host, Ok(host)) => host.communicator().async_error(),
            (Side::Host, Err(_)) => Ok(()),
            (Side::Devices, _) => self.endpoints.async_error(),
        }
    }

    /// Waits at most `timeout_ms` for the other ranks. The error names the missing ranks: all of them with
    /// `wait_for_all`, otherwise the first. All ranks call it.
    pub fn monitored_barrier(&self, timeout_ms: i64, wait_for_all: bool) -> Result<()> {
        let number = self.monitored_barriers.fetch_add(1, Ordering::Relaxed) + 1;
        let store = Within::new(self.store.clone(), &format!("monitored/{number}/"));
        monitored_barrier::run(&store, &self.config, timeout_ms, wait_for_all)
    }

    /// The last calls, and the state of the ranks as far as it is known.
    pub fn state(&self) -> Value {
        json!({
            "rank": self.config.rank,
            "size": self.config.size,
            "host": self.host.as_ref().ok().map(|host| host.communicator().state()),
            "device": self.endpoints.state(),
            "calls": self.recorder.calls(),
        })
    }
}
