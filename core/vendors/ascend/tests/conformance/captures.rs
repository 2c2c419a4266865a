//! Graphs of the vendor `ascend` alone.

use flagos_core::ErrorKind;
use flagos_core::runtime::{CaptureMode, Stream};
use flagos_vendor_kit::conformance::Pinned;

use crate::{bytes, copy, fill, open};

const NBYTES: usize = 4096;

/// A copy to the device and back, captured on the stream.
fn capture_round_trip(stream: &dyn Stream, device: *mut u8, host: &Pinned<'_>) {
    copy(stream, device, host.address(), NBYTES);
    copy(stream, host.address().wrapping_add(NBYTES), device, NBYTES);
}

#[test]
fn graphs_of_several_streams_run_at_once() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let streams: Vec<_> = (0..4)
        .map(|_| vendor.stream(0, 0).expect("a stream"))
        .collect();
    let mut hosts: Vec<_> = (0..4)
        .map(|_| Pinned::new(vendor, 2 * NBYTES).expect("memory"))
        .collect();
    let memory: Vec<_> = (0..4)
        .map(|_| vendor.alloc(0, NBYTES).expect("memory"))
        .collect();
    let mut ids = Vec::new();
    for stream in &streams {
        stream
            .begin_capture(CaptureMode::ThreadLocal)
            .expect("captured");
        ids.push(stream.capture().expect("known").expect("captured").id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "each capture has a number of its own");
    let mut graphs = Vec::new();
    for (index, stream) in streams.iter().enumerate() {
        capture_round_trip(&**stream, memory[index].as_ptr(), &hosts[index]);
        graphs.push(stream.end_capture().expect("a graph"));
    }
    for round in 0..10 {
        for (index, host) in hosts.iter_mut().enumerate() {
            fill(&mut bytes(host, 2 * NBYTES)[..NBYTES], 10 * round + index);
        }
        for (stream, graph) in streams.iter().zip(&graphs) {
            // SAFETY: the memory lives until the streams have been synchronised.
            unsafe { stream.replay(&**graph) }.expect("it runs");
        }
        for stream in &streams {
            stream.sync().expect("it ran");
        }
        for host in &mut hosts {
            let (sent, received) = bytes(host, 2 * NBYTES).split_at(NBYTES);
            assert!(sent == received);
        }
    }
    drop(graphs);
    vendor.device_sync(0).expect("it settles");
    for address in memory {
        // SAFETY: allocated with this size; the device has finished.
        unsafe { vendor.free(0, address, NBYTES) };
    }
}

#[test]
fn what_is_freed_during_a_capture_is_freed_after_it() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    vendor.device_sync(0).expect("it settles");
    let stream = vendor.stream(0, 0).expect("a stream");
    let before = vendor.memory(0).expect("told").free;
    let memory = vendor.alloc(0, 64 << 20).expect("memory");
    stream.begin_capture(CaptureMode::Global).expect("captured");
    // SAFETY: allocated with this size, and used by nothing.
    unsafe { vendor.free(0, memory, 64 << 20) };
    drop(vendor.stream(0, 0).expect("a stream"));
    let more = vendor.alloc(0, 1 << 20).expect("memory during a capture");
    assert!(vendor.memory(0).expect("told").free < before);
    drop(stream.end_capture().expect("a graph"));
    // SAFETY: as above.
    unsafe { vendor.free(0, more, 1 << 20) };
    vendor.device_sync(0).expect("it settles");
    assert_eq!(vendor.memory(0).expect("told").free, before);
}

#[test]
fn a_capture_ends_on_its_own_thread() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let stream = vendor.stream(0, 0).expect("a stream");
    stream
        .begin_capture(CaptureMode::Relaxed)
        .expect("captured");
    let graph = std::thread::scope(|scope| {
        let end = || stream.end_capture().expect("any thread may end it");
        scope.spawn(end).join().expect("it ends")
    });
    // SAFETY: the graph is empty.
    unsafe { stream.replay(&*graph) }.expect("it runs");
    stream.sync().expect("it ran");
    vendor.device_sync(0).expect("it settles");
}

#[test]
fn a_stream_that_is_dropped_ends_its_capture() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let stream = vendor.stream(0, 0).expect("a stream");
    stream.begin_capture(CaptureMode::Global).expect("captured");
    let error = vendor.device_sync(0).expect_err("not during a capture");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("device: 0"), "{error}");
    drop(stream);
    vendor.device_sync(0).expect("nothing is captured");
}

#[test]
fn a_graph_runs_on_its_own_device() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    if vendor.device_count() < 2 {
        return;
    }
    let [here, there] = [0, 1].map(|device| vendor.stream(device, 0).expect("a stream"));
    here.begin_capture(CaptureMode::Global).expect("captured");
    assert_eq!(there.capture().ok(), Some(None));
    vendor.device_sync(1).expect("the other device is free");
    let graph = here.end_capture().expect("a graph");
    // SAFETY: the graph is empty.
    let error = unsafe { there.replay(&*graph) }.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    here.begin_capture(CaptureMode::Global).expect("captured");
    // SAFETY: the graph is empty.
    let error = unsafe { here.replay(&*graph) }.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    drop(here.end_capture().expect("a graph"));
    vendor.device_sync(0).expect("it settles");
}

#[test]
fn other_streams_go_on_during_a_capture() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let [captured, other] = [(); 2].map(|()| vendor.stream(0, 0).expect("a stream"));
    let memory = vendor.alloc(0, NBYTES).expect("memory");
    captured
        .begin_capture(CaptureMode::Global)
        .expect("captured");
    let (mut sent, mut received) = (vec![0; NBYTES], vec![0; NBYTES]);
    fill(&mut sent, 3);
    // Ordinary memory, from this thread and from another one.
    copy(&*other, memory.as_ptr(), sent.as_ptr(), NBYTES);
    let address = memory.as_ptr() as usize;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            copy(&*other, received.as_mut_ptr(), address as *const u8, NBYTES);
            other.sync().expect("it ran");
        });
    });
    assert!(sent == received);
    assert!(captured.capture().expect("known").expect("captured").valid);
    captured.end_capture().expect("it was not disturbed");
    vendor.device_sync(0).expect("it settles");
    // SAFETY: allocated with this size; the device has finished.
    unsafe { vendor.free(0, memory, NBYTES) };
}
