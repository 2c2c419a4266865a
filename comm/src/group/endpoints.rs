//! The communicators of a group on devices: one of all ranks, and one for each pair of ranks with transfers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::error::defect;
use crate::store::Within;
use crate::{Communicator, Config, Error, ErrorKind, Result, Store, engine};

/// Makes a device the current one of the calling thread.
pub type UseDevice = Arc<dyn Fn(i32) -> Result<()> + Send + Sync>;

/// A communicator on a device.
pub struct Endpoint {
    /// The communicator that calls are queued with.
    pub communicator: Box<dyn Communicator>,
    /// The number of this rank in the communicator.
    pub rank: usize,
    /// The number of ranks in the communicator.
    pub size: usize,
}

/// The communicators on devices that a group has connected, which live as long as the group.
pub struct Endpoints {
    config: Config,
    store: Arc<dyn Store>,
    use_device: UseDevice,
    /// Each communicator by its ranks and its device.
    connected: Mutex<BTreeMap<(String, i32), Arc<Endpoint>>>,
    connecting: Mutex<()>,
}

impl Endpoints {
    pub(super) fn new(config: Config, store: Arc<dyn Store>, use_device: UseDevice) -> Self {
        Self {
            config,
            store,
            use_device,
            connected: Mutex::default(),
            connecting: Mutex::new(()),
        }
    }

    /// The communicator on `device` of all ranks, or of this one and `peer`. The first call connects it within
    /// `timeout`, and all its ranks make that call.
    pub fn get(
        &self,
        device: i32,
        peer: Option<usize>,
        timeout: Duration,
    ) -> Result<Arc<Endpoint>> {
        let (mine, size) = (self.config.rank, self.config.size);
        let (ranks, rank, size) = match peer {
            None => ("all".to_owned(), mine, size),
            Some(peer) if peer != mine && peer < size => {
                let (low, high) = (mine.min(peer), mine.max(peer));
                (format!("{low}-{high}"), usize::from(mine != low), 2)
            }
            Some(peer) => {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("rank {mine} of {size} cannot transfer to or from rank {peer}"),
                ));
            }
        };
        let _turn = self.connecting.lock();
        let key = (ranks, device);
        if let Some(found) = self.connected.lock().get(&key) {
            return Ok(found.clone());
        }
        let config = Config {
            device,
            rank,
            size,
            timeout,
            ..self.config.clone()
        };
        let store = Within::new(self.store.clone(), &format!("device/{}/", key.0));
        let communicator = connect_within(config, store, self.use_device.clone(), device)?;
        if !communicator.on_streams() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the engine {} does not queue work on streams",
                    communicator.engine()
                ),
            ));
        }
        let endpoint = Arc::new(Endpoint {
            communicator,
            rank,
            size,
        });
        self.connected.lock().insert(key, endpoint.clone());
        Ok(endpoint)
    }

    fn all(&self) -> Vec<Arc<Endpoint>> {
        self.connected.lock().values().cloned().collect()
    }

    pub(super) fn abort(&self, reason: &str) {
        for endpoint in self.all() {
            endpoint.communicator.abort(reason);
        }
    }

    pub(super) fn async_error(&self) -> Result<()> {
        self.all()
            .iter()
            .try_for_each(|endpoint| endpoint.communicator.async_error())
    }

    /// The list of the communicators' states; null before the first is connected.
    pub(super) fn state(&self) -> Value {
        let all = self.all();
        if all.is_empty() {
            return Value::Null;
        }
        all.iter()
            .map(|endpoint| endpoint.communicator.state())
            .collect()
    }
}

/// Connects in a thread of its own, because a library that waits for a missing rank cannot be interrupted.
fn connect_within(
    config: Config,
    store: Within,
    use_device: UseDevice,
    device: i32,
) -> Result<Box<dyn Communicator>> {
    let here = |rank: usize| format!("here/{rank}");
    store.set(&here(config.rank), b"1")?;
    let (sender, receiver) = mpsc::channel();
    let (theirs, their_store) = (config.clone(), store.clone());
    std::thread::Builder::new()
        .name("flagos_connect".into())
        .spawn(move || {
            let connected =
                use_device(device).and_then(|()| engine::connect(&theirs, &their_store));
            // A communicator that comes too late is dropped with the channel, and so disconnected.
            let _ = sender.send(connected);
        })
        .map_err(|error| {
            Error::new(
                ErrorKind::System,
                format!("the thread that connects could not be started: {error}"),
            )
        })?;
    match receiver.recv_timeout(config.timeout) {
        Ok(connected) => connected,
        Err(RecvTimeoutError::Disconnected) => Err(defect("the thread that connects has ended")),
        Err(RecvTimeoutError::Timeout) => {
            let missing: Vec<String> = (0..config.size)
                .filter(|&other| store.get(&here(other), Duration::ZERO).is_err())
                .map(|other| other.to_string())
                .collect();
            Err(Error::new(
                ErrorKind::Timeout,
                format!(
                    "group {} on rank {}: {} ranks were not connected within {} ms; not here: {}",
                    config.group,
                    config.rank,
                    config.size,
                    config.timeout.as_millis(),
                    match missing.as_slice() {
                        [] => "none, so the library itself hangs".to_owned(),
                        missing => format!("rank {}", missing.join(", ")),
                    }
                ),
            ))
        }
    }
}
