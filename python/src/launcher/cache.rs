//! The launch plans of one function, by key.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pyo3::ffi as py_ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::ffi::{self, Arguments, Object};
use super::key::Role;
use super::launch_plan::LaunchPlan;

/// The most keys of a binding. A binding with more forgets all of them, because values that never come back fill it.
const KEYS: usize = 16_384;

/// A multiplicative hash of words. No adversary chooses the keys.
#[derive(Default)]
struct Words(u64);

impl Hasher for Words {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

type State = BuildHasherDefault<Words>;

/// The lesson of a key's first calls.
enum Learnt {
    Plan(Py<LaunchPlan>),
    /// Calls with this key need the original path.
    Original,
}

/// The calls of a function with one number of positional arguments and the same names.
struct Binding {
    /// Never used again, so that a call that let other threads run finds its own binding or none.
    id: u64,
    positional: usize,
    names: Vec<Py<PyAny>>,
    /// The role of each value; `None` when the values do not match the function's parameters.
    roles: Option<Arc<[Role]>>,
    learnt: HashMap<Box<[u64]>, Learnt, State>,
    /// Hashes of the keys that calls have had.
    seen: HashSet<u64, State>,
}

impl Binding {
    /// # Safety
    /// The GIL is held.
    #[inline]
    unsafe fn serves(&self, arguments: &Arguments<'_>) -> bool {
        let same = self.positional == arguments.positional && self.names.len() == arguments.named();
        // SAFETY: the caller's promise; as many names as values that are not positional.
        same && (0..self.names.len())
            .all(|i| unsafe { arguments.name(i) } == self.names[i].as_ptr())
    }
}

#[derive(Default)]
struct Inner {
    bindings: Vec<Binding>,
    /// The dictionaries that kernels were found in, with their sizes at the last call.
    caches: Vec<(Py<PyDict>, isize)>,
}

impl Inner {
    fn binding(&mut self, id: u64) -> Option<&mut Binding> {
        self.bindings.iter_mut().find(|binding| binding.id == id)
    }
}

/// The cache of a function's launch plans, which lives in the function's dictionary. The lock is never held while
/// Python runs.
#[pyclass(frozen, module = "flagos._core")]
#[derive(Default)]
pub struct LaunchCache(Mutex<Inner>);

#[pymethods]
impl LaunchCache {
    // Functions refer to their cache, and plans to objects that refer to the function.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The collector must not wait for the lock. It takes objects that are not visited to be alive.
        let Some(inner) = self.0.try_lock() else {
            return Ok(());
        };
        for binding in &inner.bindings {
            binding.names.iter().try_for_each(|name| visit.call(name))?;
            for learnt in binding.learnt.values() {
                if let Learnt::Plan(plan) = learnt {
                    visit.call(plan)?;
                }
            }
        }
        inner
            .caches
            .iter()
            .try_for_each(|(dict, _)| visit.call(dict))
    }

    fn __clear__(&self) {
        let forgotten = std::mem::take(&mut *self.0.lock());
        drop(forgotten);
    }
}

/// Why a cache has no plan for a call.
pub enum Missing {
    /// Calls with this key need the original path.
    Original,
    /// The call is the first with its key.
    First,
    /// A call had this key before, so that the plan is to be learnt from this one.
    Unlearnt,
}

impl LaunchCache {
    /// The cache in a function's dictionary under `name`; the first call of the function makes it.
    ///
    /// # Safety
    /// The GIL is held; `dict` is a dictionary and `name` an interned name.
    #[inline]
    pub unsafe fn of(py: Python<'_>, dict: &Bound<'_, PyAny>, name: Object) -> PyResult<Py<Self>> {
        // SAFETY: the caller's promise.
        let found = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::item(dict.as_ptr(), name)) };
        if let Some(found) = found {
            return Ok(found.cast_into::<Self>()?.unbind());
        }
        let cache = Py::new(py, Self::default())?;
        // SAFETY: the caller's promise.
        let name = unsafe { Bound::from_borrowed_ptr(py, name) };
        dict.set_item(name, &cache)?;
        Ok(cache)
    }

    /// Forgets every plan when a dictionary that held a kernel has become smaller.
    #[inline]
    pub fn refresh(&self) {
        let mut inner = self.0.lock();
        let mut shrunk = false;
        for (dict, size) in &mut inner.caches {
            // SAFETY: every launch holds the GIL; a dictionary.
            let now = unsafe { py_ffi::PyDict_Size(dict.as_ptr()) };
            shrunk |= now < *size;
            *size = now;
        }
        if shrunk {
            let forgotten = std::mem::take(&mut *inner);
            drop(inner);
            // Dropped without the lock, because the end of an object may run Python.
            drop(forgotten);
        }
    }

    /// The id of the binding that serves these arguments, and their roles.
    ///
    /// # Safety
    /// The GIL is held.
    #[inline]
    pub unsafe fn roles(&self, arguments: &Arguments<'_>) -> Option<(u64, Option<Arc<[Role]>>)> {
        let inner = self.0.lock();
        let mut bindings = inner.bindings.iter();
        // SAFETY: the caller's promise.
        let found = bindings.find(|binding| unsafe { binding.serves(arguments) })?;
        Some((found.id, found.roles.clone()))
    }

    /// Adds a binding for calls with these names behind so many positional arguments. Returns its id.
    pub fn bind(
        &self,
        positional: usize,
        names: Vec<Py<PyAny>>,
        roles: Option<Arc<[Role]>>,
    ) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.lock().bindings.push(Binding {
            id,
            positional,
            names,
            roles,
            learnt: HashMap::default(),
            seen: HashSet::default(),
        });
        id
    }

    /// The plan of a key, or why there is none.
    #[inline]
    pub fn plan(
        &self,
        py: Python<'_>,
        binding: u64,
        key: &[u64],
    ) -> Result<Py<LaunchPlan>, Missing> {
        let mut inner = self.0.lock();
        let Some(binding) = inner.binding(binding) else {
            return Err(Missing::First);
        };
        match binding.learnt.get(key) {
            Some(Learnt::Plan(plan)) => return Ok(plan.clone_ref(py)),
            Some(Learnt::Original) => return Err(Missing::Original),
            None => {}
        }
        let mut hasher = Words::default();
        key.iter().for_each(|word| hasher.write_u64(*word));
        let first = binding.seen.insert(hasher.finish());
        let forgotten = (binding.learnt.len() + binding.seen.len() > KEYS).then(|| {
            binding.seen.clear();
            std::mem::take(&mut binding.learnt)
        });
        drop(inner);
        drop(forgotten);
        Err(if first {
            Missing::First
        } else {
            Missing::Unlearnt
        })
    }

    /// Keeps the plan of a key, or that there is none. Does nothing when the binding was forgotten meanwhile.
    pub fn learn(
        &self,
        py: Python<'_>,
        binding: u64,
        key: Box<[u64]>,
        plan: Option<Py<LaunchPlan>>,
    ) {
        let mut inner = self.0.lock();
        if let Some(plan) = &plan {
            for dict in &plan.get().caches {
                if !inner.caches.iter().any(|(other, _)| other.is(dict)) {
                    // SAFETY: the GIL is held; a dictionary.
                    let size = unsafe { py_ffi::PyDict_Size(dict.as_ptr()) };
                    inner.caches.push((dict.clone_ref(py), size));
                }
            }
        }
        let learnt = plan.map_or(Learnt::Original, Learnt::Plan);
        let before = inner
            .binding(binding)
            .and_then(|binding| binding.learnt.insert(key, learnt));
        drop(inner);
        // Dropped without the lock, because the end of an object may run Python.
        drop(before);
    }
}
