//! The last calls of a group: what they were, and how far they came. Written down when one fails.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use serde_json::{json, Value};

use crate::Collective;

/// Calls that are kept.
const KEPT: usize = 128;

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Progress {
    Queued,
    Done,
    Failed,
}

/// One call, as the report shows it.
#[derive(Debug, Clone, Serialize)]
struct Entry {
    collective: &'static str,
    sequence: u64,
    /// Elements of each part.
    count: usize,
    dtype: &'static str,
    /// The root, or the other rank of a transfer.
    root: Option<usize>,
    #[serde(rename = "async")]
    asynchronous: bool,
    progress: Progress,
    #[serde(serialize_with = "seconds")]
    queued: SystemTime,
}

/// Seconds since 1970.
fn seconds<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    to.serialize_f64(since.unwrap_or_default().as_secs_f64())
}

#[derive(Default)]
struct Log {
    entries: VecDeque<Entry>,
    /// The number of the next call.
    next: u64,
}

/// The log of one group's last calls.
pub struct FlightRecorder {
    group: String,
    rank: usize,
    folder: Option<PathBuf>,
    log: Mutex<Log>,
    reported: AtomicBool,
}

impl FlightRecorder {
    /// A log of rank `rank` of `group`, whose report goes into `folder`.
    pub fn new(group: String, rank: usize, folder: Option<PathBuf>) -> Self {
        Self {
            group,
            rank,
            folder,
            log: Mutex::default(),
            reported: AtomicBool::new(false),
        }
    }

    /// Notes a call; returns the number by which its end is noted.
    pub fn begin(&self, call: &Collective<'_>, asynchronous: bool) -> u64 {
        let mut log = self.log.lock();
        if log.entries.len() == KEPT {
            log.entries.pop_front();
        }
        log.entries.push_back(Entry {
            collective: call.kind.name(),
            sequence: call.sequence,
            count: call.count,
            dtype: call.dtype.name(),
            root: call.root,
            asynchronous,
            progress: Progress::Queued,
            queued: SystemTime::now(),
        });
        log.next += 1;
        log.next - 1
    }

    /// Notes the end of the call with this number, unless newer calls have displaced it.
    pub fn ended(&self, number: u64, well: bool) {
        let mut log = self.log.lock();
        let oldest = log.next - log.entries.len() as u64;
        let index = number.checked_sub(oldest).map(|index| index as usize);
        if let Some(entry) = index.and_then(|index| log.entries.get_mut(index)) {
            entry.progress = if well {
                Progress::Done
            } else {
                Progress::Failed
            };
        }
    }

    /// The calls from the oldest to the newest.
    pub fn calls(&self) -> Value {
        let calls: Vec<Entry> = self.log.lock().entries.iter().cloned().collect();
        serde_json::to_value(calls).unwrap_or_else(|error| json!(error.to_string()))
    }

    /// Reports a failure, the first time: to standard error, and where there is a folder to
    /// `<folder>/<group>-rank<rank>.json`, with `state` of the communicator.
    pub fn report(&self, state: &Value, why: &str) {
        if self.reported.swap(true, Ordering::AcqRel) {
            return;
        }
        let (rank, group) = (self.rank, &self.group);
        let Some(folder) = &self.folder else {
            eprintln!("[flagos] rank {rank}, group {group}: {why}");
            return;
        };
        let path = folder.join(format!("{}-rank{rank}.json", file_name(group)));
        let text = format!("{}\n", json!({"state": state, "calls": self.calls()}));
        let kept = match std::fs::write(&path, text) {
            Ok(()) => format!("in {}", path.display()),
            Err(error) => format!("lost: cannot write {}: {error}", path.display()),
        };
        eprintln!("[flagos] rank {rank}, group {group}: {why}; the last calls are {kept}");
    }
}

/// A group's name with `_` for what a file's name should not have.
fn file_name(group: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    group.chars().map(plain).collect()
}
