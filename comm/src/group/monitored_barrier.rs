//! A barrier that names the missing ranks. Every rank writes to the store that it has come; rank 0 reads, and writes
//! the outcome for all.
//!
//! The messages have the words of torch's `ProcessGroupGloo::monitoredBarrier`.

use std::time::{Duration, Instant};

use crate::{Config, Error, ErrorKind, Result, Store};

/// The least time to wait for a rank, in which one that has come already is noticed.
const LEAST: Duration = Duration::from_millis(1);
/// The time that the other ranks wait longer than rank 0, which may need all of its time to find the missing ranks.
const TO_TELL: Duration = Duration::from_secs(5);
const VERDICT: &str = "verdict";
const WELL: &str = "ok";

/// Waits for all ranks of `config`, through a store with keys of this barrier alone.
pub fn wait(store: &dyn Store, config: &Config, timeout_ms: i64, wait_for_all: bool) -> Result<()> {
    let timeout = Duration::from_millis(timeout_ms.try_into().unwrap_or(0));
    let deadline = Instant::now() + timeout;
    let left = || {
        deadline
            .saturating_duration_since(Instant::now())
            .max(LEAST)
    };
    let within = format!(" in {timeout_ms} ms, in group {}", config.group);
    store.set(&config.rank.to_string(), b"1")?;
    if config.rank != 0 {
        let verdict = match store.get(VERDICT, left() + TO_TELL) {
            Ok(verdict) => String::from_utf8_lossy(&verdict).into_owned(),
            Err(error) if error.kind() == ErrorKind::Timeout => {
                format!("Rank 0 failed to pass monitoredBarrier{within}")
            }
            Err(error) => return Err(error),
        };
        return judge(&verdict, || {
            format!(
                "Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv from \
                 rank 0: {verdict}",
                config.rank
            )
        });
    }
    let mut missing: Vec<String> = vec![];
    if timeout_ms > 0 {
        for other in 1..config.size {
            if !wait_for_all && !missing.is_empty() {
                break;
            }
            match store.get(&other.to_string(), left()) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Timeout => missing.push(other.to_string()),
                Err(error) => return Err(error),
            }
        }
    }
    let verdict = match missing.as_slice() {
        [] if timeout_ms <= 0 && config.size > 1 => {
            format!("Rank 0 timed out in monitoredBarrier after {timeout_ms} ms")
        }
        [] => WELL.to_owned(),
        [one] => format!("Rank {one} failed to pass monitoredBarrier{within}"),
        several => format!(
            "Ranks {} failed to pass monitoredBarrier{within}",
            several.join(", ")
        ),
    };
    store.set(VERDICT, verdict.as_bytes())?;
    judge(&verdict, || verdict.clone())
}

fn judge(verdict: &str, message: impl FnOnce() -> String) -> Result<()> {
    if verdict == WELL {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Timeout, message()))
}
