//! Long runs over a library, outside of CI: `make soak-vendor`. Time decides how long, and every number is checked.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flagos_core::runtime::{Runtime, Vendor, launch_closure};
use flagos_core::vendors::library::open;

use crate::counted::{COUNTS, Count, counted};
use crate::forms::{exported_host, loaded, opened};

const THREADS: u64 = 8;

/// Every thread sends a number through a device and back, where the host adds to it, and waits for copies by events.
/// Returns the time per operation.
fn operations(vendor: &dyn Vendor, each: u64) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let [to, back] =
                    [0, -1].map(|priority| vendor.stream(0, priority).expect("a stream"));
                let pinned = vendor.pinned_alloc(16).expect("pinned memory");
                let memory = vendor.alloc(0, 8).expect("memory").as_ptr();
                let number = pinned.cast::<u64>().as_ptr();
                let [there, here] = [number.cast::<u8>(), number.wrapping_add(1).cast()];
                // SAFETY: just allocated.
                unsafe { number.write(thread) };
                for operation in 0..each {
                    let event = vendor.event(0, false).expect("an event");
                    // SAFETY: everything lives until the sync below, and the streams take turns.
                    unsafe {
                        to.copy(memory, there, 8).expect("queued");
                        to.record(&*event).expect("recorded");
                        back.wait(&*event).expect("queued");
                        back.copy(here, memory, 8).expect("queued");
                    }
                    let address = number as usize;
                    // SAFETY: the memory lives until the sync below, and the stream runs this after the copy.
                    let add = move || unsafe {
                        let number = address as *mut u64;
                        number.write(number.add(1).read() + operation);
                    };
                    launch_closure(&*back, add).expect("queued");
                    back.sync().expect("it ran");
                }
                // SAFETY: as above.
                let sum = unsafe { number.read() };
                assert_eq!(sum, thread + each * (each - 1) / 2);
                // SAFETY: allocated above, and everything is synchronised.
                unsafe {
                    vendor.free(0, NonNull::new(memory).expect("not NULL"), 8);
                    vendor.pinned_free(pinned, 16);
                }
            });
        }
    });
    begun.elapsed() / u32::try_from(THREADS * each).expect("not so many")
}

#[test]
#[ignore = "make soak-vendor"]
fn eight_threads_and_ten_thousand_operations_are_exact() {
    for library in [loaded(), exported_host()] {
        let vendor = opened(library);
        let before = vendor.memory(0).expect("memory").free;
        let time = operations(&*vendor, 10_000);
        assert_eq!(vendor.memory(0).expect("memory").free, before);
        println!(
            "{}: 8 threads x 10,000 operations exact, {time:.1?} each",
            vendor.name()
        );
    }
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Until `end`: blocks of the caching allocator on several streams, written on one, read on another, freed at once.
/// Returns the number of rounds.
fn rounds(runtime: &Runtime, seed: u64, end: Instant) -> u64 {
    let mut random = Random(seed | 1);
    let mut done = 0;
    let streams: Vec<_> = (0..2)
        .map(|_| runtime.streams().create(0, 0).expect("a stream"))
        .collect();
    while Instant::now() < end {
        let nbytes = 8 << random.below(18) as usize;
        let [a, b] = [0, 1].map(|turn| streams[(turn + done as usize) % 2]);
        let get = |id| runtime.streams().get(0, id).expect("its stream");
        let block = runtime.memory().alloc(0, a, nbytes);
        let block = block.expect("memory").expect("not empty");
        let pinned = runtime.pinned().alloc(nbytes).expect("pinned memory");
        let pinned = pinned.expect("not empty");
        let host = pinned.data.as_ptr();
        let value = random.below(256) as u8;
        let event = runtime.vendor().event(0, done % 3 == 0).expect("an event");
        // SAFETY: the allocators keep the memory until the streams have passed it.
        unsafe {
            host.write_bytes(value, nbytes);
            get(a)
                .copy(block.data.as_ptr(), host, nbytes)
                .expect("queued");
            get(a).record(&*event).expect("recorded");
            host_after(runtime, b, &*event);
            runtime
                .memory()
                .record_stream(block.block, 0, b)
                .expect("noted");
            // The first half comes back over what was sent.
            get(b)
                .copy(host, block.data.as_ptr(), nbytes / 2)
                .expect("queued");
            get(b).sync().expect("copied");
            let bytes = std::slice::from_raw_parts(host, nbytes);
            assert!(bytes.iter().all(|&byte| byte == value));
        }
        runtime.memory().free(block.block).expect("freed");
        runtime.pinned().free(pinned.block).expect("freed");
        if random.below(500) == 0 {
            runtime.memory().empty_cache(0).expect("emptied");
            runtime.pinned().empty_cache();
        }
        done += 1;
    }
    done
}

fn host_after(runtime: &Runtime, stream: u64, event: &dyn flagos_core::runtime::Event) {
    let stream = runtime.streams().get(0, stream).expect("its stream");
    stream.wait(event).expect("queued");
}

/// The memory of this process that is there, in bytes: also what the C library keeps for later.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    // SAFETY: asks for a number of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    pages.unwrap_or(0_u64) * page
}

/// The memory that this process has allocated and not freed, in bytes.
fn in_use() -> u64 {
    // SAFETY: takes nothing.
    let told = unsafe { libc::mallinfo2() };
    (told.uordblks + told.hblkhd) as u64
}

#[test]
fn a_handle_that_is_left_is_counted() {
    let alive = || COUNTS.each_ref().map(Count::alive);
    let vendor = opened(counted());
    let stream = vendor.stream(0, 0).expect("a stream");
    let event = vendor.event(0, false).expect("an event");
    let memory = vendor.alloc(0, 1).expect("memory");
    let pinned = vendor.pinned_alloc(1).expect("pinned memory");
    assert_eq!(alive(), [1; 5]);
    // SAFETY: just allocated, unused.
    unsafe {
        vendor.free(0, memory, 1);
        vendor.pinned_free(pinned, 1);
    }
    drop((stream, event, vendor));
    assert_eq!(alive(), [0; 5]);
}

/// Opens the vendor again and again, works with it from eight threads, and closes it.
#[test]
#[ignore = "make soak-vendor"]
fn nothing_is_left_behind() {
    /// Less than a leak of a handle in each life of a vendor would come to in ten minutes.
    const GROWTH: u64 = 64 << 10;
    static PENDING: AtomicU64 = AtomicU64::new(0);
    let seconds = std::env::var("SOAK_SECONDS").map_or(60, |text| text.parse().expect("a number"));
    let library = counted();
    let (begun, whole) = (Instant::now(), Duration::from_secs(seconds));
    let (mut total, mut lives, mut settled, mut shown) = (0, 0_u64, None, Duration::ZERO);
    while begun.elapsed() < whole {
        let vendor = open(library, &PENDING).expect("it opens");
        let runtime = Arc::new(Runtime::new(vendor).expect("a runtime"));
        let end = Instant::now() + Duration::from_secs(1).min(whole / 8);
        total += std::thread::scope(|scope| {
            let threads = (0..THREADS).map(|thread| {
                let (runtime, seed) = (&runtime, lives * THREADS + thread + 1);
                scope.spawn(move || rounds(runtime, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), end))
            });
            let threads: Vec<_> = threads.collect();
            let done = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            done.sum::<u64>()
        });
        lives += 1;
        drop(runtime);
        for count in &COUNTS {
            assert_eq!(count.alive(), 0, "{} left by life {lives}", count.kind);
        }
        assert_eq!(PENDING.load(Ordering::Relaxed), 0);
        let now = in_use();
        if begun.elapsed() > whole / 5 {
            let settled = *settled.get_or_insert(now);
            assert!(now < settled + GROWTH, "{settled} bytes in use, then {now}");
        }
        if begun.elapsed() >= shown {
            shown = begun.elapsed() + whole / 20;
            println!(
                "{:4} s: {lives} lives, {total} rounds, {} KiB in use, {} MiB resident",
                begun.elapsed().as_secs(),
                now >> 10,
                resident() >> 20
            );
        }
    }
    let made: Vec<_> = COUNTS
        .iter()
        .map(|c| format!("{} {}s", c.made(), c.kind))
        .collect();
    println!(
        "{lives} lives, {total} rounds; {} made, none is left",
        made.join(", ")
    );
}
