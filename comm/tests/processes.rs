//! Ranks that are processes, through the public interface: this program forks them.
//!
//! The harness has other threads. Of the locks that they may hold the children take only the memory
//! allocator's, which survives a fork.

mod ranks;

use std::time::{Duration, Instant};

use ranks::{all_reduce, fork};

#[test]
fn processes_add_up() {
    for ranks in [2, 5] {
        let answers = fork(ranks, "sum", |communicator, rank| {
            for round in 0..40 {
                let mut data = vec![rank as f32; 1 + round * 4001];
                if let Err(error) = all_reduce(communicator, &mut data) {
                    return error.to_string();
                }
                let expected = (0..ranks).sum::<usize>() as f32;
                if data.iter().any(|&x| x != expected) {
                    return format!("wrong in round {round}");
                }
            }
            "well".into()
        });
        assert_eq!(answers.len(), ranks);
        assert!(
            answers.values().all(|answer| answer == "well"),
            "{answers:?}"
        );
    }
}

#[test]
fn a_killed_process_is_named_by_the_others_at_once() {
    let started = Instant::now();
    let answers = fork(3, "killed", |communicator, rank| {
        let mut data = vec![1.0; 1 << 20];
        for round in 0.. {
            if rank == 1 && round == 5 {
                // SAFETY: ends this process, as the test is about.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            if let Err(error) = all_reduce(communicator, &mut data) {
                return error.to_string();
            }
        }
        unreachable!()
    });
    assert_eq!(answers.len(), 2);
    for answer in answers.values() {
        assert!(
            answer.contains("all_reduce (sequence 1, sum of 1048576 x float32, 4.0 MiB)"),
            "{answer}"
        );
        assert!(answer.contains("the process of rank 1"), "{answer}");
    }
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "not by the timeout"
    );
}
