//! The C structures of the types.

use std::ffi::CStr;
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use parking_lot::Mutex;
use pyo3::ffi::{self, PyObject};

use super::interpreter::Vectorcall;
use super::types::{Object, VECTORCALL_OFFSET};

/// An operator that Python calls.
#[repr(C)]
pub(super) struct Operator {
    base: PyObject,
    pub(super) vectorcall: Vectorcall,
    /// The epoch at which `target` was found; 0 before the first call.
    pub(super) epoch: u64,
    pub(super) target: *mut PyObject,
    /// The count of `target`'s calls; null where the adapter chooses.
    pub(super) serving: *const Served,
    /// Whether each call of `target` is logged.
    pub(super) logged: bool,
    /// `resolve(op)` returns the function to call, and may remember it with `op.bind`. Null where the plan
    /// chooses.
    pub(super) resolve: *mut PyObject,
    /// `failed(op, target, error, args, kwargs)`; see [`call`](super::call).
    pub(super) failed: *mut PyObject,
    /// The name with its namespace.
    pub(super) name: *mut PyObject,
    /// The name without its namespace.
    pub(super) short: *mut PyObject,
    /// The counts of the implementations that served calls; null where the adapter chooses.
    pub(super) served: *mut Counts,
}

/// An implementation, and the number of calls it served.
pub(super) struct Served {
    pub(super) impl_id: Arc<str>,
    /// The name in the dispatch log.
    pub(super) backend: Arc<str>,
    calls: AtomicU64,
}

/// The implementations that the plan chose for an operator. An entry keeps its address as long as the operator
/// lives, because a call that began with it counts there, whatever is chosen meanwhile.
#[derive(Default)]
#[allow(clippy::vec_box)] // an entry keeps its address when the list grows
pub(super) struct Counts(Mutex<Vec<Box<Served>>>);

/// An object that, called, calls the operator named by the first argument.
#[repr(C)]
pub(super) struct ByName {
    base: PyObject,
    pub(super) vectorcall: Vectorcall,
    /// Name → [`Operator`].
    pub(super) operators: *mut PyObject,
    /// `missing(name)` returns the [`Operator`] of a name that is not in `operators`.
    pub(super) missing: *mut PyObject,
    /// The function that takes a call without a positional argument.
    pub(super) plain: *mut PyObject,
}

/// The value of the context variable: a policy, and the functions that operators resolved to under it.
#[repr(C)]
pub(super) struct Override {
    base: PyObject,
    /// The epoch at which the entries of `table` were found.
    pub(super) epoch: u64,
    /// [`Operator`] → function.
    pub(super) table: *mut PyObject,
    pub(super) policy: *mut PyObject,
}

impl Served {
    /// Counts one call. The interpreter's lock serialises the counting.
    #[inline]
    pub(super) fn count(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls + 1, Ordering::Relaxed);
    }
}

impl Counts {
    /// The entry of an implementation, made when there is none.
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

    /// The ids of the implementations that served calls, with the numbers of calls.
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

    /// Sets every count to zero.
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
                // SAFETY: the caller's promise.
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
    c"The policy of a region, and the functions that operators resolved to under it.",
    false,
    [table, policy],
    |_| {}
);

const _: () = assert!(offset_of!(Operator, vectorcall) == VECTORCALL_OFFSET);
const _: () = assert!(offset_of!(ByName, vectorcall) == VECTORCALL_OFFSET);
