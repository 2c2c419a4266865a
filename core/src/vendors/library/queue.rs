//! Parts of calls that a second thread hands to the library, for one stream each, in the order in which they were posted.
//!
//! The caller of a kernel posts what queues its work, and goes on. Whatever else uses the stream waits first until all
//! that was posted has been handed over ([`Queue::drain`]): so a stream has the order that it has without the queue, and
//! memory is never the library's again, or another stream's, while a part that uses it has not been handed over.
//!
//! After a failure nothing more is handed over, since it would compute on what the failed part has not written: parts
//! are given up until the failure was told. It is told at the next call on the stream and when somebody waits for it;
//! a thread of which parts were given up is told in any case.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::runtime::Posted;

use super::kernels::Kernels;
use super::loaded::Library;
use super::status;
use super::types::{FLAGOS_VENDOR_DEVICE, FLAGOS_VENDOR_OK, FLAGOS_VENDOR_UNSUPPORTED};

/// The most parts that wait; then their callers wait too.
const MOST_PARTS: u64 = 1024;
/// How long the thread looks for the next part before it sleeps: to wake it costs the caller some microseconds.
const PATIENCE: Duration = Duration::from_micros(50);
/// The looks between two looks at the clock.
const LOOKS: u32 = 64;

/// What waits for the queue of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Cut {
    Record = 1,
    Copy = 1 << 1,
    Free = 1 << 2,
    Other = 1 << 3,
}

/// For tests: the greatest random delay before each part, and the cuts that do not wait.
static DELAY_US: AtomicU64 = AtomicU64::new(0);
static UNMINDFUL: AtomicU32 = AtomicU32::new(0);
/// What the queues of the process did: parts posted, and cuts that had to wait.
static POSTED: AtomicU64 = AtomicU64::new(0);
static WAITS: AtomicU64 = AtomicU64::new(0);
/// Whether the process ends: the thread is not used any more.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The queues of the process, for its end.
static QUEUES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Delays every part by a random time of up to so many microseconds, and lets cuts (bits of [`Cut`]) not wait: tests show
/// by it that they would find a missing wait.
pub fn inject(delay_us: u64, unmindful: u32) {
    DELAY_US.store(delay_us, Ordering::SeqCst);
    UNMINDFUL.store(unmindful, Ordering::SeqCst);
}

/// How many parts were posted in the process, and how often somebody had to wait for them.
pub fn counts() -> (u64, u64) {
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    (of(&POSTED), of(&WAITS))
}

/// A number of the calling thread, which no other thread of the process ever has.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    OWN.with(|own| {
        if own.get() == 0 {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        own.get()
    })
}

struct Part {
    posted: Posted,
    caller: u64,
}

/// A part that has failed.
struct Failure {
    error: Error,
    caller: u64,
    /// Whether parts are given up: nobody was told yet.
    stops: bool,
    /// The threads of which parts were given up, and which were not told.
    lost: Vec<u64>,
}

#[derive(Default)]
struct State {
    parts: VecDeque<Part>,
    failure: Option<Failure>,
    sleeps: bool,
    ends: bool,
}

struct Shared {
    library: &'static Library,
    state: Mutex<State>,
    /// How many parts have been posted, and handed over or given up.
    posted: AtomicU64,
    done: AtomicU64,
    /// The threads that wait for `done`.
    waiters: AtomicUsize,
    /// Whether there is a failure.
    failed: AtomicBool,
    /// Whether it stops the queue.
    stopped: AtomicBool,
    thread: AtomicU64,
    wake: Condvar,
    passed: Condvar,
}

/// The queue of a stream, with its thread.
#[derive(Clone)]
pub(super) struct Queue(Arc<Shared>);

impl Queue {
    /// A queue with a thread; none where the system has no further thread.
    pub(super) fn new(library: &'static Library) -> Option<Self> {
        let shared = Arc::new(Shared {
            library,
            state: Mutex::default(),
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            thread: AtomicU64::new(0),
            wake: Condvar::new(),
            passed: Condvar::new(),
        });
        let works = Arc::clone(&shared);
        thread::Builder::new()
            .name("flagos-queue".into())
            .spawn(move || works.work())
            .ok()?;
        drain_at_exit();
        let mut queues = QUEUES.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&shared));
        drop(queues);
        Some(Self(shared))
    }

    /// Posts a part; it may have to wait for room. Fails, and gives the part up, with a failure that is to be told.
    pub(super) fn post(&self, posted: Posted) -> Result<()> {
        let shared = &*self.0;
        if let Err(error) = self.tell(false) {
            posted.give_up();
            return Err(error);
        }
        let number = shared.posted.load(Ordering::Relaxed);
        if number.wrapping_sub(shared.done.load(Ordering::Acquire)) >= MOST_PARTS {
            shared.wait_for(number - MOST_PARTS / 2);
        }
        let caller = this_thread();
        let mut state = shared.state.lock();
        state.parts.push_back(Part { posted, caller });
        shared.posted.fetch_add(1, Ordering::Release);
        let sleeps = std::mem::take(&mut state.sleeps);
        drop(state);
        if sleeps {
            shared.wake.notify_one();
        }
        POSTED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until everything posted so far has been handed over. Tells nothing.
    #[inline]
    pub(super) fn drain(&self, cut: Cut) {
        let shared = &*self.0;
        let posted = shared.posted.load(Ordering::Acquire);
        if shared.done.load(Ordering::Acquire) < posted {
            shared.drain_slowly(posted, cut);
        }
    }

    /// Whether nothing is left to hand over.
    pub(super) fn is_empty(&self) -> bool {
        let posted = self.0.posted.load(Ordering::Acquire);
        self.0.done.load(Ordering::Acquire) >= posted
    }

    /// Whether its stream has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.0.state.lock().ends
    }

    /// Tells a failure that the calling thread has to know. `waits`: it is where programs expect the failures of all.
    #[inline]
    pub(super) fn tell(&self, waits: bool) -> Result<()> {
        if self.0.failed.load(Ordering::Acquire) {
            return self.tell_slowly(waits);
        }
        Ok(())
    }

    #[cold]
    fn tell_slowly(&self, waits: bool) -> Result<()> {
        let me = this_thread();
        // All that was posted before anybody was told is given up.
        self.drain(Cut::Other);
        let mut state = self.0.state.lock();
        let Some(failure) = &mut state.failure else {
            return Ok(());
        };
        let place = failure.lost.iter().position(|thread| *thread == me);
        if !failure.stops && place.is_none() {
            return Ok(());
        }
        if let Some(place) = place {
            failure.lost.swap_remove(place);
        }
        let error = failure.error.clone();
        if waits || failure.caller == me {
            failure.stops = false;
            self.0.stopped.store(false, Ordering::Release);
        }
        if !failure.stops && failure.lost.is_empty() {
            state.failure = None;
            self.0.failed.store(false, Ordering::Release);
        }
        Err(error)
    }
}

impl Shared {
    #[cold]
    fn drain_slowly(&self, posted: u64, cut: Cut) {
        // A part that frees something must not wait for itself.
        let own = self.thread.load(Ordering::Relaxed) == this_thread();
        if own || UNMINDFUL.load(Ordering::Relaxed) & cut as u32 != 0 {
            return;
        }
        WAITS.fetch_add(1, Ordering::Relaxed);
        self.wait_for(posted);
    }

    /// Waits until so many parts are done.
    fn wait_for(&self, number: u64) {
        for _ in 0..LOOKS {
            if self.done.load(Ordering::Acquire) >= number {
                return;
            }
            std::hint::spin_loop();
        }
        let mut state = self.state.lock();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while self.done.load(Ordering::SeqCst) < number {
            self.passed.wait(&mut state);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// The thread.
    fn work(&self) {
        self.thread.store(this_thread(), Ordering::Relaxed);
        let mut parts = VecDeque::new();
        let mut random = std::ptr::from_ref(self) as u64;
        while self.next(&mut parts) {
            for part in parts.drain(..) {
                let delay = DELAY_US.load(Ordering::Relaxed);
                if delay != 0 {
                    random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                    thread::sleep(Duration::from_micros((random >> 33) % delay));
                }
                self.hand_over(part);
                self.done.fetch_add(1, Ordering::SeqCst);
                if self.waiters.load(Ordering::SeqCst) != 0 {
                    // Under the lock, so that nobody falls asleep meanwhile.
                    let _locked = self.state.lock();
                    self.passed.notify_all();
                }
            }
        }
    }

    /// Takes the parts that wait, or waits for some; false at the end.
    fn next(&self, parts: &mut VecDeque<Part>) -> bool {
        let done = self.done.load(Ordering::Relaxed);
        let mut began = None;
        while self.posted.load(Ordering::Acquire) == done {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
            }
            if began.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                break;
            }
        }
        let mut state = self.state.lock();
        while state.parts.is_empty() {
            if state.ends {
                return false;
            }
            state.sleeps = true;
            self.wake.wait(&mut state);
        }
        state.sleeps = false;
        std::mem::swap(&mut state.parts, parts);
        true
    }

    fn hand_over(&self, part: Part) {
        if self.stopped.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            if let Some(failure) = state.failure.as_mut().filter(|failure| failure.stops) {
                if !failure.lost.contains(&part.caller) {
                    failure.lost.push(part.caller);
                }
                drop(state);
                part.posted.give_up();
                return;
            }
        }
        let Part { posted, caller } = part;
        if let Err(error) = run(posted, self.library) {
            self.fail(error, caller);
        }
    }

    #[cold]
    fn fail(&self, error: Error, caller: u64) {
        let error = error.with_context("queued", "by another thread, after the call");
        let mut state = self.state.lock();
        let mut lost = state
            .failure
            .take()
            .map_or_else(Vec::new, |before| before.lost);
        if !lost.contains(&caller) {
            lost.push(caller);
        }
        state.failure = Some(Failure {
            error,
            caller,
            stops: true,
            lost,
        });
        self.stopped.store(true, Ordering::Release);
        self.failed.store(true, Ordering::Release);
    }
}

impl Drop for Shared {
    /// What nobody was told.
    fn drop(&mut self) {
        if let Some(failure) = &self.state.get_mut().failure {
            tracing::error!(error = %failure.error, "a call failed, and nobody waited for it");
        }
    }
}

/// Ends the thread of a queue that is empty and that nobody uses any more.
pub(super) fn end(queue: &Queue) {
    queue.0.state.lock().ends = true;
    queue.0.wake.notify_one();
}

/// Hands a part to the library on this thread.
pub(super) fn run(posted: Posted, library: &Library) -> Result<()> {
    let operator = posted.operator();
    let code = match posted.run() {
        FLAGOS_VENDOR_OK => return Ok(()),
        // A call cannot be declined any more.
        FLAGOS_VENDOR_UNSUPPORTED => FLAGOS_VENDOR_DEVICE,
        code => code,
    };
    let text = library.kernels().and_then(Kernels::last_error);
    Err(status::error(
        &library.description().name,
        operator,
        code,
        text,
    ))
}

/// Whether the process ends, where libraries may be half gone on other threads.
pub(super) fn is_ending() -> bool {
    ENDING.load(Ordering::Acquire)
}

/// Has the end of the process wait for what was posted, and log failures that nobody was told.
fn drain_at_exit() {
    extern "C" fn at_exit() {
        if crate::runtime::process::is_forked() {
            return;
        }
        ENDING.store(true, Ordering::Release);
        let queues = std::mem::take(&mut *QUEUES.lock());
        for queue in queues.iter().filter_map(Weak::upgrade).map(Queue) {
            queue.drain(Cut::Other);
            if let Some(failure) = &queue.0.state.lock().failure {
                tracing::error!(error = %failure.error, "a call failed, and nobody waited for it");
            }
        }
    }
    static ONCE: Once = Once::new();
    // Registered after the vendor's libraries were opened: so it runs before they end.
    ONCE.call_once(|| {
        // SAFETY: a function that lives as long as the library, which is never closed.
        if unsafe { libc::atexit(at_exit) } != 0 {
            tracing::error!("the end of the process will not wait for calls that are queued");
        }
    });
}
