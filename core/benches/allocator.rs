//! The cost of an allocation and its free, against `posix_memalign` and `free`.
//!
//! `cargo bench -p flagos-core --bench allocator`. Each line is the time of one pair in
//! nanoseconds: the least, the median and the most of 200 batches, and the median as a ratio to
//! the system's.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use flagos_core::abi::{FLAGOS_OK, api};

const BATCHES: usize = 200;
const PAIRS: usize = 2000;

/// Nanoseconds of one call of `work`: least, median and most of the batches.
fn measure(mut work: impl FnMut()) -> [f64; 3] {
    (0..PAIRS).for_each(|_| work());
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            (0..PAIRS).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / PAIRS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[0], times[BATCHES / 2], times[BATCHES - 1]]
}

fn system_pair(nbytes: usize) {
    let mut data = null_mut();
    // SAFETY: a valid output; what was allocated is freed once.
    unsafe {
        assert_eq!(libc::posix_memalign(&mut data, 64, nbytes), 0);
        libc::free(black_box(data));
    }
}

fn alloc(nbytes: usize) -> *mut c_void {
    let mut data = null_mut();
    // SAFETY: a valid output.
    let status = unsafe { (api().mem_alloc_at)(0, 0, nbytes, &mut data) };
    assert_eq!(status, FLAGOS_OK);
    black_box(data)
}

fn pair(nbytes: usize) {
    (api().mem_free_at)(alloc(nbytes));
}

fn line(name: &str, [least, median, most]: [f64; 3], system: f64) {
    let ratio = median / system;
    println!("{name:<34} {least:>9.1} {median:>9.1} {most:>9.1} {ratio:>8.2}");
}

/// Pairs on `threads` threads at once, per pair of one thread.
fn on_threads(threads: usize, work: impl Fn() + Sync) -> [f64; 3] {
    let results: Vec<[f64; 3]> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| measure(&work)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let mean = |i: usize| results.iter().map(|r| r[i]).sum::<f64>() / threads as f64;
    [mean(0), mean(1), mean(2)]
}

fn main() {
    assert_eq!((api().init)(), FLAGOS_OK, "init");
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>8}",
        "ns per alloc + free", "min", "median", "max", "ratio"
    );
    for (name, nbytes) in [
        ("512 B", 512),
        ("16 KiB", 16 << 10),
        ("1 MiB", 1 << 20),
        ("8 MiB", 8 << 20),
        ("64 MiB", 64 << 20),
    ] {
        let system = measure(|| system_pair(nbytes));
        line(&format!("system, {name}"), system, system[1]);
        line(
            &format!("flagos, {name}, empty cache"),
            measure(|| pair(nbytes)),
            system[1],
        );
        // Neighbours that stay allocated, as in a running program.
        let held: Vec<_> = (0..65).map(|_| alloc(nbytes.min(8 << 20))).collect();
        let (freed, kept): (Vec<_>, Vec<_>) =
            held.iter().enumerate().partition(|(i, _)| i % 2 == 1);
        freed
            .into_iter()
            .for_each(|(_, data)| assert_eq!((api().mem_free_at)(*data), 1));
        line(
            &format!("flagos, {name}, used cache"),
            measure(|| pair(nbytes)),
            system[1],
        );
        kept.into_iter()
            .for_each(|(_, data)| assert_eq!((api().mem_free_at)(*data), 1));
        (api().mem_empty_cache)(-1);
    }
    for threads in [2, 8] {
        let system = on_threads(threads, || system_pair(16 << 10));
        line(
            &format!("system, 16 KiB, {threads} threads"),
            system,
            system[1],
        );
        let flagos = on_threads(threads, || pair(16 << 10));
        line(
            &format!("flagos, 16 KiB, {threads} threads"),
            flagos,
            system[1],
        );
    }
    calls();
}

/// Measures the calls that an adapter makes around every operator.
fn calls() {
    println!(
        "\n{:<34} {:>9} {:>9} {:>9}",
        "ns per call", "min", "median", "max"
    );
    let line = |name: &str, [least, median, most]: [f64; 3]| {
        println!("{name:<34} {least:>9.1} {median:>9.1} {most:>9.1}");
    };
    let ok = |status: i32| assert_eq!(black_box(status), FLAGOS_OK);
    let table = api();
    line("init, once done", measure(|| ok((table.init)())));
    line(
        "stream_sync, idle",
        measure(|| ok((table.stream_sync)(0, 0))),
    );
    let (mut event, mut done) = (null_mut(), 0);
    let mut bytes = [0_u8; 2];
    let [to, from] = [0, 1].map(|i| bytes.as_mut_ptr().wrapping_add(i).cast::<c_void>());
    // SAFETY: valid outputs and a live event; `bytes` outlives the copies, which are waited for.
    unsafe {
        ok((table.event_create)(0, 0, &mut event));
        line(
            "event_record, idle",
            measure(|| ok((table.event_record)(event, 0, 0))),
        );
        line(
            "event_query",
            measure(|| ok((table.event_query)(event, &mut done))),
        );
        let round_trip = || {
            ok((table.copy_async)(0, 0, to, from, 1));
            ok((table.stream_sync)(0, 0));
        };
        line("copy_async + stream_sync", measure(round_trip));
        (table.event_destroy)(event);
    }
    line(
        "mem_device_of",
        measure(|| assert_eq!((table.mem_device_of)(black_box(to)), -1)),
    );
}
