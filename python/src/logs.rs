//! The core's `tracing` events, handed to Python's `logging`.
//!
//! A thread that logs only pushes the record into a bounded queue: it never waits for the GIL, and when the
//! queue is full the record is dropped and counted. The first record of a burst starts a thread, which
//! takes the GIL, hands the queued records over, lingers for a moment and ends. So no thread stays behind
//! for a later `fork`, a busy main thread delays no record, and users' handlers never run inside another
//! frame, where they could deadlock on a lock of their own.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flagos_core::Error;
use flagos_core::env::LogSetting;
use parking_lot::{Condvar, Mutex, MutexGuard};
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry, reload};

use crate::errors::IntoPython as _;

/// The most records that wait for Python.
const CAPACITY: usize = 4096;
/// The time that an idle draining thread waits for another record, so that a burst does not start many threads.
const LINGER: Duration = Duration::from_millis(50);
/// The time that the end of the process waits for a handler that does not return.
const LAST_DRAIN: Duration = Duration::from_secs(5);
/// The time to wait for the queue's lock. The lock is held for nanoseconds, except in a forked child that
/// inherited it locked, where waiting would never end.
const PATIENCE: Duration = Duration::from_millis(20);

struct Record {
    level: u8,
    target: &'static str,
    message: String,
}

struct Queue {
    records: VecDeque<Record>,
    /// Whether a thread hands records over.
    draining: bool,
    /// Whether Python can be called.
    connected: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    records: VecDeque::new(),
    draining: false,
    connected: false,
});
/// Signals every change of `QUEUE`.
static CHANGED: Condvar = Condvar::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);
static FLUSH: OnceLock<Py<PyAny>> = OnceLock::new();
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

fn queue() -> Option<MutexGuard<'static, Queue>> {
    QUEUE.try_lock_for(PATIENCE)
}

/// Python's numeric level of a `tracing` level.
fn python_level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct IntoQueue;

impl<S: Subscriber> Layer<S> for IntoQueue {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata: &Metadata<'static> = event.metadata();
        let mut line = Line::default();
        event.record(&mut line);
        push(Record {
            level: python_level(*metadata.level()),
            target: metadata.target(),
            message: flagos_core::visible(&line.finish()).into_owned(),
        });
    }
}

/// The text of a record: `message key=value key=value`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn finish(mut self) -> String {
        self.message.push_str(&self.fields);
        self.message
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing into a String cannot fail; a `Debug` that fails leaves a shorter line.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            let _ = write!(self.fields, " {}={value}", field.name());
        }
    }
}

fn push(record: Record) {
    let Some(mut queue) = queue().filter(|queue| queue.records.len() < CAPACITY) else {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    queue.records.push_back(record);
    if queue.draining || !queue.connected {
        CHANGED.notify_all();
        return;
    }
    queue.draining = true;
    drop(queue);
    let thread = std::thread::Builder::new().name("flagos-logs".to_owned());
    if thread.spawn(drain).is_err() {
        // Without a thread the next record tries again, and the end of the process flushes.
        QUEUE.lock().draining = false;
    }
}

/// Hands records over until no record comes for a while.
fn drain() {
    loop {
        // The interpreter lives, because `disconnect_logs` waits for this thread before the interpreter ends.
        Python::attach(|py| {
            if let Some(flush) = FLUSH.get() {
                if let Err(error) = flush.call0(py) {
                    error.write_unraisable(py, None);
                }
            }
        });
        let mut queue = QUEUE.lock();
        if queue.records.is_empty() && queue.connected {
            CHANGED.wait_for(&mut queue, LINGER);
        }
        if queue.records.is_empty() || !queue.connected {
            queue.draining = false;
            CHANGED.notify_all();
            return;
        }
    }
}

/// Installs the subscriber, once per process. Events go nowhere until `connect_logs`.
pub fn install() {
    let (filter, handle) = reload::Layer::new(Targets::new().with_default(LevelFilter::WARN));
    let subscriber = Registry::default().with(filter).with(IntoQueue);
    // Fails only if a subscriber is set already, which no other code in this library does.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = FILTER.set(handle);
    }
}

/// Reads `warn`, `debug`, or `info,flagos_core::runtime=trace`. What is printed beside levels, such as `dispatch`, is the
/// configuration's.
fn parse_directives(directives: &str) -> flagos_core::Result<Targets> {
    let Some(directives) = LogSetting::parse(directives)?.levels else {
        return Ok(Targets::new().with_default(LevelFilter::WARN));
    };
    directives.parse().map_err(|error| {
        Error::config("FLAGOS_LOG", format!("`{directives}`: {error}")).with_hint(
            "use off, error, warn, info, debug or trace, or a list: info,flagos_core::runtime=trace",
        )
    })
}

/// Refuses a `FLAGOS_LOG` that `set_log_level` would refuse.
pub fn check_directives(directives: Option<&str>) -> flagos_core::Result<()> {
    directives.map_or(Ok(()), |text| parse_directives(text).map(drop))
}

/// Sets which records reach Python.
#[pyfunction]
pub fn set_log_level(py: Python<'_>, directives: &str) -> PyResult<()> {
    let targets = parse_directives(directives).into_python(py)?;
    match FILTER.get() {
        Some(handle) => handle
            .reload(targets)
            .map_err(|error| Error::internal("FLAGOS_LOG", error.to_string()))
            .into_python(py),
        None => Ok(()),
    }
}

/// Sets the Python function that a thread calls when records wait.
#[pyfunction]
pub fn connect_logs(flush: Py<PyAny>) {
    let _ = FLUSH.set(flush);
    if let Some(mut queue) = queue() {
        queue.connected = true;
    }
}

/// Stops calling into Python, and waits for the draining thread; for `atexit`.
#[pyfunction]
pub fn disconnect_logs(py: Python<'_>) {
    py.detach(|| {
        let Some(mut queue) = queue() else { return };
        queue.connected = false;
        CHANGED.notify_all();
        CHANGED.wait_while_for(&mut queue, |queue| queue.draining, LAST_DRAIN);
    });
}

/// Empties the queue in a forked child, which has no draining thread, and whose parent reports the queued records.
#[pyfunction]
pub fn forget_logs() {
    if let Some(mut queue) = queue() {
        queue.draining = false;
        queue.records.clear();
    }
}

/// Takes up to `limit` records as `(level, target, message)`.
#[pyfunction]
pub fn take_logs(limit: usize) -> Vec<(u8, &'static str, String)> {
    let Some(mut queue) = queue() else {
        return Vec::new();
    };
    let count = limit.min(queue.records.len());
    queue
        .records
        .drain(..count)
        .map(|record| (record.level, record.target, record.message))
        .collect()
}

/// Records dropped because the queue was full, since the last call.
#[pyfunction]
pub fn take_dropped_logs() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    install();
    module.add_function(wrap_pyfunction!(set_log_level, module)?)?;
    module.add_function(wrap_pyfunction!(connect_logs, module)?)?;
    module.add_function(wrap_pyfunction!(disconnect_logs, module)?)?;
    module.add_function(wrap_pyfunction!(forget_logs, module)?)?;
    module.add_function(wrap_pyfunction!(take_logs, module)?)?;
    module.add_function(wrap_pyfunction!(take_dropped_logs, module)?)
}
