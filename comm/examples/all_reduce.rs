//! The time of a call of the engine `shm`, without a framework:
//! `cargo run --release -p flagos-comm --example all_reduce -- [RANKS [BYTES,BYTES...]]`.
//!
//! Prints JSON: microseconds of an all-reduce over float32, of the slowest rank, least, median and greatest
//! of the rounds.

#[path = "../tests/ranks/mod.rs"]
mod ranks;

use std::time::Instant;

use flagos_comm::{Communicator, Error, ErrorKind, Result};

const ROUNDS: usize = 15;

/// Microseconds of a call in each round.
fn measure(communicator: &dyn Communicator, bytes: usize) -> Result<Vec<f64>> {
    let mut data = vec![0f32; bytes / 4];
    let calls = (16 << 20) / bytes.max(1 << 13);
    let mut rounds = vec![];
    for round in 0..=ROUNDS {
        ranks::all_reduce(communicator, &mut [0.0])?; // lets all ranks begin at once
        let start = Instant::now();
        for _ in 0..calls {
            ranks::all_reduce(communicator, &mut data)?;
        }
        if round > 0 {
            rounds.push(start.elapsed().as_secs_f64() * 1e6 / calls as f64);
        }
    }
    // Checks the result: 0 stays 0, and ones add up.
    let mut ones = vec![1f32; bytes / 4];
    ranks::all_reduce(communicator, &mut ones)?;
    if data.iter().any(|&x| x != 0.0) || ones.iter().any(|&x| x != ones[0] || x < 2.0) {
        return Err(Error::new(ErrorKind::Internal, "a wrong result"));
    }
    Ok(rounds)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let size: usize = arguments.next().map_or(2, |text| {
        text.parse()
            .expect("the first argument is a number of ranks")
    });
    let sizes: Vec<usize> = arguments
        .next()
        .unwrap_or_else(|| "1024,65536".into())
        .split(',')
        .map(|text| text.parse().expect("sizes are bytes"))
        .collect();
    let results: Vec<_> = sizes
        .into_iter()
        .map(|bytes| {
            let answers = ranks::fork(size, "bench", |communicator, _| match measure(communicator, bytes) {
                Ok(rounds) => serde_json::json!(rounds).to_string(),
                Err(error) => error.to_string(),
            });
            let mut of_ranks = (0..size).map(|rank| {
                let text = answers.get(&rank).expect("no rank died");
                serde_json::from_str::<Vec<f64>>(text).unwrap_or_else(|_| panic!("rank {rank}: {text}"))
            });
            let mut slowest = of_ranks.next().expect("there is a rank");
            for other in of_ranks {
                for (a, b) in slowest.iter_mut().zip(other) {
                    *a = a.max(b);
                }
            }
            slowest.sort_by(f64::total_cmp);
            serde_json::json!({
                "bytes": bytes,
                "us": {"min": slowest[0], "median": slowest[ROUNDS / 2], "max": slowest[ROUNDS - 1]},
            })
        })
        .collect();
    println!("{}", serde_json::json!({"ranks": size, "results": results}));
}
