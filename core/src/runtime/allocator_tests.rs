//! The caching allocator over the host vendor, by example and against a naive model.

use std::sync::{Arc, mpsc};

use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;

use crate::ErrorKind;
use crate::env::{FaultSite, HostSettings};
use crate::vendors::host::HostVendor;

use super::*;

const MIB: usize = 1 << 20;

type HostAllocator = CachingAllocator<HostVendor>;

fn over(settings: HostSettings) -> HostAllocator {
    CachingAllocator::over(HostVendor::new(&settings, Box::leak(Box::default())))
        .expect("a host allocator")
}

fn with_memory(bytes: usize) -> HostAllocator {
    over(HostSettings {
        memory: Some(bytes as u64),
        ..HostSettings::default()
    })
}

/// Work that blocks its stream until it is opened or dropped.
#[derive(Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl Gate {
    fn block(&self, stream: &dyn Stream) {
        let gate = Arc::clone(&self.0);
        let wait = move || {
            let mut open = gate.0.lock();
            while !*open {
                gate.1.wait(&mut open);
            }
        };
        launch_closure(stream, wait).expect("queued");
    }

    fn open(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

fn alloc(allocator: &HostAllocator, stream: u64, nbytes: usize) -> Allocation {
    allocator
        .alloc(0, stream, nbytes)
        .expect("memory")
        .expect("not empty")
}

#[test]
fn nothing_costs_nothing() {
    let allocator = with_memory(64 * MIB);
    assert_eq!(allocator.alloc(0, 0, 0).expect("ok"), None);
    assert_eq!(allocator.stats(0).expect("stats"), MemoryStats::default());
}

#[test]
fn a_freed_block_is_used_again() {
    let allocator = with_memory(64 * MIB);
    let first = alloc(&allocator, 0, 1000);
    allocator.free(first.block).expect("allocated");
    let second = alloc(&allocator, 0, 1000);
    assert_eq!(first.data, second.data);
    assert_ne!(first.block, second.block, "the generation tells them apart");
    assert_eq!(allocator.stats(0).expect("stats").segment.all.current, 1);
}

#[test]
fn the_end_waits_for_blocks_that_streams_use() {
    let vendor = Arc::new(HostVendor::new(
        &HostSettings::default(),
        Box::leak(Box::default()),
    ));
    let free = |vendor: &HostVendor| vendor.memory(0).expect("memory").free;
    let before = free(&vendor);
    let streams = Arc::new(Streams::new(Arc::clone(&vendor) as Arc<dyn Vendor>));
    let allocator = CachingAllocator::new(Arc::clone(&vendor), Arc::clone(&streams));
    let allocator = allocator.expect("an allocator");
    let pinned = PinnedAllocator::new(Arc::clone(&streams));
    let stream = streams.create(0, 0).expect("a stream");
    let gate = Gate::default();
    gate.block(streams.get(0, stream).expect("it exists"));
    let block = alloc(&allocator, 0, 4096).block;
    allocator.record_stream(block, 0, stream).expect("noted");
    allocator.free(block).expect("allocated");
    let host = pinned.alloc(4096).expect("memory").expect("not empty");
    let noted = pinned.record_stream(host.data.as_ptr() as usize, 0, stream);
    noted.expect("noted");
    pinned.free(host.block).expect("allocated");
    assert!(free(&vendor) < before, "the block waits for the stream");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            gate.open();
        });
        drop(pinned);
        drop(allocator);
    });
    assert_eq!(free(&vendor), before);
}

#[test]
fn wrong_handles_are_refused() {
    let allocator = with_memory(64 * MIB);
    let block = alloc(&allocator, 0, 8).block;
    allocator.free(block).expect("allocated");
    for error in [
        allocator.free(block).expect_err("freed twice"),
        allocator.record_stream(block, 0, 0).expect_err("freed"),
        allocator
            .record_stream(block, 0, 7)
            .expect_err("no such stream"),
        allocator.alloc(0, 7, 8).expect_err("no such stream"),
        allocator.alloc(3, 0, 8).expect_err("no such device"),
        allocator
            .free(BlockHandle::from_bits(u64::MAX).expect("bits"))
            .expect_err("nonsense"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

#[test]
fn a_recorded_block_waits_for_its_stream() {
    let allocator = with_memory(64 * MIB);
    let stream = allocator.streams().create(0, 0).expect("a stream");
    let target = allocator.streams().get(0, stream).expect("it exists");
    let gate = Gate::default();
    let first = alloc(&allocator, 0, 4096);
    gate.block(target);
    allocator
        .record_stream(first.block, 0, stream)
        .expect("allocated");
    allocator.free(first.block).expect("allocated");
    let stats = allocator.stats(0).expect("stats");
    assert_eq!(
        (stats.allocation.all.current, stats.active.all.current),
        (0, 1)
    );
    let second = alloc(&allocator, 0, 4096);
    assert_ne!(first.data, second.data);
    gate.open();
    target.sync().expect("no failure");
    assert_eq!(allocator.stats(0).expect("stats").active.all.current, 1);
    assert_eq!(alloc(&allocator, 0, 4096).data, first.data);
}

#[test]
fn a_stream_of_another_device_is_waited_for() {
    let allocator = over(HostSettings {
        devices: Some(2),
        ..HostSettings::default()
    });
    let number = allocator.streams().create(1, 0).expect("a stream");
    let stream = allocator.streams().get(1, number).expect("it exists");
    let gate = Gate::default();
    // The block's own stream has the same number on its own device.
    let first = alloc(&allocator, 0, 4096);
    allocator.streams().create(0, 0).expect("a stream");
    for device_of_use in [0, 1, 1] {
        allocator
            .record_stream(first.block, device_of_use, number)
            .expect("allocated");
    }
    gate.block(stream);
    allocator.free(first.block).expect("allocated");
    let second = alloc(&allocator, 0, 4096);
    assert_ne!(first.data, second.data);
    gate.open();
    stream.sync().expect("no failure");
    assert_eq!(alloc(&allocator, 0, 4096).data, first.data);
    allocator.free(second.block).expect("allocated");
    assert_eq!(allocator.stats(0).expect("stats").active.all.current, 1);
    let error = allocator.record_stream(second.block, 2, 0);
    assert_eq!(
        error.expect_err("no device").kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn its_own_stream_needs_no_wait() {
    let allocator = with_memory(64 * MIB);
    let gate = Gate::default();
    gate.block(allocator.streams().get(0, 0).expect("the default stream"));
    let first = alloc(&allocator, 0, 4096);
    allocator
        .record_stream(first.block, 0, 0)
        .expect("allocated");
    allocator.free(first.block).expect("allocated");
    assert_eq!(alloc(&allocator, 0, 4096).data, first.data);
    gate.open();
}

#[test]
fn more_than_there_is_fails_at_once() {
    let allocator = with_memory(64 * MIB);
    let last = alloc(&allocator, 0, 30 * MIB);
    for nbytes in [64 * MIB + 1, usize::MAX / 2, usize::MAX] {
        let error = allocator.alloc(0, 0, nbytes).expect_err("too much");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(
            error.to_string().contains("more than the 64.00 MiB"),
            "{error}"
        );
    }
    allocator.free(last.block).expect("allocated");
    alloc(&allocator, 0, 64 * MIB);
    assert_eq!(allocator.stats(0).expect("stats").num_ooms, 3);
}

#[test]
fn the_limit_is_on_reserved_bytes() {
    let allocator = with_memory(10 * MIB);
    let mut held = Vec::new();
    let error = loop {
        match allocator.alloc(0, 0, MIB) {
            Ok(block) => held.extend(block),
            Err(error) => break error,
        }
    };
    assert_eq!(held.len(), 10);
    assert_eq!(allocator.vendor().memory(0).expect("info").free, 0);
    let report = error.report();
    for part in [
        "1.00 MiB",
        "10.00 MiB",
        "FLAGOS_HOST_MEMORY",
        "small pool",
        "asked for",
    ] {
        assert!(report.contains(part), "{part} is missing in\n{report}");
    }
    assert!(!error.to_string().contains('\n'));
    held.drain(..)
        .for_each(|block| allocator.free(block.block).expect("allocated"));
    alloc(&allocator, 0, 10 * MIB);
}

#[test]
fn cached_memory_makes_room() {
    let allocator = with_memory(64 * MIB);
    for nbytes in [40 * MIB, 50 * MIB] {
        allocator
            .free(alloc(&allocator, 0, nbytes).block)
            .expect("allocated");
    }
    // The free memory belongs to another stream, so all of it must be given back.
    let stream = allocator.streams().create(0, -1).expect("a stream");
    alloc(&allocator, stream, 60 * MIB);
    let stats = allocator.stats(0).expect("stats");
    assert_eq!(
        (
            stats.num_alloc_retries,
            stats.num_sync_all_streams,
            stats.num_ooms
        ),
        (2, 1, 0)
    );
    assert_eq!(stats.reserved_bytes.all.current, 60 * MIB as i64);
}

#[test]
fn memory_used_by_another_stream_is_waited_for() {
    let allocator = with_memory(64 * MIB);
    let stream = allocator.streams().create(0, 0).expect("a stream");
    let gate = Gate::default();
    gate.block(allocator.streams().get(0, stream).expect("it exists"));
    let block = alloc(&allocator, 0, 40 * MIB).block;
    allocator
        .record_stream(block, 0, stream)
        .expect("allocated");
    allocator.free(block).expect("allocated");
    std::thread::scope(|scope| {
        scope.spawn(|| gate.open());
        alloc(&allocator, 0, 40 * MIB);
    });
}

#[test]
fn a_fraction_limits_the_process() {
    let allocator = with_memory(64 * MIB);
    allocator.set_fraction(0, 0.5).expect("valid");
    let error = allocator
        .alloc(0, 0, 33 * MIB)
        .expect_err("over the fraction");
    assert!(
        error.to_string().contains("raise the memory fraction"),
        "{error}"
    );
    let half = alloc(&allocator, 0, 32 * MIB);
    allocator.free(half.block).expect("allocated");
    for wrong in [0.0, -1.0, 1.5, f64::NAN] {
        let error = allocator.set_fraction(0, wrong).expect_err("invalid");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn stream_work_may_free_but_not_wait() {
    let allocator = Arc::new(with_memory(64 * MIB));
    let block = alloc(&allocator, 0, 40 * MIB).block;
    let (send, receive) = mpsc::channel();
    let inside = Arc::clone(&allocator);
    let work = move || {
        inside.free(block).expect("allocated");
        let cache = inside.empty_cache(0).map_err(|error| error.kind());
        let memory = inside.alloc(0, 0, 50 * MIB).map_err(|error| error.kind());
        send.send((cache, memory)).expect("the test waits");
    };
    launch_closure(allocator.streams().get(0, 0).expect("default"), work).expect("queued");
    // The free inside runs at the same time, and must not deadlock with this call.
    allocator.empty_cache(0).expect("emptied");
    let (cache, memory) = receive.recv().expect("the work runs");
    assert_eq!(cache, Err(ErrorKind::Unsupported));
    // 50 MiB fit only if the other thread has emptied the cache by then.
    assert!(
        matches!(memory, Ok(Some(_)) | Err(ErrorKind::OutOfMemory)),
        "{memory:?}"
    );
}

#[test]
fn injected_failures_leave_the_allocator_usable() {
    let allocator = over(HostSettings {
        faults: vec![(FaultSite::Alloc, 0.9)],
        seed: Some(7),
        ..HostSettings::default()
    });
    let outcomes: Vec<_> = (0..64).map(|_| allocator.alloc(0, 0, 30 * MIB)).collect();
    let (good, bad): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert!(!good.is_empty() && !bad.is_empty());
    for error in bad.iter().filter_map(|outcome| outcome.as_ref().err()) {
        // Memory is not short here, so the message must say that the failure was injected.
        assert!(error.message().contains("injected failure of alloc"));
        assert_eq!(error.hint(), Some("FLAGOS_HOST_FAULT asks for it"));
    }
    for block in good.into_iter().flatten().flatten() {
        allocator.free(block.block).expect("allocated");
    }
    let stats = allocator.stats(0).expect("stats");
    assert_eq!(
        (stats.allocation.all.current, stats.num_ooms),
        (0, bad.len() as i64)
    );
}

#[test]
fn addresses_know_their_device() {
    let allocator = over(HostSettings {
        devices: Some(2),
        ..HostSettings::default()
    });
    let block = allocator
        .alloc(1, 0, 3 * MIB)
        .expect("memory")
        .expect("not empty");
    let last = block.data.as_ptr().wrapping_add(3 * MIB - 1);
    assert_eq!(allocator.device_of(block.data.as_ptr()), Some(1));
    assert_eq!(allocator.device_of(last), Some(1));
    assert_eq!(
        allocator.device_of(std::ptr::from_ref(&allocator).cast()),
        None
    );
    allocator.free(block.block).expect("allocated");
    allocator.empty_cache(1).expect("emptied");
    assert_eq!(allocator.device_of(last), None);
}

#[test]
fn a_snapshot_adds_up() {
    let allocator = with_memory(64 * MIB);
    let _held = [alloc(&allocator, 0, 700), alloc(&allocator, 0, 2 * MIB)];
    let json = allocator.snapshot_json(0).expect("a snapshot");
    let segments: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let segments = segments.as_array().expect("a list");
    let sum = |key: &str| segments.iter().filter_map(|s| s[key].as_u64()).sum::<u64>() as i64;
    let stats = allocator.stats(0).expect("stats");
    assert_eq!(segments.len(), 2);
    assert_eq!(sum("total_size"), stats.reserved_bytes.all.current);
    assert_eq!(sum("allocated_size"), stats.allocated_bytes.all.current);
    assert_eq!(sum("requested_size"), 700 + 2 * MIB as i64);
    let block = segments
        .iter()
        .find(|segment| segment["segment_type"] == "small");
    let block = &block.expect("a small segment")["blocks"][0];
    assert_eq!(
        (&block["size"], &block["state"]),
        (&1024.into(), &"active_allocated".into())
    );
}

#[test]
fn many_threads_share_one_device() {
    const THREADS: usize = 8;
    let allocator = with_memory(512 * MIB);
    let streams: Vec<_> = (0..3)
        .map(|_| allocator.streams().create(0, 0).expect("one"))
        .collect();
    let (send, receive) = mpsc::channel::<Allocation>();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (allocator, streams, send) = (&allocator, &streams, send.clone());
            scope.spawn(move || {
                for turn in 0..500_usize {
                    let nbytes = 1 + (turn * 7919 * (thread + 1)) % (3 * MIB);
                    let block = alloc(allocator, streams[turn % 3], nbytes);
                    let first = block.data.as_ptr();
                    // SAFETY: the block is ours and has `nbytes` bytes.
                    unsafe {
                        first.write(thread as u8);
                        first.add(nbytes - 1).write(thread as u8);
                        assert_eq!(first.read(), thread as u8);
                    }
                    if turn % 5 == 0 {
                        let other = streams[(turn + 1) % 3];
                        let stream = allocator.streams().get(0, other).expect("it exists");
                        launch_closure(stream, || {}).expect("queued");
                        allocator
                            .record_stream(block.block, 0, other)
                            .expect("allocated");
                    }
                    if turn % 2 == 0 {
                        allocator.free(block.block).expect("allocated");
                    } else {
                        // Another thread frees the block.
                        send.send(block).expect("the receiver lives");
                    }
                }
            });
        }
        drop(send);
        for block in receive {
            allocator.free(block.block).expect("allocated");
        }
    });
    allocator.vendor().device_sync(0).expect("no failure");
    let stats = allocator.stats(0).expect("stats");
    let total = (THREADS * 500) as i64;
    assert_eq!(
        (stats.allocation.all.allocated, stats.allocation.all.freed),
        (total, total)
    );
    assert_eq!(stats.active_bytes.all.current, 0);
    allocator.validate(0);
    allocator.empty_cache(0).expect("emptied");
    assert_eq!(
        allocator
            .stats(0)
            .expect("stats")
            .reserved_bytes
            .all
            .current,
        0
    );
}

/// Pairs of an allocation and its free on many threads, with a look at the books now and then.
#[test]
fn the_books_of_many_threads_are_exact() {
    const THREADS: i64 = 8;
    const TURNS: i64 = 4000;
    let allocator = with_memory(64 * MIB);
    let before = alloc(&allocator, 0, 512).block;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let allocator = &allocator;
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let held = alloc(allocator, 0, 700 + (turn % 3) as usize);
                    // SAFETY: the block is ours.
                    unsafe { held.data.as_ptr().write(thread as u8) };
                    if turn % 500 == 0 {
                        let stats = allocator.stats(0).expect("stats");
                        let current = stats.allocation.all.current;
                        assert!((2..=THREADS + 1).contains(&current), "{current}");
                    }
                    // SAFETY: as above.
                    assert_eq!(unsafe { held.data.as_ptr().read() }, thread as u8);
                    allocator.free(held.block).expect("allocated");
                    assert!(allocator.free(held.block).is_err());
                }
            });
        }
    });
    allocator.free(before).expect("allocated");
    let stats = allocator.stats(0).expect("stats");
    let pairs = THREADS * TURNS + 1;
    let count = stats.allocation.small;
    assert_eq!(
        (count.current, count.allocated, count.freed),
        (0, pairs, pairs)
    );
    assert!(count.peak <= THREADS + 1, "{}", count.peak);
    assert_eq!(
        stats.allocated_bytes.all.allocated,
        512 + (pairs - 1) * 1024
    );
    let requested: i64 = (0..TURNS).map(|turn| 700 + turn % 3).sum();
    assert_eq!(stats.requested_bytes.all.freed, 512 + THREADS * requested);
    assert_eq!(stats.active_bytes.all.current, 0);
    assert_eq!(stats.segment.all.allocated, 1);
    allocator.validate(0);
}

/// Blocks in a magazine serve another thread before the vendor is asked for more.
#[test]
fn memory_is_not_short_for_what_threads_keep() {
    let allocator = with_memory(2 * MIB);
    let held = [(); 2].map(|()| alloc(&allocator, 0, MIB));
    for held in held {
        allocator.free(held.block).expect("allocated");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| alloc(&allocator, 0, 2 * MIB));
    });
    assert_eq!(allocator.stats(0).expect("stats").num_ooms, 0);
}

#[test]
fn a_kept_block_is_free() {
    let allocator = with_memory(8 * MIB);
    let stream = allocator.streams().create(0, 0).expect("a stream");
    let block = alloc(&allocator, 0, 100).block;
    allocator.free(block).expect("allocated");
    let refused = [
        allocator.record_stream(block, 0, stream),
        allocator.free(block),
    ];
    for refusal in refused {
        assert_eq!(
            refusal.expect_err("freed").kind(),
            ErrorKind::InvalidArgument
        );
    }
    let json = allocator.snapshot_json(0).expect("a snapshot");
    assert!(!json.contains("active_allocated"), "{json}");
    allocator.empty_cache(0).expect("emptied");
    let reserved = allocator.stats(0).expect("stats").reserved_bytes;
    assert_eq!(reserved.all.current, 0);
}

// SAFETY: for the test above only: the memory is handed over with the value.
unsafe impl Send for Allocation {}

/// One step of a random program.
#[derive(Debug, Clone)]
enum Step {
    Alloc { stream: usize, nbytes: usize },
    Free(usize),
    Record { block: usize, stream: usize },
    Block(usize),
    Open,
    EmptyCache,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let nbytes = prop_oneof![4 => 1..4096_usize, 2 => 1..2 * MIB, 1 => 1..24 * MIB];
    let step = prop_oneof![
        8 => (0..3_usize, nbytes).prop_map(|(stream, nbytes)| Step::Alloc { stream, nbytes }),
        6 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), 0..3_usize).prop_map(|(block, stream)| Step::Record { block, stream }),
        1 => (0..3_usize).prop_map(Step::Block),
        1 => Just(Step::Open),
        1 => Just(Step::EmptyCache),
    ];
    proptest::collection::vec(step, 1..120)
}

/// An allocation as the model sees it.
struct Held {
    allocation: Allocation,
    nbytes: usize,
    stream: usize,
    /// Streams recorded on it.
    used_by: Vec<usize>,
}

impl Held {
    fn overlaps(&self, other: &Self) -> bool {
        let start = |held: &Self| held.allocation.data.as_ptr() as usize;
        start(self) < start(other) + other.nbytes && start(other) < start(self) + self.nbytes
    }
}

const MEMORY: usize = 96 * MIB;

/// Asserts that an out-of-memory error was right: all free segments were given back, no free block would have
/// served, and a segment for the request does not fit beside the rest.
fn out_of_memory_in_earnest(
    allocator: &HostAllocator,
    stream: u64,
    nbytes: usize,
    held: &[Held],
) -> Result<(), TestCaseError> {
    let size = pool::block_size(nbytes, 0).expect("not too large");
    let json = allocator.snapshot_json(0).expect("a snapshot");
    let segments: Vec<serde_json::Value> = serde_json::from_str(&json).expect("a list");
    let mut reserved = 0;
    for segment in &segments {
        let field = |key: &str| segment[key].as_u64().expect("a number") as usize;
        let range = field("address")..field("address") + field("total_size");
        let in_use = |held: &Held| range.contains(&(held.allocation.data.as_ptr() as usize));
        prop_assert!(
            held.iter().any(in_use),
            "an idle segment is kept: {segment}"
        );
        reserved += range.len();
        let same_pool = segment["segment_type"] == pool::kind_of(size).name();
        let blocks = segment["blocks"].as_array().expect("a list");
        let would_serve = |block: &serde_json::Value| {
            block["state"] == "inactive" && block["size"].as_u64() >= Some(size as u64)
        };
        let usable = same_pool && segment["stream"] == stream;
        prop_assert!(
            !(usable && blocks.iter().any(would_serve)),
            "a free block of {segment} would have served {nbytes} bytes"
        );
    }
    let needed = pool::segment_sizes(size)[1];
    prop_assert!(
        reserved + needed > MEMORY,
        "{reserved} bytes are reserved: {needed} more fit"
    );
    Ok(())
}

/// Runs the steps on the allocator and on a list of the allocations held. `seldom`: the program asks often for the same
/// number of bytes, and seldom looks at the books, which empties its magazine.
fn run(steps: Vec<Step>, seldom: bool) -> Result<(), TestCaseError> {
    let allocator = with_memory(MEMORY);
    let ids = [0, 1, 2].map(|i| match i {
        0 => 0,
        _ => allocator.streams().create(0, 0).expect("a stream"),
    });
    let stream = |i: usize| allocator.streams().get(0, ids[i]).expect("it exists");
    let mut gate = Gate::default();
    let mut blocked = [false; 3];
    let mut held: Vec<Held> = Vec::new();
    // Blocks freed while a blocked stream used them.
    let mut waiting: Vec<Held> = Vec::new();
    let (mut allocated, mut freed, mut ooms, mut peak) = (0, 0, 0, 0);
    let mut requested_peak: usize = 0;

    let last = steps.len() - 1;
    for (turn, step) in steps.into_iter().enumerate() {
        match step {
            Step::Alloc { stream, nbytes } => {
                let nbytes = match nbytes {
                    1..4096 if seldom => 1 + nbytes / 2048,
                    _ => nbytes,
                };
                // An allocator short of memory waits for streams, which finish only once the gate is open.
                if blocked != [false; 3] {
                    let stats = allocator.stats(0).expect("stats");
                    let reserved = stats.reserved_bytes.all.current as usize;
                    if reserved + 30 * MIB > MEMORY {
                        continue;
                    }
                }
                match allocator.alloc(0, ids[stream], nbytes) {
                    Ok(allocation) => {
                        let allocation = allocation.expect("not empty");
                        let new = Held {
                            allocation,
                            nbytes,
                            stream,
                            used_by: Vec::new(),
                        };
                        let address = allocation.data.as_ptr() as usize;
                        prop_assert_eq!(address % ALIGNMENT, 0);
                        let clash = held
                            .iter()
                            .chain(&waiting)
                            .any(|other| other.overlaps(&new));
                        prop_assert!(!clash, "overlap");
                        // SAFETY: the block has `nbytes` bytes.
                        unsafe { allocation.data.as_ptr().add(nbytes - 1).write(1) };
                        held.push(new);
                        allocated += 1;
                        peak = peak.max(held.len() as i64);
                        let requested = held.iter().map(|held| held.nbytes).sum();
                        requested_peak = requested_peak.max(requested);
                    }
                    Err(error) => {
                        prop_assert_eq!(error.kind(), ErrorKind::OutOfMemory);
                        out_of_memory_in_earnest(&allocator, ids[stream], nbytes, &held)?;
                        ooms += 1;
                    }
                }
            }
            Step::Free(i) if !held.is_empty() => {
                let block = held.swap_remove(i % held.len());
                allocator.free(block.allocation.block).expect("allocated");
                prop_assert!(allocator.free(block.allocation.block).is_err());
                freed += 1;
                if block
                    .used_by
                    .iter()
                    .any(|&s| blocked[s] && s != block.stream)
                {
                    waiting.push(block);
                }
            }
            Step::Record { block, stream } if !held.is_empty() => {
                let block = block % held.len();
                let block = &mut held[block];
                allocator
                    .record_stream(block.allocation.block, 0, ids[stream])
                    .expect("allocated");
                block.used_by.push(stream);
            }
            Step::Block(i) => {
                gate.block(stream(i));
                blocked[i] = true;
            }
            Step::Open => {
                gate.open();
                gate = Gate::default();
                (0..3).for_each(|i| stream(i).sync().expect("no failure"));
                blocked = [false; 3];
                waiting.clear();
            }
            Step::EmptyCache if blocked == [false; 3] => {
                allocator.empty_cache(0).expect("emptied");
            }
            _ => {}
        }
        allocator.validate(0);
        if seldom && turn % 16 != 0 && turn != last {
            continue;
        }
        let stats = allocator.stats(0).expect("stats");
        let requested: usize = held.iter().map(|held| held.nbytes).sum();
        prop_assert_eq!(stats.allocation.all.current, held.len() as i64);
        prop_assert_eq!(stats.allocation.all.allocated, allocated);
        prop_assert_eq!(stats.allocation.all.freed, freed);
        prop_assert_eq!(stats.allocation.all.peak, peak);
        prop_assert_eq!(stats.requested_bytes.all.peak, requested_peak as i64);
        prop_assert_eq!(stats.requested_bytes.all.current, requested as i64);
        prop_assert_eq!(
            stats.active.all.current,
            (held.len() + waiting.len()) as i64
        );
        prop_assert_eq!(stats.num_ooms, ooms);
        prop_assert!(stats.requested_bytes.all.current <= stats.allocated_bytes.all.current);
        prop_assert!(stats.allocated_bytes.all.current <= stats.active_bytes.all.current);
        prop_assert!(stats.active_bytes.all.current <= stats.reserved_bytes.all.current);
        prop_assert!(stats.reserved_bytes.all.current <= MEMORY as i64);
        let info = allocator.info(0).expect("info");
        prop_assert_eq!(
            info.total - info.free,
            stats.reserved_bytes.all.current as u64
        );
    }

    gate.open();
    for block in held {
        allocator.free(block.allocation.block).expect("allocated");
    }
    // Blocks that other streams used become free.
    allocator.vendor().quiesce(0).expect("not in work");
    allocator.empty_cache(0).expect("emptied");
    let stats = allocator.stats(0).expect("stats");
    prop_assert_eq!(stats.active.all.current, 0);
    let info = allocator.info(0).expect("info");
    prop_assert_eq!(info.free, info.total);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_programs_agree_with_the_model(steps in steps()) {
        run(steps, false)?;
    }

    #[test]
    fn random_programs_that_use_magazines_agree_with_the_model(steps in steps()) {
        run(steps, true)?;
    }
}

mod pinned {
    use super::*;

    fn runtime() -> Runtime {
        let vendor = HostVendor::new(&HostSettings::default(), Box::leak(Box::default()));
        Runtime::new(Arc::new(vendor)).expect("a runtime")
    }

    #[test]
    fn pages_are_found_and_reused() {
        let runtime = runtime();
        let pinned = runtime.pinned();
        assert_eq!(pinned.alloc(0).expect("ok"), None);
        let first = pinned.alloc(5000).expect("memory").expect("not empty");
        assert_eq!(first.data.as_ptr() as usize % 4096, 0);
        assert!(pinned.is_pinned(first.data.as_ptr().wrapping_add(4999)));
        assert!(!pinned.is_pinned(std::ptr::from_ref(&runtime).cast()));
        assert_eq!(runtime.memory().device_of(first.data.as_ptr()), None);
        pinned.free(first.block).expect("allocated");
        assert!(pinned.free(first.block).is_err());
        let second = pinned.alloc(8192).expect("memory").expect("not empty");
        assert_eq!(first.data, second.data);
        pinned.free(second.block).expect("allocated");
        pinned.empty_cache();
        assert!(!pinned.is_pinned(first.data.as_ptr()));
    }

    #[test]
    fn blocks_are_counted() {
        let runtime = runtime();
        let pinned = runtime.pinned();
        let first = pinned.alloc(5000).expect("memory").expect("not empty");
        let second = pinned.alloc(100).expect("memory").expect("not empty");
        pinned.free(first.block).expect("allocated");
        let again = pinned.alloc(8192).expect("memory").expect("not empty");
        let stats = pinned.stats();
        let values = |stat: Stat| (stat.current, stat.peak, stat.allocated, stat.freed);
        assert_eq!(values(stats.active_requests), (2, 2, 3, 1));
        assert_eq!(values(stats.allocations), (2, 2, 2, 0));
        assert_eq!(values(stats.allocated_bytes), (12288, 12288, 12288, 0));
        assert_eq!(stats.host_alloc_time.count, 2);
        assert_eq!(
            (stats.bucket_allocation[12], stats.bucket_allocation[13]),
            (1, 1)
        );
        for block in [again, second] {
            pinned.free(block.block).expect("allocated");
        }
        pinned.empty_cache();
        pinned.reset_peak();
        let stats = pinned.stats();
        assert_eq!(values(stats.active_bytes), (0, 0, 20480, 20480));
        assert_eq!(values(stats.allocated_bytes), (0, 0, 12288, 12288));
        assert_eq!(stats.host_free_time.count, 2);
        pinned.reset_accumulated();
        let stats = pinned.stats();
        assert_eq!(values(stats.active_bytes), (0, 0, 0, 0));
        assert_eq!(
            (stats.host_alloc_time.count, stats.bucket_allocation[12]),
            (0, 0)
        );
    }

    #[test]
    fn a_copy_in_flight_keeps_its_block() {
        let runtime = runtime();
        let pinned = runtime.pinned();
        let stream = runtime.streams().create(0, 0).expect("a stream");
        let target = runtime.streams().get(0, stream).expect("it exists");
        let gate = Gate::default();
        gate.block(target);
        let first = pinned.alloc(100).expect("memory").expect("not empty");
        pinned
            .record_stream(first.block, 0, stream)
            .expect("allocated");
        pinned.free(first.block).expect("allocated");
        let second = pinned.alloc(100).expect("memory").expect("not empty");
        assert_ne!(first.data, second.data);
        assert_eq!(pinned.stats().active_requests.current, 2);
        gate.open();
        target.sync().expect("no failure");
        assert_eq!(pinned.stats().active_requests.current, 1);
        let third = pinned.alloc(100).expect("memory").expect("not empty");
        assert_eq!(first.data, third.data);
    }

    #[test]
    fn the_impossible_is_refused() {
        let runtime = runtime();
        let error = runtime.pinned().alloc(usize::MAX).expect_err("too much");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(runtime.pinned().record_stream(4096, 0, 0).is_err());
    }
}
