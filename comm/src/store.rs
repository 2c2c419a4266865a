//! Where the ranks of a group meet before they can talk: a key-value store of the framework.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// A store all ranks of one group see, with keys of this group alone.
pub trait Store {
    /// Writes a value.
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;

    /// Waits until the key is there, at most `timeout`, and reads it. Fails with [`ErrorKind::Timeout`] when it did
    /// not come, and with another kind when the store cannot be used.
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>>;
}

/// What rank 0 tells all ranks.
#[derive(Serialize, Deserialize)]
struct Told {
    /// Which life of rank 0 this is.
    leader: String,
    /// The greeting of every rank that rank 0 had when it wrote this.
    greetings: Vec<String>,
    /// What is shared, or why there is nothing.
    outcome: std::result::Result<Vec<u8>, String>,
}

/// A word that no other process says, nor this one again.
pub(crate) fn fresh() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |time| time.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}.{now}.{count}", std::process::id())
}

/// How often a key is looked at that is there already, and how long is waited for one that is not.
const AGAIN: Duration = Duration::from_millis(2);
pub(crate) const SHORTLY: Duration = Duration::from_millis(200);

/// Hands to all ranks what rank 0 makes of all ranks' `greeting`s, and to rank 0 also the greetings of those that took
/// it: what it was made of may have been an earlier life's. All ranks call it.
///
/// The store may still have what an earlier life of the same group wrote: launchers start ranks again and keep
/// the store. So a rank takes an answer only if it answers its own greeting of this life, and rank 0 goes on
/// answering until all ranks of this life have taken the answer. It does so when it has failed too, as its end may
/// be the store's end.
pub(crate) fn share(
    store: &dyn Store,
    rank: usize,
    size: usize,
    timeout: Duration,
    greeting: &str,
    make: impl FnOnce(&[String]) -> Result<Vec<u8>>,
) -> Result<(Vec<u8>, Vec<String>)> {
    let mine = fresh();
    let deadline = Instant::now() + timeout;
    let left = |until: Instant| until.saturating_duration_since(Instant::now());
    if rank != 0 {
        store.set(
            &format!("hello/{rank}"),
            format!("{mine} {greeting}").as_bytes(),
        )?;
        // What rank 0 told others, or this rank's earlier life. Why there is no answer is likely in it.
        let mut heard = None;
        loop {
            let answer = store.get("told", left(deadline)).and_then(|bytes| {
                let told: Told = parse(&bytes)?;
                let mine = told
                    .greetings
                    .get(rank)
                    .is_some_and(|it| it.starts_with(&format!("{mine} ")));
                if mine {
                    return Ok(Some(told));
                }
                heard = told.outcome.err().or(heard.take());
                if left(deadline).is_zero() {
                    return Err(Error::new(
                        ErrorKind::Timeout,
                        "it has not answered in time",
                    ));
                }
                Ok(None)
            });
            match answer {
                Ok(Some(told)) => {
                    let taken = store.set(&format!("taken/{rank}"), told.leader.as_bytes());
                    // The reason of a failure counts more than that the store has gone meanwhile.
                    return match told.outcome {
                        Ok(shared) => taken.map(|()| (shared, vec![])),
                        Err(why) => Err(Error::new(ErrorKind::System, why)),
                    };
                }
                Ok(None) => std::thread::sleep(AGAIN),
                Err(error) => {
                    let heard = heard.map_or(String::new(), |why| {
                        format!(" (the last that rank 0 told any rank is: {why})")
                    });
                    let kind = error.kind();
                    let error = Error::new(
                        kind,
                        format!("waiting for rank 0 of {size}: {error}{heard}"),
                    );
                    return Err(match kind {
                        ErrorKind::Timeout => error.due_to(0),
                        _ => error,
                    });
                }
            }
        }
    }

    // The others are to hear of who is missing before their own time is over.
    let first_round = deadline - timeout / 10;
    let mut make = Some(make);
    let mut outcome: Option<std::result::Result<Vec<u8>, String>> = None;
    let mut failure = None;
    let mut answered: Vec<String> = vec![];
    loop {
        let mut greetings = vec![format!("{mine} {greeting}")];
        for other in 1..size {
            match store.get(&format!("hello/{other}"), left(first_round).max(SHORTLY)) {
                Ok(bytes) => greetings.push(String::from_utf8_lossy(&bytes).into_owned()),
                Err(error) => {
                    let broken = error.kind() != ErrorKind::Timeout;
                    let error = error.during(&format!("waiting for rank {other} of {size}"));
                    if broken {
                        return Err(failure.unwrap_or(error));
                    }
                    outcome.get_or_insert(Err(error.to_string()));
                    failure.get_or_insert(error.due_to(other));
                    greetings.push(String::new());
                }
            }
        }
        if answered != greetings {
            if let Some(make) = make.take().filter(|_| outcome.is_none()) {
                outcome = Some(make(&words(&greetings)).map_err(|error| {
                    let text = error.to_string();
                    failure = Some(error);
                    text
                }));
            }
            let told = Told {
                leader: mine.clone(),
                greetings: greetings.clone(),
                outcome: outcome
                    .clone()
                    .unwrap_or_else(|| Err("nothing to share".into())),
            };
            let text = serde_json::to_vec(&told)
                .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
            if let Err(error) = store.set("told", &text) {
                return Err(failure.unwrap_or(error));
            }
            answered = greetings;
        }
        let mut missing = None;
        for other in (1..size).filter(|&other| !answered[other].is_empty()) {
            match store.get(&format!("taken/{other}"), SHORTLY) {
                Ok(by) if by == mine.as_bytes() => {}
                Err(error) if error.kind() != ErrorKind::Timeout => {
                    let error = error.during(&format!("waiting for rank {other} of {size}"));
                    return Err(failure.unwrap_or(error));
                }
                _ => {
                    missing = Some(other);
                    break;
                }
            }
        }
        let over = left(deadline).is_zero();
        if let Some(error) = failure.take_if(|_| over || missing.is_none()) {
            return Err(error);
        }
        let Some(missing) = missing else {
            return outcome
                .unwrap_or_else(|| Err("nothing to share".into()))
                .map(|shared| (shared, words(&answered)))
                .map_err(|why| Error::new(ErrorKind::System, why));
        };
        if over {
            return Err(Error::new(
                ErrorKind::Timeout,
                format!("waiting for rank {missing} of {size}: it has not answered in time"),
            )
            .due_to(missing));
        }
        std::thread::sleep(AGAIN);
    }
}

/// Greetings without the word that says whose life they are of.
fn words(greetings: &[String]) -> Vec<String> {
    greetings
        .iter()
        .map(|text| text.split_once(' ').map_or("", |(_, word)| word).to_owned())
        .collect()
}

fn parse(bytes: &[u8]) -> Result<Told> {
    serde_json::from_slice(bytes).map_err(|error| {
        Error::new(
            ErrorKind::Mismatch,
            format!(
                "rank 0 answered what cannot be read ({error}): do all ranks run the same flagos?"
            ),
        )
    })
}

#[cfg(test)]
#[path = "store_tests.rs"]
pub(crate) mod tests;
