//! One launch: natively, or on the original path.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::ffi as py_ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::ffi::{self, Arguments, Object};
use super::interception::{Interception, Kind};
use super::key::{Key, Role, ARGUMENTS};
use super::knobs;
use super::launch_plan::LaunchPlan;
use super::outcome::{count_fallback, count_native, Reason};
use super::pack::Value;
use super::recorder;

/// Keys of one function at most; beyond them it starts again, as values that never come back fill it.
const KEYS: usize = 16_384;

/// Parameters that are passed at most; kernels with more take the original path.
const PASSED: usize = 64;

/// A multiplicative hash of words; keys are not chosen by an adversary.
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

/// What is known of a key.
enum Known {
    Plan(Py<LaunchPlan>),
    /// It needs the original path.
    Never,
}

/// Calls with as many positional arguments and the same names.
struct Binding {
    /// Never used again, so that a call which lets others run finds its own or none.
    id: u64,
    positional: usize,
    names: Vec<Py<PyAny>>,
    /// One for each value; `None` when they do not match the function's parameters.
    roles: Option<Arc<[Role]>>,
    plans: HashMap<Box<[u64]>, Known, State>,
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
    /// The dictionaries kernels were found in, and how large they have been.
    caches: Vec<(Py<PyDict>, isize)>,
}

impl Inner {
    fn binding(&mut self, id: u64) -> Option<&mut Binding> {
        self.bindings.iter_mut().find(|binding| binding.id == id)
    }
}

/// What is known of a function's calls; lives in the function's dictionary. The lock is never held while
/// Python runs.
#[pyclass(frozen, module = "flagos._core")]
#[derive(Default)]
pub struct LaunchCache(Mutex<Inner>);

#[pymethods]
impl LaunchCache {
    // Functions refer to their cache, and plans to what refers to the function.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Nothing may wait here; what is not visited is taken to be alive.
        let Some(inner) = self.0.try_lock() else {
            return Ok(());
        };
        for binding in &inner.bindings {
            binding.names.iter().try_for_each(|name| visit.call(name))?;
            for known in binding.plans.values() {
                if let Known::Plan(plan) = known {
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

impl LaunchCache {
    /// Forgets every plan when a dictionary that held a kernel has become smaller.
    #[inline]
    fn refresh(&self) {
        let mut inner = self.0.lock();
        let mut shrunk = false;
        for (dict, size) in &mut inner.caches {
            // SAFETY: the GIL is held by whoever launches; a dictionary.
            let now = unsafe { py_ffi::PyDict_Size(dict.as_ptr()) };
            shrunk |= now < *size;
            *size = now;
        }
        if shrunk {
            let forgotten = std::mem::take(&mut *inner);
            drop(inner);
            // Without the lock: the end of an object may run Python.
            drop(forgotten);
        }
    }

    /// The roles of these arguments, and the binding's number.
    ///
    /// # Safety
    /// The GIL is held.
    #[inline]
    unsafe fn roles(&self, arguments: &Arguments<'_>) -> Option<(u64, Option<Arc<[Role]>>)> {
        let inner = self.0.lock();
        let mut bindings = inner.bindings.iter();
        // SAFETY: the caller's promise.
        let found = bindings.find(|one| unsafe { one.serves(arguments) })?;
        Some((found.id, found.roles.clone()))
    }
}

/// Why an attempt ended without a native launch.
enum Stop {
    /// The original path has to serve the call, and what it did may be learnt.
    Original(Reason, Option<Lesson>),
    /// An exception that is the caller's.
    Raised(PyErr),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Original(reason, None)
    }
}

/// What to learn from the original path.
struct Lesson {
    cache: Py<LaunchCache>,
    binding: u64,
    key: Box<[u64]>,
}

/// Launches `function[grid](*arguments)`, or, without a grid, `function.run(*arguments)`.
///
/// # Safety
/// The GIL is held; the objects are alive.
pub unsafe fn launch(
    py: Python<'_>,
    by: &Interception,
    function: Object,
    grid: Option<Object>,
    arguments: Arguments<'_>,
) -> PyResult<Py<PyAny>> {
    // SAFETY: the caller's promise.
    let stop = match unsafe { attempt(py, by, function, grid, &arguments) } {
        Ok(result) => {
            count_native();
            return Ok(result);
        }
        Err(stop) => stop,
    };
    let (reason, lesson) = match stop {
        Stop::Raised(error) => return Err(error),
        Stop::Original(reason, lesson) => (reason, lesson),
    };
    count_fallback(reason);
    // SAFETY: the caller's promise.
    let function = unsafe { Bound::from_borrowed_ptr(py, function) };
    let (args, kwargs) = arguments.packed(py)?;
    if let Some(grid) = grid {
        // SAFETY: the caller's promise.
        kwargs.set_item("grid", unsafe { Bound::from_borrowed_ptr(py, grid) })?;
        kwargs.set_item("warmup", false)?;
    }
    let run = if reason == Reason::Replaced {
        function.getattr("run")?
    } else {
        by.original.bind(py).call_method1("__get__", (&function,))?
    };
    let result = run.call(&args, Some(&kwargs))?;
    let needs_knobs = reason == Reason::New && knobs::current().is_none();
    if lesson.is_some() || needs_knobs {
        learn(
            py, by, &function, &arguments, &args, &kwargs, &result, lesson,
        )?;
    }
    Ok(result.unbind())
}

/// Has the Python side explain what the original path did. It raises nothing.
#[cold]
#[allow(clippy::too_many_arguments)] // the call, whole
fn learn(
    py: Python<'_>,
    by: &Interception,
    function: &Bound<'_, PyAny>,
    arguments: &Arguments<'_>,
    args: &Bound<'_, PyTuple>,
    kwargs: &Bound<'_, PyDict>,
    result: &Bound<'_, PyAny>,
    lesson: Option<Lesson>,
) -> PyResult<()> {
    // SAFETY: one name for each value that is not positional.
    let names = (0..arguments.named())
        .map(|i| unsafe { Bound::from_borrowed_ptr(py, arguments.name(i)) })
        .collect::<Vec<_>>();
    let learnt = by.learn.bind(py).call1((
        function,
        args,
        kwargs,
        PyTuple::new(py, names)?,
        result,
        lesson.is_some(),
    ))?;
    let Some(lesson) = lesson else { return Ok(()) };
    let plan = learnt.cast_into::<LaunchPlan>().ok().map(Bound::unbind);
    let mut inner = lesson.cache.get().0.lock();
    if let Some(plan) = &plan {
        for dict in &plan.get().caches {
            if !inner.caches.iter().any(|(known, _)| known.is(dict)) {
                // SAFETY: the GIL is held; a dictionary.
                let size = unsafe { py_ffi::PyDict_Size(dict.as_ptr()) };
                inner.caches.push((dict.clone_ref(py), size));
            }
        }
    }
    let known = plan.map_or(Known::Never, Known::Plan);
    // The bindings are gone if the plans were forgotten meanwhile.
    let before = inner
        .binding(lesson.binding)
        .and_then(|binding| binding.plans.insert(lesson.key, known));
    drop(inner);
    drop(before);
    Ok(())
}

#[inline]
unsafe fn attempt(
    py: Python<'_>,
    by: &Interception,
    function: Object,
    grid: Option<Object>,
    arguments: &Arguments<'_>,
) -> Result<Py<PyAny>, Stop> {
    if arguments.values.len() > ARGUMENTS {
        return Err(Reason::Arguments.into());
    }
    // SAFETY: the caller's promise, here and below.
    let dict = unsafe {
        let dict = py_ffi::PyObject_GenericGetDict(function, std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, dict).map_err(Stop::Raised)?
    };
    if grid.is_some() {
        // SAFETY: a dictionary, interned names and live objects.
        let replaced = unsafe {
            !ffi::item(dict.as_ptr(), by.names.run).is_null() || !by.is_in_place(py, function)
        };
        if replaced {
            return Err(Reason::Replaced.into());
        }
    }
    let Some(knobs) = knobs::current() else {
        return Err(Reason::New.into());
    };
    knobs.check(by.kind == Kind::Jit)?;
    if by.kind == Kind::Jit {
        // SAFETY: as above.
        let hooks = unsafe { ffi::item(dict.as_ptr(), by.names.pre_run_hooks) };
        // SAFETY: NULL or a live object.
        let empty = !hooks.is_null()
            && unsafe { py_ffi::PyList_Check(hooks) != 0 && py_ffi::PyList_Size(hooks) == 0 };
        if !empty {
            return Err(Reason::PreRunHooks.into());
        }
    }
    // SAFETY: as above.
    let cache = unsafe { cache_of(py, &dict, by) }.map_err(Stop::Raised)?;
    let cache = cache.get();
    cache.refresh();
    // SAFETY: the GIL is held.
    let found = unsafe { cache.roles(arguments) };
    let (binding, roles) = match found {
        Some(found) => found,
        None => bind(py, by, function, arguments, cache).map_err(Stop::Raised)?,
    };
    let roles = roles.ok_or(Reason::Signature)?;
    let device = knobs.device(py).map_err(|_| Reason::Driver)?;
    let mut key = Key::new(device);
    let mut room = [MaybeUninit::uninit(); ARGUMENTS];
    let mut own_grid = grid;
    for ((object, role), value) in arguments.values.iter().zip(&*roles).zip(&mut room) {
        value.write(match role {
            Role::Grid => {
                own_grid = Some(*object);
                Value::Other
            }
            // SAFETY: an immortal object.
            Role::Warmup if *object != unsafe { py_ffi::Py_False() } => {
                return Err(Reason::Warmup.into());
            }
            Role::Warmup => Value::Other,
            // SAFETY: alive as long as the call.
            role => unsafe { key.read(py, *object, *role) }?,
        });
    }
    // SAFETY: written above, as many as there are arguments: `bind` gives a role to each.
    let values =
        unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), arguments.values.len()) };
    let plan = look_up(py, cache, binding, &key, &dict, by)?;
    let plan = plan.get();
    plan.globals_hold()?;
    let grid = own_grid.ok_or(Reason::Signature)?;
    // SAFETY: alive as long as the call.
    let grid = unsafe { blocks(py, plan, grid, arguments.values) }?;
    let compiled = plan.compiled.get();
    let mut words = [0_u64; PASSED];
    let words = words
        .get_mut(..compiled.parameters())
        .ok_or(Reason::Kernel)?;
    plan.pack(values, words)?;
    if grid.contains(&0) {
        return Ok(plan.result.clone_ref(py));
    }
    let stream = knobs.stream(py, device).map_err(|_| Reason::Driver)?;
    // Without the GIL: the driver waits when a stream's queue is full, perhaps for Python.
    // SAFETY: the parameters of this kernel, as its signature describes them.
    let launched = py.detach(|| unsafe { compiled.launch(stream, grid, words) });
    // The original path reports the failure in its own words.
    launched.map_err(|_| Reason::Refused)?;
    if let Some(recorder) = recorder::current(py) {
        let told = plan.record(py, &recorder, grid, stream, arguments.values);
        told.map_err(Stop::Raised)?;
    }
    Ok(plan.result.clone_ref(py))
}

/// What is known of the function's calls, made at the first.
///
/// # Safety
/// The GIL is held.
#[inline]
unsafe fn cache_of(
    py: Python<'_>,
    dict: &Bound<'_, PyAny>,
    by: &Interception,
) -> PyResult<Py<LaunchCache>> {
    // SAFETY: the caller's promise; a dictionary and an interned name.
    let found =
        unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::item(dict.as_ptr(), by.names.cache)) };
    if let Some(found) = found {
        return Ok(found.cast_into::<LaunchCache>()?.unbind());
    }
    let cache = Py::new(py, LaunchCache::default())?;
    // SAFETY: an interned name.
    let name = unsafe { Bound::from_borrowed_ptr(py, by.names.cache) };
    dict.set_item(name, &cache)?;
    Ok(cache)
}

/// Asks the Python side what these arguments are to the function.
#[cold]
fn bind(
    py: Python<'_>,
    by: &Interception,
    function: Object,
    arguments: &Arguments<'_>,
    cache: &LaunchCache,
) -> PyResult<(u64, Option<Arc<[Role]>>)> {
    // SAFETY: alive as long as the call; one name for each value that is not positional.
    let (function, names) = unsafe {
        let name = |i| Bound::from_borrowed_ptr(py, arguments.name(i)).unbind();
        let names = (0..arguments.named()).map(name).collect::<Vec<_>>();
        (Bound::from_borrowed_ptr(py, function), names)
    };
    let told = PyTuple::new(py, names.iter().map(|name| name.bind(py)))?;
    let roles = by
        .bind
        .bind(py)
        .call1((function, arguments.positional, told))?;
    let roles = roles.extract::<Option<Vec<String>>>()?;
    let roles = roles.and_then(|roles| {
        let parsed = roles.iter().map(|role| Role::parse(role));
        parsed.collect::<Option<Arc<[Role]>>>()
    });
    let roles = roles.filter(|roles| roles.len() == arguments.values.len());
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    cache.0.lock().bindings.push(Binding {
        id,
        positional: arguments.positional,
        names,
        roles: roles.clone(),
        plans: HashMap::default(),
        seen: HashSet::default(),
    });
    Ok((id, roles))
}

/// The plan of a key, or what to do without one.
#[inline]
fn look_up(
    py: Python<'_>,
    cache: &LaunchCache,
    binding: u64,
    key: &Key,
    dict: &Bound<'_, PyAny>,
    by: &Interception,
) -> Result<Py<LaunchPlan>, Stop> {
    let mut inner = cache.0.lock();
    let Some(known) = inner.binding(binding) else {
        return Err(Reason::New.into());
    };
    match known.plans.get(key.words()) {
        Some(Known::Plan(plan)) => return Ok(plan.clone_ref(py)),
        Some(Known::Never) => return Err(Reason::Kernel.into()),
        None => {}
    }
    let mut hasher = Words::default();
    key.words().iter().for_each(|word| hasher.write_u64(*word));
    let first = known.seen.insert(hasher.finish());
    let forgotten = (known.plans.len() + known.seen.len() > KEYS).then(|| {
        known.seen.clear();
        std::mem::take(&mut known.plans)
    });
    drop(inner);
    drop(forgotten);
    if first {
        return Err(Reason::New.into());
    }
    // SAFETY: the GIL is held.
    let owner = unsafe { cache_of(py, dict, by) }.map_err(Stop::Raised)?;
    let lesson = Lesson {
        cache: owner,
        binding,
        key: key.words().into(),
    };
    Err(Stop::Original(Reason::New, Some(lesson)))
}

/// The number of blocks along each axis.
///
/// # Safety
/// The GIL is held; the objects are alive.
#[inline]
unsafe fn blocks(
    py: Python<'_>,
    plan: &LaunchPlan,
    grid: Object,
    arguments: &[Object],
) -> Result<[u32; 3], Stop> {
    // SAFETY: the caller's promise.
    let given = unsafe { Bound::from_borrowed_ptr(py, grid) };
    let tuple = if given.is_exact_instance_of::<PyTuple>() {
        given
    } else if given.is_callable() {
        let meta = plan.meta(py, grid, arguments).map_err(Stop::Raised)?;
        // SAFETY: the caller's promise.
        unsafe { ffi::call_one(py, grid, meta.as_ptr()) }.map_err(Stop::Raised)?
    } else {
        given
    };
    let tuple = tuple.cast_exact::<PyTuple>().map_err(|_| Reason::Grid)?;
    let mut blocks = [1; 3];
    let given = tuple.len();
    if given == 0 {
        return Err(Reason::Grid.into());
    }
    for (axis, blocks) in blocks.iter_mut().enumerate().take(given) {
        // SAFETY: within the tuple, which is alive.
        let number = unsafe { py_ffi::PyTuple_GetItem(tuple.as_ptr(), axis as isize) };
        // SAFETY: alive; the type is compared first.
        unsafe {
            if py_ffi::PyLong_CheckExact(number) == 0 {
                return Err(Reason::Grid.into());
            }
            let mut overflow = 0;
            let number = py_ffi::PyLong_AsLongLongAndOverflow(number, &mut overflow);
            *blocks = u32::try_from(number)
                .ok()
                .filter(|number| overflow == 0 && *number <= i32::MAX as u32)
                .ok_or(Reason::Grid)?;
        }
    }
    Ok(blocks)
}
