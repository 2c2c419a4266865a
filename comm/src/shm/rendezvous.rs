//! How the ranks of a group find each other and map the memory they share.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use super::collectives::least_window;
use super::communicator::Shm;
use super::flag::reached;
use super::member::Member;
use super::peers::Peer;
use super::segment::Segment;
use crate::Config;
use crate::error::system;
use crate::store::{SHORTLY, fresh, share};
use crate::{Error, ErrorKind, Result, Store};

/// The identity of the host: boot and process namespace, which are equal for processes that can open each other's
/// memory.
///
/// Fails where the identity cannot be read, such as in a process without a free descriptor, which would otherwise seem
/// to be on another host.
pub(super) fn host() -> Result<String> {
    let unreadable = |path: &str, error: std::io::Error| {
        Error::new(
            ErrorKind::System,
            format!("{path}, which identifies the host, cannot be read: {error}"),
        )
    };
    let (boot, namespace) = ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid");
    let boot = std::fs::read_to_string(boot).map_err(|error| unreadable(boot, error))?;
    let namespace = std::fs::read_link(namespace).map_err(|error| unreadable(namespace, error))?;
    Ok(format!("{} {}", boot.trim(), namespace.display()))
}

/// The interval at which a rank that waits for others to attach asks the store whether one of them failed to.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The key under which a rank reports that it cannot open the memory at `place`.
fn unattached(place: &[u8]) -> String {
    format!("unattached/{}", String::from_utf8_lossy(place))
}

/// The error for another rank's report under that key.
fn failed_elsewhere(message: &[u8]) -> Error {
    let message = String::from_utf8_lossy(message);
    let (rank, why) = message.split_once(' ').unwrap_or(("?", &message));
    let error = Error::new(
        ErrorKind::System,
        format!("rank {rank} could not attach to the shared memory of its group: {why}"),
    );
    rank.parse()
        .map_or(error.clone(), |rank| error.due_to(rank))
}

/// Connects the ranks of a group. All of them call it.
///
/// Fails with the numbers of the ranks that are on another host than rank 0.
pub fn connect(config: &Config, store: &dyn Store) -> Result<Shm> {
    let Config {
        rank,
        size,
        timeout,
        ..
    } = *config;
    let deadline = Instant::now() + timeout;
    let mut made = None;
    let greeting = format!("{} {}", std::process::id(), host()?);
    let (place, greetings) = share(store, rank, size, timeout, &greeting, |greetings| {
        make_place(config, greetings, &mut made)
    })?;
    if let Some(ranks) = place.strip_prefix(ELSEWHERE) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the engine shm serves processes of one host; rank {} is on another one than rank 0, or in another \
                 container: use gloo for tensors on the CPU there (\"cpu:gloo,flagos:flagos\")",
                String::from_utf8_lossy(ranks)
            ),
        ));
    }
    let (segment, file) = match made {
        Some((segment, file)) => (segment, Some(file)),
        None => match open(&place, size) {
            Ok(segment) => (segment, None),
            Err(error) => {
                // The others wait for this rank in memory that it cannot write, so the store tells them.
                let published =
                    store.set(&unattached(&place), format!("{rank} {error}").as_bytes());
                return Err(published.err().map_or(error.clone(), |store| {
                    Error::new(error.kind(), format!("{error} ({store})"))
                }));
            }
        },
    };

    let mine = segment.control(rank);
    mine.pid
        .store(std::process::id(), std::sync::atomic::Ordering::Release);
    mine.attached.publish(1);
    let mut peers = Vec::with_capacity(size);
    let mut look = Instant::now() + LOOK_AFTER;
    for other in 0..size {
        let control = segment.control(other);
        // Rank 0 knows the processes from their greetings, and reports one that has ended to the others.
        let process = greetings.get(other).and_then(|greeting| process(greeting));
        while !reached(control.attached.get(), 1) {
            let gone = process.as_ref().is_some_and(Peer::is_gone);
            if gone || Instant::now() > look {
                // A rank that could not attach reports it before it ends.
                if let Ok(why) = store.get(&unattached(&place), SHORTLY) {
                    return Err(failed_elsewhere(&why));
                }
                look = Instant::now() + LOOK_AFTER;
            }
            if gone && !reached(control.attached.get(), 1) {
                return Err(ended_while_connecting(store, &place, other));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    ErrorKind::Timeout,
                    format!("rank {other} did not attach to the shared memory of its group"),
                )
                .due_to(other));
            }
            control
                .attached
                .sleep(0, left.min(Duration::from_millis(50)));
        }
        let pid = control.pid.load(std::sync::atomic::Ordering::Acquire);
        peers.push((other != rank).then(|| Peer::new(pid)));
    }
    drop(file); // every rank has mapped it
    let member = Member::new(segment, rank, size, config.group.clone(), peers);
    Ok(Shm::new(member))
}

/// How rank 0's answer begins when ranks are on other hosts, which follow.
const ELSEWHERE: &[u8] = b"elsewhere ";

/// The place of the memory, which rank 0 makes once it knows that all ranks are on its host, and leaves in `made`; or
/// [`ELSEWHERE`] and the ranks that are not.
fn make_place(
    config: &Config,
    greetings: &[String],
    made: &mut Option<(Segment, std::fs::File)>,
) -> Result<Vec<u8>> {
    let size = config.size;
    let hosts: Vec<&str> = greetings
        .iter()
        .map(|greeting| greeting.split_once(' ').unwrap_or_default().1)
        .collect();
    let elsewhere: Vec<String> = (0..size)
        .filter(|&other| hosts[other] != hosts[0])
        .map(|other| other.to_string())
        .collect();
    if !elsewhere.is_empty() {
        return Ok([ELSEWHERE, elsewhere.join(", ").as_bytes()].concat());
    }
    let window = config.window.max(least_window(size));
    let (segment, file) = Segment::create(size, window)?;
    let place = format!(
        "{} {} {} {}",
        std::process::id(),
        file.as_raw_fd(),
        window,
        fresh(), // makes the place unique among groups
    );
    *made = Some((segment, file));
    Ok(place.into_bytes())
}

/// The error of a rank that ended before it attached, which the store tells the others.
fn ended_while_connecting(store: &dyn Store, place: &[u8], rank: usize) -> Error {
    let why = "its process has ended while the group was connecting";
    let published = store.set(&unattached(place), format!("{rank} {why}").as_bytes());
    let published = published
        .err()
        .map_or(String::new(), |it| format!(" ({it})"));
    Error::new(
        ErrorKind::PeerLost,
        format!("rank {rank} is lost: {why}{published}"),
    )
    .due_to(rank)
}

/// The process that a greeting of `connect` names.
fn process(greeting: &str) -> Option<Peer> {
    let (pid, _) = greeting.split_once(' ')?;
    pid.parse().ok().map(Peer::new)
}

/// Maps the memory at the place that rank 0 shared.
fn open(place: &[u8], size: usize) -> Result<Segment> {
    let place = String::from_utf8_lossy(place);
    let numbers: Vec<usize> = place
        .split(' ')
        .take(3)
        .filter_map(|part| part.parse().ok())
        .collect();
    let [process, descriptor, window] = numbers[..] else {
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "rank 0 sent {place:?} as the place of its memory: do all ranks run the same flagos?"
            ),
        ));
    };
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = File::options().read(true).write(true).open(&path).map_err(|_| {
        let error = system(&path);
        Error::new(
            ErrorKind::System,
            format!("{error}: rank 0's memory cannot be opened; all ranks must run as one user, in processes that may be inspected"),
        )
        .due_to(0)
    })?;
    Segment::open(&file, size, window)
}
