//! Groups whose ranks are threads, which the engine cannot tell from processes. `tests/processes.rs` has processes.

use std::sync::Arc;
use std::time::Duration;

use super::Shm;
use crate::store::tests::Memory;
use crate::{Collective, DType, ErrorKind, Kind, ReduceOp, Result};
use crate::{Communicator as _, Config, Stream};

/// Windows of two pages, so that most sizes below take several steps.
const WINDOW: usize = 8192;

fn config(rank: usize, size: usize) -> Config {
    Config {
        engine: None,
        library: None,
        vendor: "host".into(),
        vendor_engine: Some("shm".into()),
        device: -1,
        rank,
        size,
        group: "test".into(),
        timeout: Duration::from_secs(20),
        window: WINDOW,
    }
}

fn group<T: Send>(size: usize, work: impl Fn(&Shm) -> T + Sync) -> Vec<T> {
    group_over(&Memory::default(), size, work)
}

fn group_over<T: Send>(store: &Memory, size: usize, work: impl Fn(&Shm) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let work = &work;
                scope.spawn(move || {
                    work(&super::connect(&config(rank, size), store).expect("they are here"))
                })
            })
            .collect();
        ranks
            .into_iter()
            .map(|rank| rank.join().expect("no panic"))
            .collect()
    })
}

fn call<'a>(
    kind: Kind,
    count: usize,
    send: &'a [*const u8],
    recv: &'a [*mut u8],
) -> Collective<'a> {
    Collective {
        kind,
        dtype: DType::Float32,
        reduce: ReduceOp::Sum,
        root: None,
        tag: 0,
        count,
        factor: 1.0,
        sequence: 1,
        timeout: Duration::from_secs(20),
        send,
        recv,
        send_counts: &[],
        recv_counts: &[],
    }
}

/// The call with a root, or with the other rank of a transfer, and a tag.
fn with<'a>(root: usize, tag: i32, call: Collective<'a>) -> Collective<'a> {
    Collective {
        root: Some(root),
        tag,
        ..call
    }
}

fn run(shm: &Shm, call: &Collective<'_>) -> Result<()> {
    // SAFETY: tests give slices of the sizes they name.
    unsafe { shm.issue(call, Stream(std::ptr::null_mut())) }
}

fn value(rank: usize, index: usize) -> f32 {
    (rank * 1000 + index % 997) as f32
}

fn filled(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|index| value(rank, index)).collect()
}

const COUNTS: [usize; 6] = [0, 1, 17, 2048, 2049, 50_001];

#[test]
fn all_reduce_adds_in_place_and_apart() {
    for size in [1, 2, 3, 4] {
        for count in COUNTS {
            group(size, |shm| {
                let expected: Vec<f32> = (0..count)
                    .map(|i| (0..size).map(|rank| value(rank, i)).sum())
                    .collect();
                let mut buffer = filled(shm.member.rank, count);
                let address = buffer.as_mut_ptr().cast::<u8>();
                run(shm, &call(Kind::AllReduce, count, &[address], &[address])).expect("it works");
                assert_eq!(buffer, expected);
                let (from, mut to) = (filled(shm.member.rank, count), vec![0f32; count]);
                let send = [from.as_ptr().cast()];
                run(
                    shm,
                    &call(Kind::AllReduce, count, &send, &[to.as_mut_ptr().cast()]),
                )
                .expect("it works");
                assert_eq!(to, expected);
            });
        }
    }
}

#[test]
fn parts_go_where_they_belong() {
    for size in [2, 3, 4] {
        for count in COUNTS {
            for root in 0..size {
                group(size, |shm| {
                    let mine = shm.member.rank == root;
                    let from = filled(shm.member.rank, count);
                    let parts: Vec<Vec<f32>> = (0..size)
                        .map(|to| filled(shm.member.rank * 10 + to, count))
                        .collect();
                    let send: Vec<*const u8> =
                        parts.iter().map(|part| part.as_ptr().cast()).collect();
                    let mut into = vec![vec![0f32; count]; size];
                    let recv: Vec<*mut u8> = into
                        .iter_mut()
                        .map(|part| part.as_mut_ptr().cast())
                        .collect();
                    let mut one = vec![0f32; count];
                    let out: [*mut u8; 1] = [one.as_mut_ptr().cast()];

                    run(
                        shm,
                        &call(Kind::AllGather, count, &[from.as_ptr().cast()], &recv),
                    )
                    .expect("it works");
                    for (rank, part) in into.iter().enumerate() {
                        assert_eq!(*part, filled(rank, count));
                    }
                    run(shm, &call(Kind::ReduceScatter, count, &send, &out)).expect("it works");
                    let sum: Vec<f32> = (0..count)
                        .map(|i| {
                            (0..size)
                                .map(|rank| value(rank * 10 + shm.member.rank, i))
                                .sum()
                        })
                        .collect();
                    assert_eq!(one, sum);
                    run(
                        shm,
                        &with(
                            root,
                            0,
                            call(Kind::Scatter, count, if mine { &send } else { &[] }, &out),
                        ),
                    )
                    .expect("it works");
                    assert_eq!(one, filled(root * 10 + shm.member.rank, count));
                    run(
                        shm,
                        &with(
                            root,
                            0,
                            call(Kind::Broadcast, count, &[from.as_ptr().cast()], &out),
                        ),
                    )
                    .expect("it works");
                    assert_eq!(one, filled(root, count));
                    one.fill(-1.0);
                    run(
                        shm,
                        &with(
                            root,
                            0,
                            call(Kind::Reduce, count, &[from.as_ptr().cast()], &out),
                        ),
                    )
                    .expect("it works");
                    let sum = |i| (0..size).map(|rank| value(rank, i)).sum::<f32>();
                    let expected: Vec<f32> = (0..count)
                        .map(|i| if mine { sum(i) } else { -1.0 })
                        .collect();
                    assert_eq!(one, expected, "only the root's buffer changes");
                    into.iter_mut().for_each(|part| part.fill(0.0));
                    let recv: Vec<*mut u8> = into
                        .iter_mut()
                        .map(|part| part.as_mut_ptr().cast())
                        .collect();
                    run(
                        shm,
                        &with(
                            root,
                            0,
                            call(
                                Kind::Gather,
                                count,
                                &[from.as_ptr().cast()],
                                if mine { &recv } else { &[] },
                            ),
                        ),
                    )
                    .expect("it works");
                    for (rank, part) in into.iter().enumerate().filter(|_| mine) {
                        assert_eq!(*part, filled(rank, count));
                    }
                    run(shm, &call(Kind::Barrier, 0, &[], &[])).expect("it works");
                });
            }
        }
    }
}

#[test]
fn all_to_all_takes_counts_of_every_pair() {
    let amount = |from: usize, to: usize| (from * 3 + to * 5) * 611 % 6000;
    for size in [1, 2, 3, 4] {
        group(size, |shm| {
            let me = shm.member.rank;
            let parts: Vec<Vec<f32>> = (0..size)
                .map(|to| filled(me * 10 + to, amount(me, to)))
                .collect();
            let mut into: Vec<Vec<f32>> =
                (0..size).map(|from| vec![0.0; amount(from, me)]).collect();
            let send: Vec<*const u8> = parts.iter().map(|part| part.as_ptr().cast()).collect();
            let recv: Vec<*mut u8> = into
                .iter_mut()
                .map(|part| part.as_mut_ptr().cast())
                .collect();
            let send_counts: Vec<usize> = parts.iter().map(Vec::len).collect();
            let recv_counts: Vec<usize> = into.iter().map(Vec::len).collect();
            let call = Collective {
                send_counts: &send_counts,
                recv_counts: &recv_counts,
                ..call(Kind::AllToAll, 0, &send, &recv)
            };
            run(shm, &call).expect("it works");
            for (from, part) in into.iter().enumerate() {
                assert_eq!(*part, filled(from * 10 + me, amount(from, me)));
            }
        });
    }
}

#[test]
fn messages_are_told_apart_by_tag_and_may_exceed_the_channel() {
    let count = 200_000; // several times what a channel holds
    group(2, |shm| {
        let peer = 1 - shm.member.rank;
        if shm.member.rank == 0 {
            for tag in [1, 2] {
                let data = filled(tag as usize, count);
                run(
                    shm,
                    &with(
                        peer,
                        tag,
                        call(Kind::Send, count, &[data.as_ptr().cast()], &[]),
                    ),
                )
                .expect("it works");
            }
        } else {
            for tag in [2, 1] {
                let mut data = vec![0f32; count];
                run(
                    shm,
                    &with(
                        peer,
                        tag,
                        call(Kind::Recv, count, &[], &[data.as_mut_ptr().cast()]),
                    ),
                )
                .expect("it works");
                assert_eq!(data, filled(tag as usize, count));
            }
        }
    });
}

#[test]
fn a_receive_from_any_rank_says_whose_it_was() {
    group(3, |shm| {
        if shm.member.rank == 0 {
            let mut seen = vec![];
            for _ in 0..2 {
                let mut data = [0f32];
                let recv = [data.as_mut_ptr().cast()];
                // SAFETY: one element.
                let from =
                    unsafe { shm.receive_any(&call(Kind::Recv, 1, &[], &recv)) }.expect("it works");
                assert_eq!(data, [from as f32]);
                seen.push(from);
            }
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        } else {
            let data = [shm.member.rank as f32];
            let send = [data.as_ptr().cast()];
            run(
                shm,
                &Collective {
                    root: Some(0),
                    ..call(Kind::Send, 1, &send, &[])
                },
            )
            .expect("it works");
        }
    });
}

#[test]
fn many_small_calls_of_every_kind_stay_apart() {
    group(3, |shm| {
        for round in 0..2000u32 {
            let root = round as usize % 3;
            let mut x = [f32::from(round as u16), shm.member.rank as f32];
            let address = x.as_mut_ptr().cast::<u8>();
            let kind = if round % 2 == 0 {
                Kind::AllReduce
            } else {
                Kind::Broadcast
            };
            let rooted = (kind == Kind::Broadcast).then_some(root);
            run(
                shm,
                &Collective {
                    root: rooted,
                    ..call(kind, 2, &[address], &[address])
                },
            )
            .expect("it works");
            let expected = if kind == Kind::AllReduce {
                [3.0 * f32::from(round as u16), 3.0]
            } else {
                [f32::from(round as u16), root as f32]
            };
            assert_eq!(x, expected);
        }
    });
}

#[test]
fn another_call_is_a_mismatch_that_names_the_rank() {
    let errors = group(2, |shm| {
        let mut x = [0f32; 8];
        let address = x.as_mut_ptr().cast::<u8>();
        let count = if shm.member.rank == 0 { 8 } else { 4 };
        run(shm, &call(Kind::AllReduce, count, &[address], &[address])).expect_err("they differ")
    });
    // Both ranks may see the mismatch, or one may see that the other aborted.
    assert!(
        errors
            .iter()
            .any(|error| error.kind() == ErrorKind::Mismatch),
        "{errors:?}"
    );
    for (rank, error) in errors.iter().enumerate() {
        assert_eq!(error.culprit(), Some(1 - rank), "{error}");
        assert!(
            error.to_string().contains("all_reduce (sequence 1, sum of"),
            "{error}"
        );
    }
}

#[test]
fn who_does_not_come_is_named_and_the_group_is_over() {
    let late = Arc::new(std::sync::Barrier::new(3));
    let errors = group(3, |shm| {
        let mut x = [0f32; 8];
        let address = x.as_mut_ptr().cast::<u8>();
        let (send, recv) = ([address.cast_const()], [address]);
        let short = Collective {
            timeout: Duration::from_millis(200),
            ..call(Kind::AllReduce, 8, &send, &recv)
        };
        if shm.member.rank == 2 {
            late.wait();
            return run(shm, &short).expect_err("the group is over");
        }
        let error = run(shm, &short).expect_err("rank 2 is missing");
        late.wait();
        error
    });
    assert_eq!(errors[2].kind(), ErrorKind::Aborted, "{}", errors[2]);
    for error in &errors {
        assert!(error.to_string().contains("rank 2 (process"), "{error}");
    }
}

#[test]
fn a_rank_that_left_its_group_is_not_waited_for() {
    let left = std::sync::Barrier::new(2);
    for waits in [Kind::AllReduce, Kind::Recv, Kind::Send, Kind::Broadcast] {
        for any in [false, true] {
            if any && waits != Kind::Recv {
                continue;
            }
            let store = Memory::default();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    drop(super::connect(&config(1, 2), &store).expect("they are here"));
                    left.wait();
                });
                let shm = super::connect(&config(0, 2), &store).expect("they are here");
                left.wait();
                // Longer than a channel holds.
                let mut x = vec![0f32; 200_000];
                let address = x.as_mut_ptr().cast::<u8>();
                let (send, recv) = ([address.cast_const()], [address]);
                let one = call(
                    waits,
                    x.len(),
                    &send[..usize::from(waits != Kind::Recv)],
                    &recv[..usize::from(waits != Kind::Send)],
                );
                let outcome = match waits {
                    // SAFETY: the buffer has the count's size.
                    Kind::Recv if any => unsafe { shm.receive_any(&one).map(drop) },
                    Kind::AllReduce => run(&shm, &one),
                    _ => run(&shm, &with(1, 0, one)),
                };
                let error = outcome.expect_err("rank 1 has left");
                assert_eq!(
                    (error.kind(), error.culprit()),
                    (ErrorKind::PeerLost, Some(1)),
                    "{error}"
                );
                assert!(error.to_string().contains("has left the group"), "{error}");
            });
        }
    }
}

#[test]
fn the_last_call_of_a_lost_rank_is_the_one_it_made_last() {
    let left = std::sync::Barrier::new(2);
    group(2, |shm| {
        // Two steps each, so that every call is described in the same place.
        let mut x = vec![1f32; WINDOW / 4 + 1];
        let address = x.as_mut_ptr().cast::<u8>();
        let (send, recv) = ([address.cast_const()], [address]);
        for sequence in 1..=9 {
            let kind = if sequence == 1 {
                Kind::AllReduce
            } else {
                Kind::Broadcast
            };
            let one = Collective {
                sequence,
                root: (sequence != 1).then_some(0),
                ..call(kind, if sequence == 1 { 1 } else { x.len() }, &send, &recv)
            };
            run(shm, &one).expect("both are here");
        }
        left.wait();
        let last = shm
            .member
            .last_call(1 - shm.member.rank)
            .expect("nine calls");
        assert_eq!((last.kind, last.sequence), (Kind::Broadcast as u32, 9));
    });
}

#[test]
fn a_message_of_another_size_is_refused_and_the_next_one_arrives() {
    group(2, |shm| {
        let peer = 1 - shm.member.rank;
        if shm.member.rank == 0 {
            let data = [1f32, 2.0, 3.0];
            run(
                shm,
                &with(peer, 0, call(Kind::Send, 3, &[data.as_ptr().cast()], &[])),
            )
            .expect("it works");
            run(
                shm,
                &with(peer, 0, call(Kind::Send, 2, &[data.as_ptr().cast()], &[])),
            )
            .expect("it works");
        } else {
            let mut data = [0f32; 2];
            let recv = [data.as_mut_ptr().cast()];
            let error = run(shm, &with(peer, 0, call(Kind::Recv, 2, &[], &recv)))
                .expect_err("it is longer");
            assert!(
                error
                    .to_string()
                    .contains("rank 0 sent 12 bytes of float32, 8 of float32"),
                "{error}"
            );
            run(shm, &with(peer, 0, call(Kind::Recv, 2, &[], &recv))).expect("it works");
            assert_eq!(data, [1.0, 2.0]);
        }
    });
}

#[test]
fn what_an_earlier_life_left_in_the_store_is_not_taken() {
    let store = Memory::default();
    for life in 0..5 {
        let sums = group_over(&store, 3, |shm| {
            let mut x = [(shm.member.rank + life) as f32];
            let address = x.as_mut_ptr().cast::<u8>();
            run(shm, &call(Kind::AllReduce, 1, &[address], &[address])).map(|()| x[0])
        });
        for sum in sums {
            assert_eq!(sum.expect("it works"), (3 + 3 * life) as f32);
        }
    }
}

#[test]
fn who_dies_while_the_group_is_made_is_told_at_once() {
    use crate::Store as _;
    let store = Memory::default();
    // Plays a rank 1 that greets, takes the answer, and ends before it attaches.
    let mut child = std::process::Command::new("true").spawn().expect("it runs");
    let greeting = format!(
        "life {} {}",
        child.id(),
        super::rendezvous::host().expect("it is known")
    );
    store
        .set("hello/1", greeting.as_bytes())
        .expect("it is there");
    child.wait().expect("it ends");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| super::connect(&config(0, 2), &store));
        let report = store
            .get("report", Duration::from_secs(20))
            .expect("it comes");
        let report: serde_json::Value = serde_json::from_slice(&report).expect("it is JSON");
        let leader = report["leader"].as_str().expect("a word");
        store
            .set("taken/1", leader.as_bytes())
            .expect("it is there");
        let error = first
            .join()
            .expect("no panic")
            .err()
            .expect("rank 1 is gone");
        assert_eq!(
            (error.kind(), error.culprit()),
            (ErrorKind::PeerLost, Some(1)),
            "{error}"
        );
    });
}

#[test]
fn a_rank_of_an_earlier_life_is_not_the_one_that_is_waited_for() {
    use crate::Store as _;
    let store = Memory::default();
    let mut child = std::process::Command::new("true").spawn().expect("it runs");
    let greeting = format!(
        "life {} {}",
        child.id(),
        super::rendezvous::host().expect("it is known")
    );
    child.wait().expect("it ends");
    store
        .set("hello/1", greeting.as_bytes())
        .expect("it is there");
    std::thread::scope(|scope| {
        let connect = |rank| {
            let store = &store;
            scope.spawn(move || super::connect(&config(rank, 3), store).map(|_| ()))
        };
        let mut ranks = vec![connect(0), connect(2)];
        std::thread::sleep(Duration::from_millis(500));
        ranks.push(connect(1));
        for rank in ranks {
            rank.join().expect("no panic").expect("all are here");
        }
    });
}

#[test]
fn ranks_that_give_from_different_roots_are_told() {
    for (kind, size) in [
        (Kind::Broadcast, 2),
        (Kind::Broadcast, 3),
        (Kind::Scatter, 3),
        (Kind::Gather, 3),
        (Kind::Reduce, 2),
    ] {
        // The last call of a group is compared too: the last rank to come sees the others.
        for calls in [1, 2] {
            let errors = group(size, |shm| {
                let mut buffers = vec![vec![1f32; 100]; size + 1];
                let addresses: Vec<*mut u8> = buffers
                    .iter_mut()
                    .map(|buffer| buffer.as_mut_ptr().cast())
                    .collect();
                let parts: Vec<*const u8> = addresses[1..]
                    .iter()
                    .map(|&part| part.cast_const())
                    .collect();
                let one = [addresses[0].cast_const()];
                let itself = match kind {
                    Kind::Scatter => call(kind, 100, &parts, &addresses[..1]),
                    Kind::Gather => call(kind, 100, &one, &addresses[1..]),
                    _ => call(kind, 100, &one, &addresses[..1]),
                };
                (0..calls).find_map(|_| run(shm, &with(shm.member.rank, 0, itself.clone())).err())
            });
            let errors: Vec<_> = errors.into_iter().flatten().collect();
            let named = errors.iter().any(|error| {
                let text = error.to_string();
                error.kind() == ErrorKind::Mismatch
                    && text.contains(&format!("called {}", kind.name()))
                    && text.contains(", root ")
            });
            assert!(named, "{kind:?} of {size}: {errors:?}");
        }
    }
}

#[test]
fn a_root_that_went_on_is_told_at_its_next_call() {
    let errors = group(2, |shm| {
        let mut buffer = [0f32; 4];
        let address = buffer.as_mut_ptr().cast::<u8>();
        let (send, recv) = ([address.cast_const()], [address]);
        if shm.member.rank == 0 {
            run(shm, &with(0, 0, call(Kind::Broadcast, 4, &send, &recv)))
                .expect("nobody else came");
        } else {
            // Rank 0 has gone on when this rank makes its call.
            while shm.member.segment.control(0).step.get() == 0 {
                std::thread::yield_now();
            }
        }
        run(shm, &call(Kind::AllReduce, 4, &send, &recv)).err()
    });
    let errors: Vec<_> = errors
        .into_iter()
        .flatten()
        .map(|error| error.to_string())
        .collect();
    assert!(
        errors.iter().any(
            |text| text.contains("rank 1 called all_reduce of 4 x float32, sum")
                && text.contains("of this rank's broadcast")
                || text.contains("rank 0 called broadcast of 4 x float32, root 0")
        ),
        "{errors:?}"
    );
}

#[test]
fn a_window_has_room_for_every_rank() {
    // The smallest window of the configuration, and more ranks than it has parts for.
    let size = 70;
    let results = group(size, |shm| {
        let mut buffer = filled(shm.member.rank, 100);
        let address = buffer.as_mut_ptr().cast::<u8>();
        run(shm, &call(Kind::AllReduce, 100, &[address], &[address])).expect("it works");
        let (from, mut to) = (vec![shm.member.rank as f32; size], vec![0f32; size]);
        let send: Vec<*const u8> = (0..size).map(|i| from[i..].as_ptr().cast()).collect();
        let recv: Vec<*mut u8> = (0..size).map(|i| to[i..].as_mut_ptr().cast()).collect();
        let counts = vec![1; size];
        let exchange = Collective {
            send_counts: &counts,
            recv_counts: &counts,
            ..call(Kind::AllToAll, 0, &send, &recv)
        };
        run(shm, &exchange).expect("it works");
        (buffer[1], to)
    });
    let sum: f32 = (0..size).map(|rank| value(rank, 1)).sum();
    for (reduced, exchanged) in results {
        assert_eq!(reduced, sum);
        assert!(
            exchanged
                .iter()
                .enumerate()
                .all(|(rank, &it)| it == rank as f32)
        );
    }
}

#[test]
fn windows_that_cannot_be_had_are_refused() {
    for window in [1usize << 62, usize::MAX & !4095, 1 << 31] {
        let store = Memory::default();
        let config = Config {
            window,
            ..config(0, 1)
        };
        let Err(error) = super::connect(&config, &store) else {
            panic!("{window} bytes were had");
        };
        assert!(error.to_string().contains("FLAGOS_COMM_WINDOW"), "{error}");
    }
}
