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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

pub use endpoints::{Endpoint, UseDevice};
pub use flight_recorder::FlightRecorder;
pub use host::{Ended, QueuedCall};
pub use lane::After;

use crate::communicator::Other;
use crate::store::Within;
use crate::{Collective, Config, Error, ErrorKind, Kind, Result, Store};
use endpoints::Endpoints;
use host::Host;

/// How long a call on a device waits before a process that has ended is the reason: others may have done their part of
/// the call, and end first.
const PATIENCE: Duration = Duration::from_secs(2);

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
        // Transfers are counted apart, and concern two ranks.
        let is_transfer = matches!(call.kind, Kind::Send | Kind::Recv);
        if let Some(host) = self.host.as_ref().ok().filter(|_| !is_transfer) {
            host.communicator().note_queued(call.kind, call.sequence);
        }
        self.recorder.begin(call, asynchronous)
    }

    /// Reports a failure on a device, once in the group's life. Names the ranks that are behind, where they are known.
    pub fn report(&self, why: &str) {
        let mut behind = self.behind();
        behind.retain(|text| !why.contains(text.as_str()));
        let why = if behind.is_empty() {
            why.to_owned()
        } else {
            format!("{why}; {}", behind.join(", "))
        };
        self.recorder.report(&self.endpoints.state(), &why);
    }

    fn others(&self) -> Vec<Other> {
        let host = self.host.as_ref();
        host.map_or_else(|_| vec![], |host| host.communicator().others())
    }

    /// The ranks that have ended, or have not queued the collective that this rank is stuck in.
    fn behind(&self) -> Vec<String> {
        let stuck = self.recorder.failed();
        let Some((name, sequence)) = stuck.or_else(|| self.recorder.waiting(Duration::ZERO)) else {
            return vec![];
        };
        let is_transfer = [Kind::Send.name(), Kind::Recv.name()].contains(&name);
        let tell = |other: Other| {
            let who = format!("rank {} (process {})", other.rank, other.process);
            match other.queued {
                _ if other.is_lost => Some(format!("the process of {who} has ended")),
                _ if is_transfer => None,
                None => Some(format!("{who} has queued nothing yet")),
                Some((kind, last)) => {
                    let is_behind = last < sequence || (last == sequence && kind.name() != name);
                    is_behind
                        .then(|| format!("{who} has queued last: {}, sequence {last}", kind.name()))
                }
            }
        };
        self.others().into_iter().filter_map(tell).collect()
    }

    /// Fails when a call on a device has waited for a while, and the process of another rank has ended without taking
    /// leave of the group: the libraries of most vendors wait for it for ever.
    fn check_others(&self) -> Result<()> {
        let Some((name, sequence)) = self.recorder.waiting(PATIENCE) else {
            return Ok(());
        };
        let Some(lost) = self.others().into_iter().find(|other| other.is_lost) else {
            return Ok(());
        };
        let text = format!(
            "{name} (sequence {sequence}) is not done, and the process of rank {} (process {}) has ended",
            lost.rank, lost.process
        );
        Err(Error::new(ErrorKind::PeerLost, text).due_to(lost.rank))
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
            (Side::Devices, _) => self
                .endpoints
                .async_error()
                .and_then(|()| self.check_others()),
        }
    }

    /// Waits at most `timeout_ms` for the other ranks. The error names the missing ranks: all of them with
    /// `wait_for_all`, otherwise the first. All ranks call it.
    pub fn monitored_barrier(&self, timeout_ms: i64, wait_for_all: bool) -> Result<()> {
        let number = self.monitored_barriers.fetch_add(1, Ordering::Relaxed) + 1;
        let store = Within::new(self.store.clone(), &format!("monitored/{number}/"));
        monitored_barrier::wait(&store, &self.config, timeout_ms, wait_for_all)
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
