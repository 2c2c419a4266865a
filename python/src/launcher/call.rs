//! One call of a kernel from Python: find the launch plan, fill in the parameters, launch; or take the original path.

use std::mem::MaybeUninit;
use std::sync::Arc;

use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::cache::{LaunchCache, Missing};
use super::ffi::{self, Arguments, Object};
use super::interception::{Interception, Kind};
use super::key::{ARGUMENTS, Key, Role};
use super::knobs;
use super::launch_plan::LaunchPlan;
use super::outcome::{Reason, count_fallback, count_native};
use super::pack::Value;
use super::recorder;

/// The most parameters of a native launch. Kernels with more take the original path.
const PASSED: usize = 64;

/// The reason why an attempt ended without a native launch.
enum Stop {
    /// The original path has to serve the call, which may be a lesson.
    Original(Reason, Option<Lesson>),
    /// An exception for the caller.
    Raised(PyErr),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Original(reason, None)
    }
}

/// A call on the original path from which a plan is to be made, for this key.
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

/// Lets the Python side make a plan from a call that the original path has served. The Python side raises nothing.
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
    let cache = lesson.cache.get();
    cache.learn(py, lesson.binding, lesson.key, plan);
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
    let dict = unsafe { dictionary(py, by, function, grid.is_some()) }?;
    let Some(knobs) = knobs::current() else {
        return Err(Reason::New.into());
    };
    knobs.check(by.kind == Kind::Jit)?;
    if by.kind == Kind::Jit && !has_no_pre_run_hooks(by, &dict) {
        return Err(Reason::PreRunHooks.into());
    }
    // SAFETY: as above.
    let owner = unsafe { LaunchCache::of(py, &dict, by.names.cache) }.map_err(Stop::Raised)?;
    let cache = owner.get();
    cache.refresh();
    // SAFETY: the GIL is held.
    let found = unsafe { cache.roles(arguments) };
    let (binding, roles) = match found {
        Some(found) => found,
        None => bind(py, by, function, arguments, cache).map_err(Stop::Raised)?,
    };
    let roles = roles.ok_or(Reason::Signature)?;
    let device = knobs.device(py).map_err(|_| Reason::Driver)?;
    let mut key = Key::new(device, knobs.memory());
    let mut room = [MaybeUninit::uninit(); ARGUMENTS];
    // SAFETY: as above.
    let (values, grid) = unsafe { read(py, arguments, &roles, grid, &mut key, &mut room) }?;
    let plan = cache.plan(py, binding, key.words());
    let plan = plan.map_err(|missing| match missing {
        Missing::Original => Reason::Kernel.into(),
        Missing::First => Reason::New.into(),
        Missing::Unlearnt => {
            let lesson = Lesson {
                cache: owner.clone_ref(py),
                binding,
                key: key.words().into(),
            };
            Stop::Original(Reason::New, Some(lesson))
        }
    })?;
    let plan = plan.get();
    plan.globals_hold()?;
    let grid = grid.ok_or(Reason::Signature)?;
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
    // The GIL is released, because the driver waits when a stream's queue is full, perhaps for Python.
    // SAFETY: the parameters of this kernel, as its signature describes them.
    let launched = py.detach(|| unsafe { compiled.launch(stream, grid, words) });
    // The original path launches again, and raises Triton's own error.
    launched.map_err(|_| Reason::Refused)?;
    if let Some(recorder) = recorder::current(py) {
        let recorded = plan.record(py, &recorder, grid, stream, arguments.values);
        recorded.map_err(Stop::Raised)?;
    }
    Ok(plan.result.clone_ref(py))
}

/// The values of the arguments, which become part of the key, and the grid, which may be one of them.
///
/// # Safety
/// The GIL is held; the objects are alive.
#[inline]
unsafe fn read<'r>(
    py: Python<'_>,
    arguments: &Arguments<'_>,
    roles: &[Role],
    mut grid: Option<Object>,
    key: &mut Key,
    room: &'r mut [MaybeUninit<Value>; ARGUMENTS],
) -> Result<(&'r [Value], Option<Object>), Stop> {
    for ((object, role), value) in arguments.values.iter().zip(roles).zip(&mut *room) {
        value.write(match role {
            Role::Grid => {
                grid = Some(*object);
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
    // SAFETY: the loop has written as many values as there are arguments, because `bind` gives a role to each.
    let values =
        unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), arguments.values.len()) };
    Ok((values, grid))
}

/// The attributes of the function. Stops where a launch by `function[grid]` would run something else than Triton's own.
///
/// # Safety
/// The function is alive.
#[inline]
unsafe fn dictionary<'py>(
    py: Python<'py>,
    by: &Interception,
    function: Object,
    launched: bool,
) -> Result<Bound<'py, PyAny>, Stop> {
    // SAFETY: the caller's promise, interned names and a dictionary.
    unsafe {
        let dict = py_ffi::PyObject_GenericGetDict(function, std::ptr::null_mut());
        let dict = Bound::from_owned_ptr_or_err(py, dict).map_err(Stop::Raised)?;
        let replaced =
            || !ffi::item(dict.as_ptr(), by.names.run).is_null() || !by.is_in_place(py, function);
        if launched && replaced() {
            return Err(Reason::Replaced.into());
        }
        Ok(dict)
    }
}

#[inline]
fn has_no_pre_run_hooks(by: &Interception, dict: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a dictionary and an interned name; NULL or a live object.
    unsafe {
        let hooks = ffi::item(dict.as_ptr(), by.names.pre_run_hooks);
        !hooks.is_null() && py_ffi::PyList_Check(hooks) != 0 && py_ffi::PyList_Size(hooks) == 0
    }
}

/// Asks the Python side for the roles of these arguments, and adds a binding with them to the cache.
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
    let names_tuple = PyTuple::new(py, names.iter().map(|name| name.bind(py)))?;
    let roles = by
        .bind
        .bind(py)
        .call1((function, arguments.positional, names_tuple))?;
    let roles = roles.extract::<Option<Vec<String>>>()?;
    let roles = roles.and_then(|roles| {
        let parsed = roles.iter().map(|role| Role::parse(role));
        parsed.collect::<Option<Arc<[Role]>>>()
    });
    let roles = roles.filter(|roles| roles.len() == arguments.values.len());
    let id = cache.bind(arguments.positional, names, roles.clone());
    Ok((id, roles))
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
