//! Entries about recordings of calls.

use std::ptr::null;

use crate::error::Result;
use crate::kernels::{
    Launch, LaunchSpec, Limits, Number, Output, Place, RecordedLaunch, Recording, Step,
};

use super::launches::{launcher, slice, with_flags};
use super::status::{give, null as is_null, quietly, status};
use super::types::{
    FLAGOS_NUMBER_BOOL, FLAGOS_NUMBER_DOUBLE, FLAGOS_NUMBER_INTEGER, FLAGOS_STEP_COPY,
    FLAGOS_STEP_FILL, FLAGOS_STEP_LAUNCH, FlagosBlock, FlagosLaunch, FlagosOutput, FlagosPlace,
    FlagosRecording, FlagosStep,
};

/// A recording with its launches, and what a caller sees of it.
#[repr(C)]
struct Opened {
    /// First, so that its address is that of the whole.
    view: FlagosRecording,
    blocks: Box<[FlagosBlock]>,
    steps: Box<[FlagosStep]>,
    results: Box<[FlagosOutput]>,
    /// The launches of the steps, in order.
    #[expect(clippy::vec_box, reason = "the steps hold the launches' addresses")]
    _launches: Vec<Box<FlagosLaunch>>,
    /// Holds the lists that the view's places and steps point into.
    _recording: Recording,
}

impl Opened {
    /// # Safety
    /// As [`Launch::new`], for every launch.
    unsafe fn new(recording: Recording) -> Result<Box<Self>> {
        let mut launches = Vec::new();
        let mut steps = Vec::with_capacity(recording.steps.len());
        for step in &recording.steps {
            steps.push(match step {
                Step::Launch(recorded) => {
                    // SAFETY: the caller's promise.
                    let launch = unsafe { prepare(recorded)? };
                    let launch = Box::new(FlagosLaunch { launch });
                    let launch_step = FlagosStep {
                        launch: &raw const *launch,
                        memories: recorded.memories.as_ptr(),
                        num_memories: recorded.memories.len(),
                        ..empty(FLAGOS_STEP_LAUNCH)
                    };
                    launches.push(launch);
                    launch_step
                }
                Step::Fill { target, value } => with_number(
                    *value,
                    FlagosStep {
                        target: view(target),
                        ..empty(FLAGOS_STEP_FILL)
                    },
                ),
                Step::Copy { target, source } => FlagosStep {
                    target: view(target),
                    source: view(source),
                    ..empty(FLAGOS_STEP_COPY)
                },
            });
        }
        let results = recording.results.iter().map(|result| match result {
            Output::Argument(index) => FlagosOutput {
                argument: *index as i64,
                place: NOWHERE,
            },
            Output::Made(place) => FlagosOutput {
                argument: -1,
                place: view(place),
            },
        });
        let blocks = recording.blocks.iter().map(|block| FlagosBlock {
            nbytes: block.nbytes,
            returned: u32::from(block.returned),
        });
        let mut opened = Box::new(Self {
            view: FlagosRecording {
                blocks: null(),
                num_blocks: 0,
                steps: null(),
                num_steps: 0,
                results: null(),
                num_results: 0,
            },
            blocks: blocks.collect(),
            steps: steps.into(),
            results: results.collect(),
            _launches: launches,
            _recording: recording,
        });
        opened.view = FlagosRecording {
            blocks: opened.blocks.as_ptr(),
            num_blocks: opened.blocks.len(),
            steps: opened.steps.as_ptr(),
            num_steps: opened.steps.len(),
            results: opened.results.as_ptr(),
            num_results: opened.results.len(),
        };
        Ok(opened)
    }
}

/// # Safety
/// As [`Launch::new`].
unsafe fn prepare(recorded: &RecordedLaunch) -> Result<Launch> {
    let spec = LaunchSpec {
        function: recorded.function,
        grid: recorded.grid,
        shape: with_flags(recorded.shape, recorded.flags)?,
        parameters: &recorded.parameters,
    };
    // SAFETY: the caller's promise.
    unsafe { Launch::new(launcher("recording_read")?, &spec) }
}

const NOWHERE: FlagosPlace = FlagosPlace {
    memory: 0,
    offset: 0,
    dtype: 0,
    rank: 0,
    sizes: null(),
    strides: null(),
};

fn view(place: &Place) -> FlagosPlace {
    FlagosPlace {
        memory: place.memory,
        offset: place.offset,
        dtype: place.dtype,
        rank: place.sizes.len() as u32,
        sizes: place.sizes.as_ptr(),
        strides: place.strides.as_ptr(),
    }
}

fn empty(kind: u32) -> FlagosStep {
    FlagosStep {
        kind,
        launch: null(),
        memories: null(),
        num_memories: 0,
        target: NOWHERE,
        source: NOWHERE,
        number_kind: FLAGOS_NUMBER_INTEGER,
        integer: 0,
        real: 0.0,
    }
}

fn with_number(number: Number, step: FlagosStep) -> FlagosStep {
    match number {
        Number::Integer(integer) => FlagosStep { integer, ..step },
        Number::Double(real) => FlagosStep {
            number_kind: FLAGOS_NUMBER_DOUBLE,
            real,
            ..step
        },
        Number::Bool(value) => FlagosStep {
            number_kind: FLAGOS_NUMBER_BOOL,
            integer: i64::from(value),
            ..step
        },
    }
}

/// `FlagosApi::recording_read`.
///
/// # Safety
/// There are `num_words` numbers behind `words`; `out` is NULL or valid for writing; functions of launches are
/// loaded on the current device, and stay loaded.
pub(super) unsafe extern "C" fn read(
    words: *const i64,
    num_words: usize,
    num_inputs: usize,
    num_dtypes: u32,
    out: *mut *mut FlagosRecording,
) -> i32 {
    status(|| {
        if out.is_null() {
            return Err(is_null("the output"));
        }
        let limits = Limits {
            inputs: num_inputs,
            dtypes: num_dtypes,
        };
        // SAFETY: the caller's promise.
        let recording = Recording::read(unsafe { slice(words, num_words, "words")? }, limits)?;
        // SAFETY: the caller's promise.
        unsafe { give(out, Box::into_raw(Opened::new(recording)?).cast()) }
    })
}

/// `FlagosApi::recording_free`.
///
/// # Safety
/// `recording` is NULL or came from [`read`], and is not used any more.
pub(super) unsafe extern "C" fn free(recording: *mut FlagosRecording) {
    if !recording.is_null() {
        quietly(|| {
            // SAFETY: the caller's promise: the view is the first field of an `Opened` that `read` leaked.
            drop(unsafe { Box::from_raw(recording.cast::<Opened>()) });
            Ok(())
        });
    }
}
