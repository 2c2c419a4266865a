//! Executors that are kept.

use std::ffi::c_void;

use parking_lot::Mutex;

use super::objects::{Object, Raw};

/// A tensor of a call: its place among them, where tensors of lists count one by one and absent ones too, the object and
/// the address of its storage.
pub(super) struct Placed {
    pub(super) place: usize,
    pub(super) tensor: Raw,
    pub(super) storage: *mut c_void,
}

/// An executor that is kept.
pub(super) struct Prepared {
    /// The bytes of its workspace.
    pub(super) workspace: usize,
    pub(super) executor: Mutex<Repeated>,
}

/// An executor with the objects that it was made with.
pub(super) struct Repeated {
    pub(super) executor: Object,
    pub(super) tensors: Vec<Placed>,
    // Destroyed after the executor.
    pub(super) _objects: Vec<Object>,
}

// SAFETY: CANN's objects belong to no thread; a lock guards them.
unsafe impl Send for Repeated {}
