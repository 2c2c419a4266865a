//! A group's parts, and whole groups whose ranks are threads.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::flight_recorder::FlightRecorder;
use super::host::QueuedCall;
use super::lane::Lane;
use super::{Group, Side};
use crate::store::tests::Memory;
use crate::{Collective, Config, DType, ErrorKind, Kind, ReduceOp};

const LONG: Duration = Duration::from_secs(20);

fn config(rank: usize, size: usize) -> Config {
    Config {
        engine: None,
        library: None,
        vendor: "host".into(),
        vendor_engine: Some("shm".into()),
        device: -1,
        rank,
        size,
        group: "of tests".into(),
        timeout: LONG,
        window: 4096,
    }
}

fn all_reduce<'a>(send: &'a [*const u8], recv: &'a [*mut u8], sequence: u64) -> Collective<'a> {
    Collective {
        kind: Kind::AllReduce,
        dtype: DType::Float32,
        reduce: ReduceOp::Sum,
        root: None,
        tag: 0,
        count: 1,
        factor: 1.0,
        sequence,
        timeout: LONG,
        send,
        recv,
        send_counts: &[],
        recv_counts: &[],
    }
}

/// The answers of the ranks of a group whose ranks are threads.
fn ranks<T: Send>(size: usize, work: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let store = Arc::new(Memory::default());
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..size)
            .map(|rank| {
                let (store, work) = (store.clone(), &work);
                scope.spawn(move || {
                    let no_devices = Arc::new(|_| Ok(()));
                    let group = Group::open(config(rank, size), None, store, no_devices);
                    work(group.expect("the ranks meet"))
                })
            })
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

#[test]
fn a_lane_runs_tasks_in_order_and_callbacks_beside_them() {
    let lane = Lane::default();
    assert!(lane.is_idle());
    let (begin, begun) = mpsc::channel::<()>();
    let (sender, received) = mpsc::channel();
    let order = Arc::new(Mutex::new(vec![]));
    let note = |what: &'static str| {
        let order = order.clone();
        move || order.lock().expect("no panic").push(what)
    };
    let (first, second) = (note("first"), note("second"));
    lane.push(Box::new(move || {
        begun.recv().expect("the test goes on");
        first();
        // Waits for the task behind it.
        Some(Box::new(move || {
            received.recv().expect("the second task runs")
        }))
    }))
    .expect("a thread");
    assert!(!lane.is_idle());
    let (done, over) = mpsc::channel();
    lane.push(Box::new(move || {
        second();
        sender.send(()).expect("the callback waits");
        Some(Box::new(move || done.send(()).expect("the test waits")))
    }))
    .expect("a thread");
    begin.send(()).expect("the first task waits");
    over.recv_timeout(LONG).expect("both are over");
    assert_eq!(*order.lock().expect("no panic"), ["first", "second"]);
}

#[test]
fn a_lane_that_is_dropped_finishes_its_tasks() {
    let (sender, received) = mpsc::channel();
    let (begin, begun) = mpsc::channel::<()>();
    let lane = Lane::default();
    lane.push(Box::new(move || {
        begun.recv().expect("the test goes on");
        None
    }))
    .expect("a thread");
    for number in 0..3 {
        let sender = sender.clone();
        lane.push(Box::new(move || {
            sender.send(number).expect("the test waits");
            None
        }))
        .expect("a thread");
    }
    drop((lane, sender));
    begin.send(()).expect("the first task waits");
    assert_eq!(received.iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn the_flight_recorder_keeps_the_last_calls_and_reports_once() {
    let folder = std::env::temp_dir().join(format!("flagos-recorder-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let recorder = FlightRecorder::new("a/b 1".into(), 2, Some(folder.clone()));
    let numbers: Vec<u64> = (0..200)
        .map(|sequence| recorder.begin(&all_reduce(&[], &[], sequence), true))
        .collect();
    recorder.ended(numbers[10], false); // newer calls have taken its place
    recorder.ended(numbers[72], true);
    recorder.ended(numbers[199], false);
    recorder.report(&serde_json::json!({"it": "is"}), "a test");
    recorder.report(&serde_json::json!({"it": "was"}), "a second time");
    let text = std::fs::read_to_string(folder.join("a_b_1-rank2.json")).expect("the report");
    std::fs::remove_dir_all(&folder).expect("it is there");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["state"]["it"], "is");
    let calls = report["calls"].as_array().expect("a list");
    assert_eq!(calls.len(), 128);
    assert_eq!(calls[0]["sequence"], 72);
    let progress = |call: usize| calls[call]["progress"].as_str().expect("a word");
    assert_eq!(
        [progress(0), progress(1), progress(127)],
        ["done", "queued", "failed"]
    );
    assert_eq!(calls[1]["collective"], "all_reduce");
    assert_eq!(calls[1]["dtype"], "float32");
    assert_eq!(calls[1]["async"], true);
    assert!(calls[1]["root"].is_null());
}

#[test]
fn queued_calls_end_in_order_and_are_recorded() {
    let sums = ranks(2, |group| {
        let host = group.host().expect("one host");
        let (sender, received) = mpsc::channel();
        let mut values = [1f32, 10.0, 100.0];
        let addresses: Vec<[*mut u8; 1]> = values
            .iter_mut()
            .map(|value| [std::ptr::from_mut(value).cast()])
            .collect();
        let sends: Vec<[*const u8; 1]> = addresses.iter().map(|to| [to[0].cast_const()]).collect();
        for (index, (send, recv)) in sends.iter().zip(&addresses).enumerate() {
            let call = all_reduce(send, recv, index as u64 + 1);
            // SAFETY: the buffers live until all calls are over, below.
            let call = unsafe { QueuedCall::new(&call) };
            let sender = sender.clone();
            let ended = Box::new(move |outcome: crate::Result<Option<usize>>| {
                sender
                    .send((index, outcome.is_ok()))
                    .expect("the test waits");
                None
            });
            host.queue(call, true, ended).expect("a thread");
        }
        let ends: Vec<_> = (0..3)
            .map(|_| received.recv_timeout(LONG).expect("an end"))
            .collect();
        assert_eq!(ends, [(0, true), (1, true), (2, true)]);
        let state = group.state();
        assert_eq!(state["calls"].as_array().expect("a list").len(), 3);
        assert_eq!(state["calls"][2]["progress"], "done");
        assert!(state["device"].is_null());
        values
    });
    assert_eq!(sums, [[2.0, 20.0, 200.0]; 2]);
}

#[test]
fn an_aborted_side_tells_why_and_leaves_the_other_alone() {
    ranks(1, |group| {
        group.abort(Side::Devices, "nothing is connected");
        assert!(group.async_error(Side::Host).is_ok());
        group.abort(Side::Host, "the test says so");
        let error = group.async_error(Side::Host).expect_err("it was aborted");
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert!(error.to_string().contains("the test says so"), "{error}");
        assert!(group.async_error(Side::Devices).is_ok());
    });
}

#[test]
fn a_monitored_barrier_names_all_who_are_missing_or_the_first() {
    let coming = ranks(3, |group| group.monitored_barrier(20_000, true));
    assert!(coming.iter().all(Result::is_ok), "{coming:?}");
    for (all, names) in [(true, "Ranks 1, 3 failed"), (false, "Rank 1 failed")] {
        let verdicts = ranks(4, |group| match group.state()["rank"].as_u64() {
            Some(1 | 3) => None,
            _ => Some(
                group
                    .monitored_barrier(100, all)
                    .expect_err("two are missing"),
            ),
        });
        for (rank, verdict) in verdicts.into_iter().enumerate() {
            let Some(error) = verdict else { continue };
            let text = error.to_string();
            assert!(text.contains(names), "{text}");
            assert!(text.contains("in 100 ms, in group of tests"), "{text}");
            assert_eq!(text.contains("Rank 2 successfully reached"), rank == 2);
        }
    }
    let at_once = ranks(2, |group| group.monitored_barrier(0, false).is_err());
    assert!(at_once[0]);
}

#[test]
fn an_engine_without_streams_is_no_endpoint() {
    let errors = ranks(1, |group| {
        let found = group.endpoints().get(0, None, LONG);
        let itself = group.endpoints().get(0, Some(0), LONG);
        [found.err(), itself.err()].map(|error| error.expect("a refusal").to_string())
    });
    assert_eq!(
        errors[0][0],
        "the engine shm does not queue work on streams"
    );
    assert!(errors[0][1].contains("cannot transfer"), "{}", errors[0][1]);
}

#[test]
fn who_is_not_connected_in_time_is_named() {
    let mut late = config(0, 2);
    let store = Arc::new(Memory::default());
    late.timeout = Duration::from_millis(300);
    late.vendor = "acme".into();
    late.engine = Some("shm".into());
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let endpoints = super::endpoints::Endpoints::new(
        late,
        store,
        Arc::new(move |_| {
            let _ = held.lock().expect("no panic").recv(); // a library that hangs
            Ok(())
        }),
    );
    let error = endpoints.get(0, None, Duration::from_millis(100));
    let error = error.err().expect("nobody comes");
    drop(hold);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = error.to_string();
    assert!(
        text.contains("2 ranks were not connected within 100 ms"),
        "{text}"
    );
    assert!(text.ends_with("not here: rank 1"), "{text}");
}
