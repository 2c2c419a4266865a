//! Graphs with the memory that they use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};

use super::Runtime;
use super::graph_memory::MemoryId;
use super::vendor::{CaptureMode, Graph};

/// A graph, as an adapter has it: empty at first, filled by a capture, and run any number of times.
#[derive(Default)]
pub struct StreamGraph(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Empty,
    Capturing(Place),
    Captured(Place, Arc<dyn Graph>),
}

/// The place of a graph.
#[derive(Debug, Clone, Copy)]
struct Place {
    device: usize,
    /// The stream on which the capture began.
    stream: u64,
    /// The vendor's number of the capture.
    capture: u64,
    memory: MemoryId,
}

fn wrong(operation: &'static str, message: &str, hint: &'static str) -> Error {
    Error::invalid_argument(operation, message).with_hint(hint)
}

impl StreamGraph {
    /// New memory that graphs may share.
    pub fn new_memory() -> MemoryId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins to capture the work of a stream. What the stream allocates until the end comes from `memory`, without which
    /// the graph gets its own.
    pub fn begin_capture(
        &self,
        runtime: &Runtime,
        (device, stream): (usize, u64),
        memory: Option<MemoryId>,
        mode: CaptureMode,
    ) -> Result<()> {
        const OPERATION: &str = "capture_begin";
        runtime.vendor().captures()?;
        let mut state = self.0.lock();
        match *state {
            State::Empty => {}
            State::Capturing(_) => {
                return Err(wrong(
                    OPERATION,
                    "the graph is being captured already",
                    "end its capture first",
                ));
            }
            State::Captured(..) => {
                return Err(wrong(
                    OPERATION,
                    "the graph has been captured",
                    "reset it first, or make another one",
                ));
            }
        }
        if stream == 0 {
            return Err(wrong(
                OPERATION,
                "the default stream cannot be captured: all other work of the device goes there",
                "capture on another stream, as `torch.flagos.graph` does",
            )
            .with_context("device", device));
        }
        let target = runtime.streams().get(device, stream)?;
        target.begin_capture(mode)?;
        let capture = target.capture()?.map_or(0, |capture| capture.id);
        let memory = memory.unwrap_or_else(Self::new_memory);
        runtime.memory().begin_graph(device, capture, memory)?;
        *state = State::Capturing(Place {
            device,
            stream,
            capture,
            memory,
        });
        Ok(())
    }

    /// Ends the capture. After a failure the graph is empty, unless the capture goes on, because another thread began it.
    pub fn end_capture(&self, runtime: &Runtime) -> Result<()> {
        let mut state = self.0.lock();
        let State::Capturing(place) = *state else {
            return Err(wrong(
                "capture_end",
                "the graph is not being captured",
                "begin a capture first",
            ));
        };
        let target = runtime.streams().get(place.device, place.stream)?;
        let outcome = target.end_capture();
        if outcome.is_err()
            && matches!(target.capture(), Ok(Some(found)) if found.id == place.capture)
        {
            return outcome.map(drop);
        }
        runtime.memory().end_graph(place.device, place.capture)?;
        match outcome {
            Ok(graph) => {
                *state = State::Captured(place, graph);
                Ok(())
            }
            Err(error) => {
                *state = State::Empty;
                runtime.memory().release_graph(place.device, place.memory)?;
                Err(error)
            }
        }
    }

    /// Queues all captured work on a stream of the graph's device.
    pub fn replay(&self, runtime: &Runtime, stream: u64) -> Result<()> {
        let state = self.0.lock();
        let State::Captured(place, graph) = &*state else {
            return Err(wrong(
                "replay",
                "the graph has not been captured",
                "capture it first",
            ));
        };
        let target = runtime.streams().get(place.device, stream)?;
        // SAFETY: the allocator keeps the graph's memory; what the graph uses besides, its user keeps.
        unsafe { target.replay(&**graph) }
    }

    /// The memory that the graph uses.
    pub fn memory(&self) -> Result<MemoryId> {
        match &*self.0.lock() {
            State::Empty => Err(wrong(
                "pool",
                "the graph has not been captured",
                "capture it first",
            )),
            State::Capturing(place) | State::Captured(place, _) => Ok(place.memory),
        }
    }

    /// The device of the graph, unless it is empty.
    pub fn device(&self) -> Option<usize> {
        match &*self.0.lock() {
            State::Empty => None,
            State::Capturing(place) | State::Captured(place, _) => Some(place.device),
        }
    }

    /// Makes the graph empty: its memory may serve other graphs that share it, and be given back after the last one. A
    /// capture that goes on ends.
    pub fn reset(&self, runtime: &Runtime) -> Result<()> {
        if matches!(*self.0.lock(), State::Capturing(_)) {
            // The graph that it would become is not wanted.
            if let Err(error) = self.end_capture(runtime) {
                tracing::debug!(%error, "a capture was given up");
            }
        }
        let mut state = self.0.lock();
        if let State::Capturing(_) = *state {
            return Err(wrong(
                "reset",
                "the graph is being captured by another thread",
                "end the capture on that thread",
            ));
        }
        if let State::Captured(place, graph) = std::mem::take(&mut *state) {
            drop(graph);
            runtime.memory().release_graph(place.device, place.memory)?;
        }
        Ok(())
    }
}
