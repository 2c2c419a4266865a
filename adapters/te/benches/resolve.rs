//! The cost in Rust of asking for the implementation of an operator.
//!
//! `cargo bench -p te-fl`. Nanoseconds per question over 139 operators, least / median / greatest of
//! 500 rounds.

use std::hint::black_box;
use std::time::Instant;

use flagos_core::descriptions::Names;
use flagos_core::router::global;
use te_fl::store::{Store, describe};

const OPERATORS: usize = 139;
const REPEATS: u32 = 500;
const ROUNDS: usize = 500;

fn rounds(mut work: impl FnMut()) -> [f64; 3] {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..REPEATS {
                work();
            }
            start.elapsed().as_nanos() as f64 / f64::from(REPEATS) / OPERATORS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[0], times[ROUNDS / 2], times[ROUNDS - 1]]
}

fn line(name: &str, [least, median, greatest]: [f64; 3]) {
    println!("{name:<44} {least:>8.2} {median:>8.2} {greatest:>8.2}");
}

fn main() {
    let names: Vec<_> = (0..OPERATORS).map(|n| format!("operator_{n}")).collect();
    let store = Store::process().expect("nothing is configured");
    for (token, name) in (1..).zip(&names) {
        for (id, kind) in [
            ("default.flagos_rs", "flagos"),
            ("reference.torch", "reference"),
        ] {
            let implementation =
                describe(id, kind, None, 0, token, &Names::built_in()).expect("valid");
            store.register(name, implementation).expect("fresh");
        }
    }
    global().resolve().expect("a plan");
    let slot = |name: &String| global().slot(&format!("te::{name}")).expect("known");
    let slots: Vec<_> = names.iter().map(slot).collect();
    println!(
        "{:<44} {:>8} {:>8} {:>8}",
        "ns", "least", "median", "greatest"
    );
    line(
        "resolve: read the slot of an operator",
        rounds(|| {
            for slot in &slots {
                black_box(black_box(slot).load());
            }
        }),
    );
    std::thread::scope(|scope| {
        for _ in 1..4 {
            scope.spawn(|| {
                rounds(|| {
                    for slot in &slots {
                        black_box(black_box(slot).load());
                    }
                })
            });
        }
        line(
            "the same, beside three more threads",
            rounds(|| {
                for slot in &slots {
                    black_box(black_box(slot).load());
                }
            }),
        );
    });
}
