//! Executors that are kept.

use std::ffi::c_void;

use super::objects::{Object, Raw};

/// A tensor of a call: its place among them, where tensors of lists count one by one and absent ones too, the object and
/// the address of its storage.
pub(super) struct Placed {
    pub(super) place: usize,
    pub(super) tensor: Raw,
    pub(super) storage: *mut c_void,
}

/// An executor that is kept, with the objects that it was made with.
pub(super) struct Prepared {
    pub(super) executor: Object,
    pub(super) tensors: Vec<Placed>,
    pub(super) workspace: usize,
    // Destroyed after the executor.
    pub(super) _objects: Vec<Object>,
}

// SAFETY: CANN's objects belong to no thread; a lock guards them.
unsafe impl Send for Prepared {}
