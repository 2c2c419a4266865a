//! Both phases of an operator: objects for its arguments, the workspace, and executors that are kept.
//!
//! Phase 1 checks the arguments and makes an executor; phase 2 queues the work and destroys the executor, also if it
//! fails. An executor is kept for calls of the same signature where CANN repeats it: then only addresses change. A
//! signature holds all that phase 1 sees but addresses, and is compared whole.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use parking_lot::Mutex;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Stream;

use super::super::error::explain;
use super::super::stream::AscendStream;
use super::cache::{Kept, Signature};
use super::context::Context;
use super::functions::{Function, Parameter, Phases, Type};
use super::library::Library;
use super::objects::{Number, Object, Raw, Text, text};
use super::prepared::{Placed, Prepared, Repeated};
use super::stub::Words;
use super::view::{View, decline};

/// An argument of a function.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arg<'a> {
    /// NULL: a tensor, a list or a number that is not there.
    Null,
    Tensor(View),
    /// `None`: a tensor that is not there.
    Tensors(&'a [Option<View>]),
    Scalar(Number),
    Scalars(&'a [Number]),
    Ints(&'a [i64]),
    Floats(&'a [f64]),
    Bools(&'a [u8]),
    /// A whole number, extended to 64 bits, a `bool` or an `aclDataType`.
    Word(u64),
    /// A `double` or a `float`, as the function wants it.
    Real(f64),
    Text(Text<'a>),
}

impl From<Option<View>> for Arg<'_> {
    fn from(view: Option<View>) -> Self {
        view.map_or(Self::Null, Self::Tensor)
    }
}

impl Arg<'_> {
    /// A whole number.
    pub(super) fn int(number: i64) -> Self {
        Self::Word(number as u64)
    }

    /// A `bool`.
    pub(super) fn flag(value: bool) -> Self {
        Self::Word(value.into())
    }
}

/// Queues a function. `repeats`: the same numbers come again, so that an executor is worth keeping.
pub(super) fn launch(
    call: &Context<'_>,
    function: &'static Function,
    arguments: &[Arg<'_>],
    repeats: bool,
) -> Result<()> {
    let Some(phases) = function.phases() else {
        return decline(function.missing());
    };
    check(function, arguments)?;
    let _entered = call.stream.enter("kernel")?;
    call.library
        .set_deterministic(call.stream, call.is_deterministic())?;
    if !repeats || !call.library.cache.is_on() {
        return once(call, function, phases, arguments);
    }
    thread_local! {
        static SIGNATURE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }
    // Taken out, since giving a workspace may run other code on this thread.
    let mut words = SIGNATURE.take();
    write_signature(call, function, arguments, &mut words);
    let outcome = {
        match call.library.cache.find(&words) {
            Some(Kept::Executor(prepared)) => again(call, function, phases, prepared, arguments),
            Some(Kept::Refused) => once(call, function, phases, arguments),
            None => first(call, function, phases, arguments, words.as_slice().into()),
        }
    };
    SIGNATURE.set(words);
    outcome
}

/// Checks types: the arguments of kernels by the table's, and the types of elements by CANN's documents.
fn check(function: &Function, arguments: &[Arg<'_>]) -> Result<()> {
    if function.parameters.len() != arguments.len() {
        let message = format!(
            "{} takes {} arguments, and got {}",
            function.name,
            function.parameters.len(),
            arguments.len()
        );
        return Err(Error::internal("aclnn", message));
    }
    for (parameter, argument) in function.parameters.iter().zip(arguments) {
        let fits = match (parameter.r#type, argument) {
            (Type::Tensor, Arg::Tensor(view)) => {
                check_dtype(function, parameter, view)?;
                true
            }
            (Type::Tensors, Arg::Tensors(views)) => {
                views
                    .iter()
                    .flatten()
                    .try_for_each(|view| check_dtype(function, parameter, view))?;
                true
            }
            (Type::Word, Arg::Word(_))
            | (Type::Double | Type::Float, Arg::Real(_))
            | (Type::Scalar, Arg::Scalar(_))
            | (Type::Scalars, Arg::Scalars(_))
            | (Type::Ints, Arg::Ints(_))
            | (Type::Floats, Arg::Floats(_))
            | (Type::Bools, Arg::Bools(_))
            | (Type::Text, Arg::Text(_)) => true,
            (Type::Word | Type::Double | Type::Float, _) => false,
            (_, Arg::Null) => true,
            _ => false,
        };
        if !fits {
            let message = format!("{}: {} is {argument:?}", function.name, parameter.name);
            return Err(Error::internal("aclnn", message));
        }
    }
    Ok(())
}

fn check_dtype(function: &Function, parameter: &Parameter, view: &View) -> Result<()> {
    if parameter.dtypes.has(view.dtype) {
        return Ok(());
    }
    decline(format!(
        "{} takes no {} for {}, but {}",
        function.name, view.dtype, parameter.name, parameter.dtypes
    ))
}

/// The arguments as objects and words.
struct Assembled {
    words: Words,
    objects: Vec<Object>,
    tensors: Vec<Placed>,
}

fn assemble(library: &Library, function: &Function, arguments: &[Arg<'_>]) -> Result<Assembled> {
    let base = library.base;
    let mut words = Words::new();
    let mut objects = Vec::with_capacity(arguments.len());
    let mut tensors = Vec::with_capacity(arguments.len());
    let mut place = 0;
    for (parameter, argument) in function.parameters.iter().zip(arguments) {
        let object = match argument {
            Arg::Word(word) => {
                words.word(*word);
                continue;
            }
            Arg::Real(value) => {
                match parameter.r#type {
                    Type::Float => words.float(*value as f32),
                    _ => words.double(*value),
                }
                continue;
            }
            Arg::Text(text) => {
                words.address(text.as_ptr());
                continue;
            }
            Arg::Null => {
                words.address::<c_void>(null_mut());
                place += usize::from(matches!(parameter.r#type, Type::Tensor | Type::Tensors));
                continue;
            }
            Arg::Tensor(view) => {
                let object = Object::tensor(base, view)?;
                let (tensor, storage) = (object.raw(), view.storage);
                tensors.push(Placed {
                    place,
                    tensor,
                    storage,
                });
                place += 1;
                object
            }
            Arg::Tensors(views) => {
                let (list, raws) = Object::tensors(base, views)?;
                for (view, tensor) in views.iter().zip(raws) {
                    if let Some(View { storage, .. }) = *view {
                        tensors.push(Placed {
                            place,
                            tensor,
                            storage,
                        });
                    }
                    place += 1;
                }
                list
            }
            Arg::Scalar(number) => Object::scalar(base, *number)?,
            Arg::Scalars(numbers) => Object::scalars(base, numbers)?,
            Arg::Ints(numbers) => Object::ints(base, numbers)?,
            Arg::Floats(numbers) => Object::floats(base, numbers)?,
            Arg::Bools(values) => Object::bools(base, values)?,
        };
        words.address::<c_void>(object.raw());
        objects.push(object);
    }
    Ok(Assembled {
        words,
        objects,
        tensors,
    })
}

/// Phase 1: an executor and the bytes of its workspace.
fn prepare(
    call: &Context<'_>,
    function: &Function,
    phases: Phases,
    words: &mut Words,
) -> Result<(Object, usize)> {
    let (mut nbytes, mut executor) = (0_u64, null_mut());
    words.address(&raw mut nbytes);
    words.address(&raw mut executor);
    // SAFETY: the function of this table's parameters, followed by both outputs.
    let code = unsafe { words.call(phases.prepare) };
    if code != 0 {
        let phase = "GetWorkspaceSize";
        return Err(failed(call.library, call.stream, function, phase, code));
    }
    let executor = Object::executor(call.library.base, executor)?;
    Ok((executor, nbytes as usize))
}

/// What phase 2 needs, on whichever thread it is called.
#[derive(Clone, Copy)]
struct Second {
    function: &'static Function,
    phases: Phases,
    library: &'static Library,
    stream: *const AscendStream,
    workspace: *mut c_void,
    nbytes: usize,
}

// SAFETY: the stream lives until all that was posted on it is queued, and may be used from every thread.
unsafe impl Send for Second {}

impl Second {
    fn new(
        call: &Context<'_>,
        function: &'static Function,
        phases: Phases,
        nbytes: usize,
    ) -> Result<Self> {
        Ok(Self {
            function,
            phases,
            library: call.library,
            stream: call.stream,
            workspace: call.workspace(nbytes)?,
            nbytes,
        })
    }

    fn stream(&self) -> &AscendStream {
        // SAFETY: as above.
        unsafe { &*self.stream }
    }

    /// Phase 2.
    fn queue(&self, executor: Raw) -> Result<()> {
        type Launch = unsafe extern "C" fn(*mut c_void, u64, Raw, *mut c_void) -> i32;
        let stream = self.stream();
        let _entered = stream.enter("kernel")?;
        // SAFETY: phase 2 of every operator has this signature; the workspace lasts until the stream has passed the work.
        let code = unsafe {
            let launch = std::mem::transmute::<*const (), Launch>(self.phases.launch);
            launch(
                self.workspace,
                self.nbytes as u64,
                executor,
                stream.handle(),
            )
        };
        match code {
            0 => Ok(()),
            code => Err(failed(self.library, stream, self.function, "", code)),
        }
    }

    /// Phase 2 of an executor that is kept, with the tensors at these addresses.
    fn repeat(&self, prepared: &Prepared, storages: &[*mut c_void]) -> Result<()> {
        let mut repeated = prepared.executor.lock();
        let Repeated {
            executor, tensors, ..
        } = &mut *repeated;
        for (placed, storage) in tensors.iter_mut().zip(storages) {
            if placed.storage == *storage {
                continue;
            }
            let code = executor.move_tensor(placed.place, placed.tensor, *storage);
            if code != 0 {
                let told = text(self.library.runtime.recent_error().as_deref());
                return Err(Error::device("aclSetTensorAddr", status(code, &told))
                    .with_context("function", self.function.name)
                    .with_hint("FLAGOS_ASCEND_EXECUTORS=0 keeps no executors"));
            }
            placed.storage = *storage;
        }
        self.queue(executor.raw())
    }
}

/// The addresses of a call's tensors.
enum Storages {
    Few([*mut c_void; FEW], usize),
    Many(Vec<*mut c_void>),
}

/// As many as nearly every call has at most.
const FEW: usize = 8;

// SAFETY: addresses, which belong to no thread.
unsafe impl Send for Storages {}

impl Storages {
    fn of(arguments: &[Arg<'_>]) -> Self {
        let mut few = [null_mut(); FEW];
        let mut count = 0;
        let mut rest = storages(arguments);
        for storage in rest.by_ref().take(FEW) {
            few[count] = storage;
            count += 1;
        }
        match rest.next() {
            None => Self::Few(few, count),
            Some(next) => Self::Many(few.into_iter().chain([next]).chain(rest).collect()),
        }
    }

    fn as_slice(&self) -> &[*mut c_void] {
        match self {
            Self::Few(few, count) => &few[..*count],
            Self::Many(many) => many,
        }
    }
}

/// The error of a phase, with CANN's text. Codes of the runtime mean here what they mean there: that memory has run out,
/// or that the device is lost.
#[cold]
fn failed(
    library: &Library,
    stream: &AscendStream,
    function: &Function,
    phase: &str,
    code: i32,
) -> Error {
    let told = library.runtime.recent_error();
    if !matches!(code / 1000, 161 | 361 | 561) {
        return stream.located(explain(function.name, code, told.as_deref()));
    }
    let message = format!(
        "{}{phase}: {}",
        function.name,
        status(code, &text(told.as_deref()))
    );
    match code {
        // Phase 1 has queued nothing: the arguments are none that CANN computes, or this chip has no kernel.
        161_001 | 161_002 | 561_000..=561_999 if !phase.is_empty() => {
            Error::unsupported("aclnn", message)
        }
        _ => Error::device("aclnn", message).with_hint("the logs are in ~/ascend/log"),
    }
}

fn status(code: i32, told: &str) -> String {
    let name = match code {
        161_001 => "ACLNN_ERR_PARAM_NULLPTR",
        161_002 => "ACLNN_ERR_PARAM_INVALID",
        361_001 => "ACLNN_ERR_RUNTIME_ERROR",
        561_001 => "ACLNN_ERR_INNER_INFERSHAPE_ERROR",
        561_002 => "ACLNN_ERR_INNER_TILING_ERROR",
        561_003 => "ACLNN_ERR_INNER_FIND_KERNEL_ERROR",
        561_107 => "ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND",
        561_112 => "ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND",
        561_000..=561_999 => "ACLNN_ERR_INNER",
        _ => "error",
    };
    match told {
        "" => format!("{name} ({code})"),
        told => format!("{name} ({code}): {told}"),
    }
}

fn once(
    call: &Context<'_>,
    function: &'static Function,
    phases: Phases,
    arguments: &[Arg<'_>],
) -> Result<()> {
    let mut assembled = assemble(call.library, function, arguments)?;
    let (executor, nbytes) = prepare(call, function, phases, &mut assembled.words)?;
    let second = Second::new(call, function, phases, nbytes)?;
    let spent = Spent {
        executor,
        _objects: assembled.objects,
    };
    post(call, arguments, move || spent.queue(&second))
}

/// Posts phase 2 of an executor that was just made. A text is the call's, and phase 2 may still read it: then now.
fn post(
    call: &Context<'_>,
    arguments: &[Arg<'_>],
    part: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<()> {
    let is_text = |argument: &Arg<'_>| matches!(argument, Arg::Text(_));
    if !arguments.iter().any(is_text) {
        return call.post(part);
    }
    call.flush()?;
    part()
}

/// An executor for one call, with its objects.
struct Spent {
    /// Destroyed here unless phase 2 sees it.
    executor: Object,
    // Destroyed after the executor.
    _objects: Vec<Object>,
}

// SAFETY: CANN's objects belong to no thread, and only one has them.
unsafe impl Send for Spent {}

impl Spent {
    fn queue(self, second: &Second) -> Result<()> {
        let Self { executor, _objects } = self;
        let raw = executor.raw();
        executor.spent();
        second.queue(raw)
    }
}

/// Runs a function and waits for it: the sizes that its tensors have then, in the order of the arguments. Phase 2 makes
/// those smaller whose sizes depend on elements.
pub(super) fn measure(
    call: &Context<'_>,
    function: &'static Function,
    arguments: &[Arg<'_>],
) -> Result<Vec<Vec<i64>>> {
    let Some(phases) = function.phases() else {
        return decline(function.missing());
    };
    check(function, arguments)?;
    let _entered = call.stream.enter("kernel")?;
    call.library
        .set_deterministic(call.stream, call.is_deterministic())?;
    let mut assembled = assemble(call.library, function, arguments)?;
    let (executor, nbytes) = prepare(call, function, phases, &mut assembled.words)?;
    let second = Second::new(call, function, phases, nbytes)?;
    call.flush()?;
    let raw = executor.raw();
    executor.spent();
    second.queue(raw)?;
    call.stream.sync()?;
    let of_type = |argument: &Arg<'_>| {
        !matches!(
            argument,
            Arg::Word(_) | Arg::Real(_) | Arg::Text(_) | Arg::Null
        )
    };
    let objects = arguments
        .iter()
        .filter(|argument| of_type(argument))
        .zip(&assembled.objects);
    let tensors = objects.filter(|(argument, _)| matches!(argument, Arg::Tensor(_)));
    tensors.map(|(_, object)| object.sizes()).collect()
}

/// The first call of a signature.
fn first(
    call: &Context<'_>,
    function: &'static Function,
    phases: Phases,
    arguments: &[Arg<'_>],
    signature: Signature,
) -> Result<()> {
    let mut assembled = assemble(call.library, function, arguments)?;
    let (executor, nbytes) = prepare(call, function, phases, &mut assembled.words)?;
    if !executor.keep() {
        // The refusal is no failure of anybody.
        drop(call.library.runtime.recent_error());
        call.library.cache.insert(signature, Kept::Refused);
        let second = Second::new(call, function, phases, nbytes)?;
        let spent = Spent {
            executor,
            _objects: assembled.objects,
        };
        return post(call, arguments, move || spent.queue(&second));
    }
    let prepared = Arc::new(Prepared {
        workspace: nbytes,
        executor: Mutex::new(Repeated {
            executor,
            tensors: assembled.tensors,
            _objects: assembled.objects,
        }),
    });
    let second = Second::new(call, function, phases, nbytes)?;
    let (first, storages) = (Arc::clone(&prepared), Storages::of(arguments));
    post(call, arguments, move || {
        second.repeat(&first, storages.as_slice())
    })?;
    call.library
        .cache
        .insert(signature, Kept::Executor(prepared));
    Ok(())
}

/// A further call of a signature.
fn again(
    call: &Context<'_>,
    function: &'static Function,
    phases: Phases,
    prepared: Arc<Prepared>,
    arguments: &[Arg<'_>],
) -> Result<()> {
    let second = Second::new(call, function, phases, prepared.workspace)?;
    let storages = Storages::of(arguments);
    call.post(move || second.repeat(&prepared, storages.as_slice()))
}

/// The addresses of the tensors in their order.
fn storages<'a>(arguments: &'a [Arg<'a>]) -> impl Iterator<Item = *mut c_void> + 'a {
    arguments.iter().flat_map(|argument| {
        let (one, several) = match argument {
            Arg::Tensor(view) => (Some(view), &[][..]),
            Arg::Tensors(views) => (None, *views),
            _ => (None, &[][..]),
        };
        one.into_iter()
            .chain(several.iter().flatten())
            .map(|view| view.storage)
    })
}

/// Writes a tensor but its address. `same`: which earlier tensor it shares a storage with, from 1.
fn write_view(view: &View, same: u64, words: &mut Vec<u64>) {
    words.push(1 | (view.dtype as u64) << 8 | (view.sizes.len() as u64) << 16 | same << 32);
    words.push(view.offset as u64);
    words.push(view.storage_nbytes as u64);
    words.push(u64::from(view.storage.is_null()));
    words.extend(view.sizes.iter().map(|size| *size as u64));
    words.extend(view.strides.iter().map(|stride| *stride as u64));
}

/// Writes all that phase 1 sees, but addresses.
fn write_signature(
    call: &Context<'_>,
    function: &Function,
    arguments: &[Arg<'_>],
    words: &mut Vec<u64>,
) {
    words.clear();
    words.push(function.number as u64 | u64::from(call.is_deterministic()) << 32);
    words.push(call.stream.handle() as u64);
    words.push(call.stream.device_index() as u64);
    let mut count = 0;
    let mut same = |view: &View| {
        // Tensors that share a storage are told from those that do not.
        let earlier = storages(arguments)
            .take(count)
            .position(|storage| storage == view.storage);
        count += 1;
        earlier.map_or(0, |place| place as u64 + 1)
    };
    for argument in arguments {
        match argument {
            Arg::Null => words.push(0),
            Arg::Tensor(view) => write_view(view, same(view), words),
            Arg::Tensors(views) => {
                words.push(10 | (views.len() as u64) << 8);
                for view in *views {
                    match view {
                        Some(view) => write_view(view, same(view), words),
                        None => words.push(0),
                    }
                }
            }
            Arg::Scalar(number) => {
                words.push(2);
                words.extend(number.words());
            }
            Arg::Scalars(numbers) => {
                words.push(3 | (numbers.len() as u64) << 8);
                numbers
                    .iter()
                    .for_each(|number| words.extend(number.words()));
            }
            Arg::Ints(numbers) => {
                words.push(4 | (numbers.len() as u64) << 8);
                words.extend(numbers.iter().map(|number| *number as u64));
            }
            Arg::Floats(numbers) => {
                words.push(5 | (numbers.len() as u64) << 8);
                words.extend(numbers.iter().map(|number| number.to_bits()));
            }
            Arg::Bools(values) => {
                words.push(6 | (values.len() as u64) << 8);
                words.extend(values.iter().map(|value| u64::from(*value)));
            }
            Arg::Word(word) => words.extend([7, *word]),
            Arg::Real(value) => words.extend([8, value.to_bits()]),
            Arg::Text(text) => {
                words.push(9 | (text.count_bytes() as u64) << 8);
                words.extend(text.to_bytes().iter().map(|byte| u64::from(*byte)));
            }
        }
    }
}
