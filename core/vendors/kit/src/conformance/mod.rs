//! The suite that every vendor must pass.
//!
//! A check drives a vendor through the trait alone, so that one suite serves the vendors of this build and those of
//! libraries. It has to be true of any chip, and says in words what is wrong.

mod events;
mod graphs;
mod memory;
mod probes;
mod streams;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flagos_core::error::panic_text;
use flagos_core::runtime::Vendor;

pub use probes::{Gate, Outcome, Pinned};

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// The name, for people and for programs: words with hyphens.
    pub name: &'static str,
    /// What a vendor that passes has shown.
    pub proves: &'static str,
    /// The functions of `flagos_vendor.h` to look at after a failure.
    pub functions: &'static [&'static str],
    run: fn(&dyn Vendor, Duration) -> Outcome,
}

impl Check {
    /// Runs the check over device 0. `patience` is the time that it gives a wrong vendor to do what a right one does
    /// not. A vendor with a flaw may leave the check waiting for ever.
    ///
    /// # Errors
    /// What is wrong, in words; for a panic of the vendor its message.
    pub fn run(&self, vendor: &dyn Vendor, patience: Duration) -> Outcome {
        catch_unwind(AssertUnwindSafe(|| (self.run)(vendor, patience)))
            .unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic))))
    }
}

/// The suite, in the order in which a vendor is best written.
pub const CHECKS: &[Check] = &[
    Check {
        name: "devices-are-described",
        proves: "every device has a name, processors and memory, and a device that is not there is refused",
        functions: &["device_count", "device_properties", "device_memory"],
        run: memory::devices_are_described,
    },
    Check {
        name: "memory-is-disjoint",
        proves: "allocations begin at multiples of 512 bytes and do not overlap",
        functions: &["memory_alloc", "memory_free"],
        run: memory::memory_is_disjoint,
    },
    Check {
        name: "memory-is-accounted-for",
        proves: "an allocation lowers the free memory, and freeing it raises it again",
        functions: &["device_memory", "memory_alloc", "memory_free"],
        run: memory::memory_is_accounted_for,
    },
    Check {
        name: "too-much-is-refused",
        proves: "a request beyond the device's memory fails with OUT_OF_MEMORY, and the next one is served",
        functions: &["memory_alloc"],
        run: memory::too_much_is_refused,
    },
    Check {
        name: "default-stream-is-one",
        proves: "every call for the default stream gives the same stream, and a new stream is another one",
        functions: &["stream_default", "stream_create", "stream_is_idle"],
        run: streams::default_stream_is_one,
    },
    Check {
        name: "copies-arrive",
        proves: "bytes are the same after copies to the device, within it, and back",
        functions: &["stream_copy", "pinned_alloc"],
        run: memory::copies_arrive,
    },
    Check {
        name: "work-runs-in-order",
        proves: "functions queued on one stream run one after the other",
        functions: &["stream_host_function"],
        run: streams::work_runs_in_order,
    },
    Check {
        name: "sync-waits",
        proves: "a stream's sync returns after the work has run, and its query at once",
        functions: &["stream_sync", "stream_query"],
        run: streams::sync_waits,
    },
    Check {
        name: "device-sync-waits",
        proves: "both return after the work of the default stream and of all others has run",
        functions: &["device_sync", "device_quiesce"],
        run: streams::device_sync_waits,
    },
    Check {
        name: "dropped-stream-runs-on",
        proves: "what is queued on a stream runs although the stream is destroyed",
        functions: &["stream_destroy", "device_quiesce"],
        run: streams::dropped_stream_runs_on,
    },
    Check {
        name: "streams-are-independent",
        proves: "a stream goes on while another one waits",
        functions: &["stream_create", "stream_copy", "stream_is_idle"],
        run: streams::streams_are_independent,
    },
    Check {
        name: "pending-is-exact",
        proves: "with HOST_COMPUTES every item is counted until it has finished; without it nothing is counted",
        functions: &[
            "open",
            "stream_copy",
            "stream_host_function",
            "event_record",
            "event_wait",
        ],
        run: streams::pending_is_exact,
    },
    Check {
        name: "event-follows-its-stream",
        proves: "an event is finished when the work before its record is, and not earlier",
        functions: &["event_record", "event_query", "event_sync"],
        run: events::event_follows_its_stream,
    },
    Check {
        name: "wait-orders-streams",
        proves: "work queued after a wait starts after the work that the event stands for",
        functions: &["event_wait", "event_record"],
        run: events::wait_orders_streams,
    },
    Check {
        name: "wait-keeps-its-point",
        proves: "recording an event again does not change the waits that are queued",
        functions: &["event_wait", "event_record"],
        run: events::wait_keeps_its_point,
    },
    Check {
        name: "dropped-event-is-waited-for",
        proves: "a queued wait holds although its event is destroyed",
        functions: &["event_destroy", "event_wait"],
        run: events::dropped_event_is_waited_for,
    },
    Check {
        name: "time-passes-between-events",
        proves: "the time between two events has a sign and a plausible size, and is refused where there is none",
        functions: &["event_elapsed", "event_create"],
        run: events::time_passes_between_events,
    },
    Check {
        name: "work-knows-that-it-is-work",
        proves: "the vendor recognises its own threads, on which waiting would never end",
        functions: &["in_stream_work"],
        run: streams::work_knows_that_it_is_work,
    },
    Check {
        name: "captured-work-is-replayed",
        proves: "with CAPTURES, work queued during a capture runs at each replay, and not before; without it nothing",
        functions: &[
            "capture_begin",
            "capture_status",
            "capture_end",
            "graph_launch",
        ],
        run: graphs::captured_work_is_replayed,
    },
    Check {
        name: "streams-join-a-capture",
        proves: "with CAPTURES, streams join by events, and a capture that they do not leave fails and leaves them usable",
        functions: &[
            "capture_end",
            "capture_status",
            "event_record",
            "event_wait",
        ],
        run: graphs::streams_join_a_capture,
    },
    Check {
        name: "a-capture-refuses-waits",
        proves: "with CAPTURES, what a capture forbids fails with UNSUPPORTED, and the capture goes on",
        functions: &[
            "stream_sync",
            "event_sync",
            "device_sync",
            "stream_copy",
            "stream_host_function",
        ],
        run: graphs::a_capture_refuses_waits,
    },
    Check {
        name: "dropped-graph-runs-on",
        proves: "with CAPTURES, the queued runs of a graph run although the graph is destroyed",
        functions: &["graph_destroy", "graph_launch"],
        run: graphs::dropped_graph_runs_on,
    },
];

/// The check of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}

/// Runs the suite. Returns the name and the finding of each failed check.
#[must_use]
pub fn failures(vendor: &dyn Vendor, patience: Duration) -> Vec<String> {
    let run = CHECKS
        .iter()
        .map(|check| (check.name, check.run(vendor, patience)));
    run.filter_map(|(name, outcome)| Some(format!("{name}: {}", outcome.err()?)))
        .collect()
}

#[cfg(test)]
mod tests {

    use super::*;
    use flagos_core::env::HostSettings;
    use flagos_core::vendors::host::HostVendor;

    #[test]
    fn names_are_one_checks_and_functions_are_in_the_header() {
        let header = include_str!("../../../../include/flagos_vendor.h");
        for check in CHECKS {
            let same = CHECKS.iter().filter(|other| other.name == check.name);
            assert_eq!(same.count(), 1, "{}", check.name);
            let letter = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(check.name.chars().all(letter), "{}", check.name);
            assert!(!check.functions.is_empty(), "{}", check.name);
            for function in check.functions {
                assert!(header.contains(&format!("(*{function})(")), "{function}");
            }
        }
        assert!(named("copies-arrive").is_some() && named("copies").is_none());
    }

    #[test]
    fn a_panic_is_a_finding() {
        let vendor = HostVendor::new(&HostSettings::default(), Box::leak(Box::default()));
        let panics = Check {
            run: |vendor, _| panic!("{} panics", vendor.name()),
            ..CHECKS[0]
        };
        let outcome = panics.run(&vendor, Duration::ZERO);
        assert_eq!(outcome, Err("panic: host panics".into()));
    }
}
