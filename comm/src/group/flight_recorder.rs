//! The log of a group's last calls and their outcomes, which is written to a file when a call fails.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::Collective;

/// The number of calls that are kept.
const CAPACITY: usize = 128;

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Progress {
    Queued,
    Done,
    Failed,
}

/// A call in the report.
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

/// Writes a time as seconds since 1970.
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
    /// The log of rank `rank` of `group`, whose report goes into `folder`.
    pub fn new(group: String, rank: usize, folder: Option<PathBuf>) -> Self {
        Self {
            group,
            rank,
            folder,
            log: Mutex::default(),
            reported: AtomicBool::new(false),
        }
    }

    /// Notes a call. Returns its number for [`Self::ended`].
    pub fn begin(&self, call: &Collective<'_>, asynchronous: bool) -> u64 {
        let mut log = self.log.lock();
        if log.entries.len() == CAPACITY {
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

    /// Notes the end of the call with this number, unless newer calls have taken its place.
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

    /// The oldest call that has been waiting for at least `least`: its name and its number.
    pub fn waiting(&self, least: Duration) -> Option<(&'static str, u64)> {
        let now = SystemTime::now();
        let waits = |entry: &Entry| {
            let since = now.duration_since(entry.queued);
            matches!(entry.progress, Progress::Queued) && since.is_ok_and(|since| since >= least)
        };
        self.find(waits)
    }

    /// The oldest call that has failed, if its place has not been taken.
    pub fn failed(&self) -> Option<(&'static str, u64)> {
        self.find(|entry| matches!(entry.progress, Progress::Failed))
    }

    fn find(&self, is_it: impl Fn(&Entry) -> bool) -> Option<(&'static str, u64)> {
        let log = self.log.lock();
        let found = log.entries.iter().find(|entry| is_it(entry));
        found.map(|entry| (entry.collective, entry.sequence))
    }

    /// The calls from the oldest to the newest.
    pub fn calls(&self) -> Value {
        let calls: Vec<Entry> = self.log.lock().entries.iter().cloned().collect();
        serde_json::to_value(calls).unwrap_or_else(|error| json!(error.to_string()))
    }

    /// Reports the first failure: to standard error, and with a folder also to `<folder>/<group>-rank<rank>.json`,
    /// with the `state` of the communicator.
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
        let place = match std::fs::write(&path, text) {
            Ok(()) => format!("in {}", path.display()),
            Err(error) => format!("lost: cannot write {}: {error}", path.display()),
        };
        eprintln!("[flagos] rank {rank}, group {group}: {why}; the last calls are {place}");
    }
}

/// A group's name as part of a file name, with `_` for characters that a file name should not have.
fn file_name(group: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    group.chars().map(plain).collect()
}
