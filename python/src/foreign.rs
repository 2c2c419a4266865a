//! Python objects registered as implementations, by the token the core keeps for them.
//!
//! The core never sees a Python object: it stores a number, and an adapter that finds the number
//! in an operator's slot asks for the object here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// 0 stays free: a slot without a foreign implementation holds it.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);
static OBJECTS: Mutex<Option<HashMap<u64, Py<PyAny>>>> = Mutex::new(None);

/// Never held while Python code can run, so that waiting for it cannot deadlock with the GIL.
fn objects() -> MutexGuard<'static, Option<HashMap<u64, Py<PyAny>>>> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps `object` alive and returns the token that finds it. Tokens are never reused: a stale one
/// finds nothing instead of somebody else's function.
pub fn keep(object: Py<PyAny>) -> u64 {
    let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
    objects()
        .get_or_insert_with(HashMap::new)
        .insert(token, object);
    token
}

/// The object behind `token`.
pub fn find(py: Python<'_>, token: u64) -> Option<Py<PyAny>> {
    objects()
        .as_ref()
        .and_then(|map| map.get(&token))
        .map(|object| object.clone_ref(py))
}

/// Forgets `token`. The object is released after the lock, because its finaliser may run Python.
pub fn forget(token: u64) {
    let object = objects().as_mut().and_then(|map| map.remove(&token));
    drop(object);
}
