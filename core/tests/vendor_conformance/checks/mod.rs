//! The checks that every vendor must pass. A check knows no vendor, and says in words what is wrong.

mod events;
mod memory;
pub mod probes;
mod streams;

use std::time::Duration;

use flagos_core::runtime::Vendor;

use events::*;
use memory::*;
use probes::{Outcome, Patience};
use streams::*;

type Check = fn(&dyn Vendor, &Patience) -> Outcome;

/// The suite.
pub const SUITE: &[(&str, Check)] = &[
    ("devices are described", devices_are_described),
    (
        "memory is aligned and disjoint",
        memory_is_aligned_and_disjoint,
    ),
    ("memory is accounted for", memory_is_accounted_for),
    (
        "more than there is is refused",
        more_than_there_is_is_refused,
    ),
    ("the default stream is one", the_default_stream_is_one),
    ("copies arrive", copies_arrive),
    ("work runs in order", work_runs_in_order),
    ("sync waits, query does not", sync_waits_query_does_not),
    (
        "device sync and quiesce wait for every stream",
        device_sync_waits_for_every_stream,
    ),
    (
        "a dropped stream runs its work",
        a_dropped_stream_runs_its_work,
    ),
    (
        "streams do not block each other",
        streams_do_not_block_each_other,
    ),
    ("pending is exact", pending_is_exact),
    ("an event follows its stream", an_event_follows_its_stream),
    ("a wait orders two streams", a_wait_orders_two_streams),
    (
        "a wait keeps what the event stood for",
        a_wait_keeps_what_the_event_stood_for,
    ),
    (
        "events can be dropped while queued",
        events_can_be_dropped_while_queued,
    ),
    ("time passes between events", time_passes_between_events),
    ("work knows that it is work", work_knows_that_it_is_work),
];

/// Runs the suite. Returns the name and the finding of each failed check.
#[allow(
    dead_code,
    reason = "the suite over NVIDIA's devices names each check as it runs"
)]
pub fn failures(vendor: &dyn Vendor, patience: Duration) -> Vec<String> {
    let patience = Patience(patience);
    let run = SUITE
        .iter()
        .map(|(name, check)| (name, check(vendor, &patience)));
    run.filter_map(|(name, outcome)| Some(format!("{name}: {}", outcome.err()?)))
        .collect()
}

/// Runs the one check whose name begins so, over a vendor with a flaw on which others may hang.
#[allow(dead_code, reason = "the suite over NVIDIA's devices knows no flaws")]
pub fn check_named(name: &str, vendor: &dyn Vendor) -> Outcome {
    let wanted = SUITE.iter().find(|(known, _)| known.starts_with(name));
    let (_, run) = wanted.expect("the check is in the suite");
    run(vendor, &Patience(Duration::from_secs(20)))
}
