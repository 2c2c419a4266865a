//! Graphs of a library.

use std::any::Any;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::runtime::Graph;

use super::call::give_back;
use super::instance::Instance;
use super::types::FlagosVendorGraph;

/// Captured work of a library.
pub(super) struct LibraryGraph {
    instance: Arc<Instance>,
    pub(super) handle: *mut FlagosVendorGraph,
}

// SAFETY: the library's handles may be used from every thread.
unsafe impl Send for LibraryGraph {}
// SAFETY: as above.
unsafe impl Sync for LibraryGraph {}

impl LibraryGraph {
    /// The graph that the library wrote.
    pub(super) fn adopt(instance: &Arc<Instance>, handle: *mut FlagosVendorGraph) -> Result<Self> {
        if handle.is_null() {
            return Err(instance.library.broken("capture_end", "no graph"));
        }
        Ok(Self {
            instance: Arc::clone(instance),
            handle,
        })
    }

    /// The graph of this instance.
    pub(super) fn of<'g>(graph: &'g dyn Graph, instance: &Arc<Instance>) -> Result<&'g Self> {
        let found: Option<&Self> = graph.as_any().downcast_ref();
        let ours = found.filter(|graph| Arc::ptr_eq(&graph.instance, instance));
        ours.ok_or_else(|| {
            Error::invalid_argument("graph_launch", "the graph belongs to another vendor")
        })
    }
}

impl Graph for LibraryGraph {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for LibraryGraph {
    fn drop(&mut self) {
        // SAFETY: a live graph, which has no other user.
        unsafe {
            give_back!(self.instance, graph_destroy(self.handle));
        }
    }
}
