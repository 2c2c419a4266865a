//! The structures behind the types.

use std::ffi::CStr;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::ffi::{self, PyObject};

use super::interpreter::Vectorcall;
use super::types::{Object, VECTORCALL_OFFSET};

/// An operator, as it is called.
#[repr(C)]
pub(super) struct Operator {
    base: PyObject,
    pub(super) vectorcall: Vectorcall,
    /// When `target` was found; 0 never was.
    pub(super) epoch: u64,
    pub(super) target: *mut PyObject,
    /// Where calls of `target` are counted; null where the adapter chooses.
    pub(super) serving: *const Served,
    /// Whether each call of `target` is logged.
    pub(super) logged: bool,
    /// `resolve(op)` returns the function to call and may remember it with `op.bind`. Null: the plan
    /// is asked.
    pub(super) resolve: *mut PyObject,
    /// `failed(op, target, error, args, kwargs)`; see [`call`](super::call).
    pub(super) failed: *mut PyObject,
    /// With its namespace.
    pub(super) name: *mut PyObject,
    /// Without it.
    pub(super) short: *mut PyObject,
    /// Every implementation that served a call; null where the adapter chooses.
    pub(super) served: *mut Counts,
}

/// An implementation, and how many calls it served.
pub(super) struct Served {
    pub(super) impl_id: Arc<str>,
    /// What the dispatch log calls it.
    pub(super) backend: Arc<str>,
    calls: AtomicU64,
}

/// The implementations that the plan chose for an operator. One stays where it is as long as the
/// operator lives: a call that began with it counts there, whatever is chosen meanwhile.
#[derive(Default)]
#[allow(clippy::vec_box)] // an entry stays where it is when the list grows
pub(super) struct Counts(Mutex<Vec<Box<Served>>>);

/// Calls the operator that its first argument names.
#[repr(C)]
pub(super) struct ByName {
    base: PyObject,
    pub(super) vectorcall: Vectorcall,
    /// Name → [`Operator`].
    pub(super) operators: *mut PyObject,
    /// `missing(name)` returns the [`Operator`] of a name that is not in `operators`.
    pub(super) missing: *mut PyObject,
    /// Takes the call when there is no positional argument.
    pub(super) plain: *mut PyObject,
}

/// What the context variable holds: a policy, and what operators resolved to under it.
#[repr(C)]
pub(super) struct Override {
    base: PyObject,
    /// When the entries of `table` were found.
    pub(super) epoch: u64,
    /// [`Operator`] → function.
    pub(super) table: *mut PyObject,
    pub(super) policy: *mut PyObject,
}

impl Served {
    /// One call more. The interpreter's lock serialises it.
    #[inline]
    pub(super) fn count(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls + 1, Ordering::Relaxed);
    }
}

impl Counts {
    /// The place of an implementation, made when it has none.
    pub(super) fn of(&self, impl_id: &Arc<str>, backend: &Arc<str>) -> *const Served {
        let mut all = self.0.lock();
        let known = all
            .iter()
            .position(|s| s.impl_id == *impl_id && s.backend == *backend);
        let at = known.unwrap_or_else(|| {
            all.push(Box::new(Served {
                impl_id: Arc::clone(impl_id),
                backend: Arc::clone(backend),
                calls: AtomicU64::new(0),
            }));
            all.len() - 1
        });
        ptr::from_ref(&*all[at])
    }

    /// Ids of implementations, with the calls that each served, where it served any.
    pub(super) fn calls(&self) -> Vec<(Arc<str>, u64)> {
        let mut calls: Vec<(Arc<str>, u64)> = Vec::new();
        for served in self.0.lock().iter() {
            let more = served.calls.load(Ordering::Relaxed);
            match calls.iter_mut().find(|(id, _)| *id == served.impl_id) {
                Some((_, sum)) => *sum += more,
                None => calls.push((Arc::clone(&served.impl_id), more)),
            }
        }
        calls.retain(|(_, calls)| *calls > 0);
        calls
    }

    /// Every count starts again from zero.
    pub(super) fn reset(&self) {
        for served in self.0.lock().iter() {
            served.calls.store(0, Ordering::Relaxed);
        }
    }
}

macro_rules! object {
    ($type:ident, $name:literal, $doc:literal, $called:literal, [$($field:ident),*], $free:expr) => {
        impl Object for $type {
            const NAME: &'static CStr = $name;
            const DOC: &'static CStr = $doc;
            const REFERENCES: &'static [usize] = &[$(offset_of!($type, $field)),*];
            const CALLED: bool = $called;

            fn class() -> &'static AtomicPtr<ffi::PyTypeObject> {
                static CLASS: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());
                &CLASS
            }

            unsafe fn free(slf: *mut Self) {
                let free: unsafe fn(*mut Self) = $free;
                // SAFETY: says the caller.
                unsafe { free(slf) }
            }
        }
    };
}

object!(
    Operator,
    c"flagos.Operator",
    c"An operator whose implementations are Python functions of one signature.\n\n\
        >>> scale = Operator(\"demo::scale\")\n\
        >>> scale.offer(lambda x: 2 * x, impl_id=\"demo.python\", kind=\"reference\")\n\
        >>> scale(21)\n\
        42\n\n\
    There is one per name. The plan is asked once, and again after it changed.\n\n\
    An implementation declines a call by raising flagos.UnsupportedError before it has written to\n\
    anything: the next usable one serves the call, which is counted as a fallback, and an error in\n\
    strict mode.",
    true,
    [target, resolve, failed, name, short],
    |slf| {
        // SAFETY: a box of this type, or null.
        unsafe {
            let served = (*slf).served;
            if !served.is_null() {
                drop(Box::from_raw(served));
            }
        }
    }
);
object!(
    ByName,
    c"flagos._core.operator.ByName",
    c"Calls the operator that its first argument names.",
    true,
    [operators, missing, plain],
    |_| {}
);
object!(
    Override,
    c"flagos._core.operator.Override",
    c"A policy for a region, and what operators resolved to under it.",
    false,
    [table, policy],
    |_| {}
);

const _: () = assert!(offset_of!(Operator, vectorcall) == VECTORCALL_OFFSET);
const _: () = assert!(offset_of!(ByName, vectorcall) == VECTORCALL_OFFSET);
