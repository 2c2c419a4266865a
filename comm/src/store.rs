//! The framework's key-value store, through which the ranks of a group meet before they share memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// A store that all ranks of one group share, with keys of this group alone.
pub trait Store: Send + Sync {
    /// Writes a value.
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;

    /// Reads the value of a key, and waits at most `timeout` until the key exists. Fails with [`ErrorKind::Timeout`]
    /// when the key still does not exist, and with another kind when the store cannot be used.
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>>;
}

/// The part of a store whose keys have a prefix.
#[derive(Clone)]
pub struct Within {
    store: Arc<dyn Store>,
    prefix: String,
}

impl Within {
    /// Keys that begin with `prefix`, which is not part of their names here.
    pub fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self {
            store,
            prefix: prefix.to_owned(),
        }
    }
}

impl Store for Within {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.store.set(&format!("{}{key}", self.prefix), value)
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        self.store.get(&format!("{}{key}", self.prefix), timeout)
    }
}

/// Rank 0's answer to all ranks.
#[derive(Serialize, Deserialize)]
struct Report {
    /// The word of [`fresh`] that identifies this life of rank 0.
    leader: String,
    /// The greetings that rank 0 had when it wrote the answer, one for each rank; empty for a missing one.
    greetings: Vec<String>,
    /// The shared value, or the reason why there is none.
    outcome: std::result::Result<Vec<u8>, String>,
}

impl Report {
    /// Whether rank 0 had this greeting when it answered.
    fn answers(&self, greeting: &Greeting<'_>) -> bool {
        let known = self.greetings.get(greeting.rank);
        known.is_some_and(|known| known.starts_with(&format!("{} ", greeting.mine)))
    }
}

/// A word that is unique among processes, and new at each call.
pub(crate) fn fresh() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |time| time.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}.{now}.{count}", std::process::id())
}

/// The pause before a value is read again that did not change.
const AGAIN: Duration = Duration::from_millis(2);
/// The time to wait for a key that may not exist.
pub(crate) const SHORTLY: Duration = Duration::from_millis(200);

/// Shares with all ranks the value that rank 0 makes of all ranks' `greeting`s. All ranks call it. Rank 0 also gets the
/// greetings of the ranks that took the value, because `make` may have seen greetings of an earlier life.
///
/// The store may still hold entries that an earlier life of the same group wrote: launchers start ranks again and keep
/// the store. So a rank takes an answer only if it answers the rank's own greeting of this life, and rank 0 goes on
/// answering until all ranks of this life have taken the answer. After a failure rank 0 does so too, because the store
/// may end with rank 0.
pub(crate) fn share(
    store: &dyn Store,
    rank: usize,
    size: usize,
    timeout: Duration,
    greeting: &str,
    make: impl FnOnce(&[String]) -> Result<Vec<u8>>,
) -> Result<(Vec<u8>, Vec<String>)> {
    let greeting = Greeting {
        mine: fresh(),
        rank,
        size,
        text: greeting,
    };
    let deadline = Instant::now() + timeout;
    if rank == 0 {
        // Rank 0 waits a shorter time, so that the others hear which rank is missing before they time out.
        lead(store, &greeting, deadline - timeout / 10, deadline, make)
    } else {
        follow(store, &greeting, deadline).map(|shared| (shared, vec![]))
    }
}

/// A rank, as it greets the others.
struct Greeting<'g> {
    /// The word of [`fresh`] that identifies this life of the rank.
    mine: String,
    rank: usize,
    size: usize,
    text: &'g str,
}

impl Greeting<'_> {
    fn whole(&self) -> String {
        format!("{} {}", self.mine, self.text)
    }

    /// The error of a rank that was waited for.
    fn waiting_for(&self, other: usize, error: Error) -> Error {
        error.during(&format!("waiting for rank {other} of {}", self.size))
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// The value that rank 0 shares with this rank.
fn follow(store: &dyn Store, greeting: &Greeting<'_>, deadline: Instant) -> Result<Vec<u8>> {
    let &Greeting { rank, size, .. } = greeting;
    store.set(&format!("hello/{rank}"), greeting.whole().as_bytes())?;
    // The last failure that rank 0 told other ranks, or an earlier life of this rank: likely the reason of a time-out.
    let mut heard = None;
    loop {
        let answer = store.get("report", left(deadline)).and_then(|bytes| {
            let report: Report = parse(&bytes)?;
            if report.answers(greeting) {
                return Ok(Some(report));
            }
            heard = report.outcome.err().or(heard.take());
            if left(deadline).is_zero() {
                return Err(Error::new(
                    ErrorKind::Timeout,
                    "it has not answered in time",
                ));
            }
            Ok(None)
        });
        match answer {
            Ok(Some(report)) => {
                let taken = store.set(&format!("taken/{rank}"), report.leader.as_bytes());
                // The reason of rank 0's failure matters more than a store that has gone meanwhile.
                return match report.outcome {
                    Ok(shared) => taken.map(|()| shared),
                    Err(why) => Err(Error::new(ErrorKind::System, why)),
                };
            }
            Ok(None) => std::thread::sleep(AGAIN),
            Err(error) => {
                let heard = heard.map_or(String::new(), |why| {
                    format!(" (the last answer of rank 0 to any rank was: {why})")
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

/// The value that rank 0 makes and shares, and every rank's greeting. A rank that starts again is answered again, until
/// all have taken the value.
fn lead(
    store: &dyn Store,
    greeting: &Greeting<'_>,
    first_round: Instant,
    deadline: Instant,
    make: impl FnOnce(&[String]) -> Result<Vec<u8>>,
) -> Result<(Vec<u8>, Vec<String>)> {
    let mut make = Some(make);
    let mut outcome: Option<std::result::Result<Vec<u8>, String>> = None;
    let mut failure = None;
    let mut answered: Vec<String> = vec![];
    loop {
        let Heard { greetings, absent } = match greetings(store, greeting, first_round) {
            Ok(heard) => heard,
            Err(error) => return Err(failure.unwrap_or(error)),
        };
        if let Some((rank, error)) = absent {
            outcome.get_or_insert(Err(error.to_string()));
            failure.get_or_insert(error.due_to(rank));
        }
        if answered != greetings {
            if let Some(make) = make.take().filter(|_| outcome.is_none()) {
                outcome = Some(make(&words(&greetings)).map_err(|error| {
                    let text = error.to_string();
                    failure = Some(error);
                    text
                }));
            }
            let report = Report {
                leader: greeting.mine.clone(),
                greetings: greetings.clone(),
                outcome: outcome
                    .clone()
                    .unwrap_or_else(|| Err("nothing to share".into())),
            };
            let text = serde_json::to_vec(&report)
                .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
            if let Err(error) = store.set("report", &text) {
                return Err(failure.unwrap_or(error));
            }
            answered = greetings;
        }
        let missing = match yet_to_take(store, greeting, &answered) {
            Ok(missing) => missing,
            Err(error) => return Err(failure.unwrap_or(error)),
        };
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
            let late = Error::new(ErrorKind::Timeout, "it has not answered in time");
            return Err(greeting.waiting_for(missing, late).due_to(missing));
        }
        std::thread::sleep(AGAIN);
    }
}

/// The messages of the other ranks that rank 0 reads in a round.
struct Heard {
    /// One message per rank; empty for a rank that has not come.
    greetings: Vec<String>,
    /// The first rank that has not come, and the error.
    absent: Option<(usize, Error)>,
}

/// The greetings of the ranks that come by then. Fails when the store cannot be used.
fn greetings(store: &dyn Store, greeting: &Greeting<'_>, until: Instant) -> Result<Heard> {
    let mut greetings = vec![greeting.whole()];
    let mut absent = None;
    for other in 1..greeting.size {
        match store.get(&format!("hello/{other}"), left(until).max(SHORTLY)) {
            Ok(bytes) => greetings.push(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => {
                let broken = error.kind() != ErrorKind::Timeout;
                let error = greeting.waiting_for(other, error);
                if broken {
                    // That a rank was missing before matters more.
                    return Err(
                        absent.map_or(error, |(rank, first): (usize, Error)| first.due_to(rank))
                    );
                }
                absent.get_or_insert((other, error));
                greetings.push(String::new());
            }
        }
    }
    Ok(Heard { greetings, absent })
}

/// The first rank that was answered and has not taken the value from this life of rank 0. Fails when the store cannot be
/// used.
fn yet_to_take(
    store: &dyn Store,
    greeting: &Greeting<'_>,
    answered: &[String],
) -> Result<Option<usize>> {
    for other in (1..greeting.size).filter(|&other| !answered[other].is_empty()) {
        match store.get(&format!("taken/{other}"), SHORTLY) {
            Ok(by) if by == greeting.mine.as_bytes() => {}
            Err(error) if error.kind() != ErrorKind::Timeout => {
                return Err(greeting.waiting_for(other, error));
            }
            _ => return Ok(Some(other)),
        }
    }
    Ok(None)
}

/// The greetings without the words that identify the ranks' lives.
fn words(greetings: &[String]) -> Vec<String> {
    greetings
        .iter()
        .map(|text| text.split_once(' ').map_or("", |(_, word)| word).to_owned())
        .collect()
}

fn parse(bytes: &[u8]) -> Result<Report> {
    serde_json::from_slice(bytes).map_err(|error| {
        Error::new(
            ErrorKind::Mismatch,
            format!(
                "the answer of rank 0 cannot be read ({error}): do all ranks run the same flagos?"
            ),
        )
    })
}

#[cfg(test)]
#[path = "store_tests.rs"]
pub(crate) mod tests;
