//! Graphs over a vendor that captures: the suite, and graphs with their memory.

#![cfg(not(loom))]

mod recording;

use std::sync::Arc;
use std::time::Duration;

use flagos_core::ErrorKind;
use flagos_core::env::HostSettings;
use flagos_core::runtime::{Allocation, CaptureMode, Runtime, StreamGraph, Vendor};
use flagos_core::vendors::host::HostVendor;
use flagos_vendor_kit::conformance::{failures, named};

use recording::{FLAWS, Flaw, Recording};

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_millis(30);

#[test]
fn a_vendor_that_captures_passes_the_suite() {
    let vendor = Recording::new(Flaw::None, &HostSettings::default());
    assert_eq!(failures(&vendor, PATIENCE), [""; 0]);
}

#[test]
fn every_flaw_of_a_capture_is_noticed() {
    for (flaw, check) in FLAWS {
        let vendor = Recording::new(flaw, &HostSettings::default());
        let outcome = named(check).expect("a check").run(&vendor, PATIENCE);
        assert!(outcome.is_err(), "{flaw:?} passes {check}");
    }
}

/// A runtime on a device of this size, and its stream that can be captured.
fn runtime(memory: usize) -> (Runtime, u64) {
    let settings = HostSettings {
        memory: Some(memory as u64),
        ..HostSettings::default()
    };
    let vendor = Recording::new(Flaw::None, &settings);
    let runtime = Runtime::new(Arc::new(vendor)).expect("a runtime");
    let stream = runtime.streams().create(0, 0).expect("a stream");
    (runtime, stream)
}

fn alloc(runtime: &Runtime, stream: u64, nbytes: usize) -> Allocation {
    let found = runtime.memory().alloc(0, stream, nbytes);
    found.expect("memory").expect("not empty")
}

fn free(runtime: &Runtime, block: Allocation) {
    runtime.memory().free(block.block).expect("allocated");
}

fn begin(runtime: &Runtime, graph: &StreamGraph, stream: u64, memory: Option<u64>) {
    let begun = graph.begin_capture(runtime, (0, stream), memory, CaptureMode::Global);
    begun.expect("captured");
}

fn reserved(runtime: &Runtime) -> i64 {
    let stats = runtime.memory().stats(0).expect("stats");
    stats.reserved_bytes.all.current
}

fn empty_cache(runtime: &Runtime) {
    runtime.memory().empty_cache(0).expect("given back");
}

#[test]
fn a_graphs_memory_serves_nothing_else_until_it_is_reset() {
    let (runtime, stream) = runtime(64 * MIB);
    let before = alloc(&runtime, stream, 1000);
    free(&runtime, before);
    let graph = StreamGraph::default();
    begin(&runtime, &graph, stream, None);
    let inside = alloc(&runtime, stream, 1000);
    assert_ne!(inside.data, before.data, "cached memory is not the graph's");
    let elsewhere = alloc(&runtime, 0, 1000);
    free(&runtime, inside);
    let again = alloc(&runtime, stream, 1000);
    assert_eq!(again.data, inside.data, "within the capture it is reused");
    graph.end_capture(&runtime).expect("it ends");
    let after = alloc(&runtime, stream, 1000);
    assert_eq!(
        after.data, before.data,
        "what was cached before is there again"
    );
    for block in [again, after, elsewhere] {
        free(&runtime, block);
    }
    empty_cache(&runtime);
    assert_eq!(reserved(&runtime), 2 * MIB as i64, "the graph's segment");
    graph.replay(&runtime, stream).expect("it runs");
    graph.reset(&runtime).expect("reset");
    empty_cache(&runtime);
    assert_eq!(reserved(&runtime), 0);
}

#[test]
fn graphs_share_memory_until_the_last_one_is_gone() {
    let (runtime, stream) = runtime(64 * MIB);
    let memory = StreamGraph::new_memory();
    let graphs = [StreamGraph::default(), StreamGraph::default()];
    let addresses = graphs.each_ref().map(|graph| {
        begin(&runtime, graph, stream, Some(memory));
        let block = alloc(&runtime, stream, 1000);
        free(&runtime, block);
        graph.end_capture(&runtime).expect("it ends");
        assert_eq!(graph.memory().ok(), Some(memory));
        block.data
    });
    assert_eq!(addresses[0], addresses[1]);
    for (graph, left) in graphs.iter().zip([2 * MIB as i64, 0]) {
        graph.reset(&runtime).expect("reset");
        empty_cache(&runtime);
        assert_eq!(reserved(&runtime), left);
    }
}

#[test]
fn a_tensor_of_a_graph_outlives_it() {
    let (runtime, stream) = runtime(64 * MIB);
    let graph = StreamGraph::default();
    begin(&runtime, &graph, stream, None);
    let result = alloc(&runtime, stream, 1000);
    graph.end_capture(&runtime).expect("it ends");
    graph.reset(&runtime).expect("reset");
    empty_cache(&runtime);
    assert_eq!(reserved(&runtime), 2 * MIB as i64);
    free(&runtime, result);
    empty_cache(&runtime);
    assert_eq!(reserved(&runtime), 0);
}

#[test]
fn a_block_that_a_captured_stream_used_is_free_after_the_capture() {
    let (runtime, stream) = runtime(64 * MIB);
    let graph = StreamGraph::default();
    let block = alloc(&runtime, 0, 1000);
    let pinned = runtime
        .pinned()
        .alloc(100)
        .expect("memory")
        .expect("not empty");
    begin(&runtime, &graph, stream, None);
    runtime
        .memory()
        .record_stream(block.block, 0, stream)
        .expect("noted");
    let noted = runtime
        .pinned()
        .record_stream(pinned.data.as_ptr() as usize, 0, stream);
    noted.expect("noted");
    free(&runtime, block);
    runtime.pinned().free(pinned.block).expect("allocated");
    let other = alloc(&runtime, 0, 1000);
    assert_ne!(other.data, block.data, "the captured stream may use it");
    assert_eq!(runtime.pinned().stats().active_requests.current, 1);
    graph.end_capture(&runtime).expect("it ends");
    let third = alloc(&runtime, 0, 1000);
    assert_eq!(third.data, block.data);
    assert_eq!(runtime.pinned().stats().active_requests.current, 0);
}

#[test]
fn nothing_is_given_back_during_a_capture() {
    let (runtime, stream) = runtime(8 * MIB);
    let cached = alloc(&runtime, stream, 6 * MIB);
    free(&runtime, cached);
    let graph = StreamGraph::default();
    begin(&runtime, &graph, stream, None);
    let error = runtime.memory().empty_cache(0).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("a graph is being captured"));
    let error = runtime.memory().alloc(0, stream, 6 * MIB);
    let error = error.expect_err("the cache keeps the memory");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(
        error
            .to_string()
            .contains("empty the cache before the capture"),
        "{error}"
    );
    graph.end_capture(&runtime).expect("it ends");
    let block = alloc(&runtime, stream, 6 * MIB);
    assert_eq!(block.data, cached.data);
}

#[test]
fn mistakes_are_named() {
    let (runtime, stream) = runtime(64 * MIB);
    let graph = StreamGraph::default();
    let said = |outcome: flagos_core::Result<()>, what: &str| {
        let error = outcome.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.hint().is_some(), "{error}");
    };
    let begin_on = |graph: &StreamGraph, stream| {
        graph.begin_capture(&runtime, (0, stream), None, CaptureMode::Global)
    };
    said(graph.replay(&runtime, stream), "has not been captured");
    said(graph.end_capture(&runtime), "is not being captured");
    said(graph.memory().map(drop), "has not been captured");
    said(begin_on(&graph, 0), "the default stream cannot be captured");
    said(begin_on(&graph, 9), "no stream 9");
    begin(&runtime, &graph, stream, None);
    said(begin_on(&graph, stream), "is being captured already");
    said(graph.replay(&runtime, stream), "has not been captured");
    graph.end_capture(&runtime).expect("it ends");
    said(begin_on(&graph, stream), "has been captured");
    graph.reset(&runtime).expect("reset");
    graph.reset(&runtime).expect("nothing to do");
    begin(&runtime, &graph, stream, None);
    graph.reset(&runtime).expect("the capture ends");
    let target = runtime.streams().get(0, stream).expect("it exists");
    assert_eq!(target.capture().ok(), Some(None));
    assert_eq!(graph.device(), None);
}

#[test]
fn a_capture_that_fails_leaves_an_empty_graph_and_no_memory() {
    let (runtime, stream) = runtime(64 * MIB);
    let other = runtime.streams().create(0, 0).expect("a stream");
    let (first, second) = (
        runtime.streams().get(0, stream).expect("it exists"),
        runtime.streams().get(0, other).expect("it exists"),
    );
    let graph = StreamGraph::default();
    begin(&runtime, &graph, stream, None);
    let event = runtime.vendor().event(0, false).expect("an event");
    first.record(&*event).expect("recorded");
    second.wait(&*event).expect("joined");
    let block = alloc(&runtime, other, 1000);
    free(&runtime, block);
    assert!(graph.end_capture(&runtime).is_err(), "a stream is away");
    assert_eq!(graph.device(), None);
    empty_cache(&runtime);
    assert_eq!(reserved(&runtime), 0);
    begin(&runtime, &graph, stream, None);
    graph.end_capture(&runtime).expect("the next one works");
}

#[test]
fn a_vendor_without_graphs_says_so() {
    let vendor = HostVendor::new(&HostSettings::default(), Box::leak(Box::default()));
    let error = vendor.captures().expect_err("none");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let runtime = Runtime::new(Arc::new(vendor)).expect("a runtime");
    let stream = runtime.streams().create(0, 0).expect("a stream");
    let graph = StreamGraph::default();
    let begun = graph.begin_capture(&runtime, (0, stream), None, CaptureMode::Global);
    let error = begun.expect_err("none");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error
            .to_string()
            .contains("the vendor `host` records no graphs")
    );
    let stream = runtime.streams().get(0, stream).expect("it exists");
    assert!(stream.begin_capture(CaptureMode::Global).is_err());
    assert!(stream.end_capture().is_err());
    assert_eq!(stream.capture().ok(), Some(None));
}
