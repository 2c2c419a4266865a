//! Lanes, which run tasks one after the other on threads of their own.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{Error, ErrorKind, Result};

/// The notification of a task's end. It may run callbacks of the program, which may wait for tasks behind this one.
pub type After = Box<dyn FnOnce() + Send>;
/// A task, which returns the notification of its end.
pub type Task = Box<dyn FnOnce() -> Option<After> + Send>;

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Tasks that are queued or running.
    unfinished: usize,
    /// Whether a task runs. Two tasks never run at once.
    running: bool,
    /// Threads that wait for a task, or are about to.
    idle: usize,
    closing: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Tasks that run one after the other, on a thread that starts with the first one. Another thread takes over while
/// a task's [`After`] runs. Tasks that are queued when the lane is dropped are finished.
#[derive(Default)]
pub struct Lane(Arc<Shared>);

impl Lane {
    /// Queues a task. Fails, and drops the task, when the lane has no thread and none can be started.
    pub fn push(&self, task: Task) -> Result<()> {
        let mut state = self.0.state.lock();
        state.tasks.push_back(task);
        state.unfinished += 1;
        if state.running {
            return Ok(()); // the thread of the running task takes the next one
        }
        call_a_thread(&self.0, &mut state).map_err(|error| {
            state.tasks.pop_back();
            state.unfinished -= 1;
            Error::new(
                ErrorKind::System,
                format!(
                    "the thread that runs collectives could not be started ({error}): the process has as many as it \
                     may have (ulimit -u, or the container's limit of processes)"
                ),
            )
        })
    }

    /// Whether no task is queued or running.
    pub fn is_idle(&self) -> bool {
        self.0.state.lock().unfinished == 0
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.0.state.lock().closing = true;
        self.0.changed.notify_all();
    }
}

/// Wakes a thread for the queued tasks, or starts one.
fn call_a_thread(shared: &Arc<Shared>, state: &mut State) -> std::io::Result<()> {
    if state.idle > 0 {
        shared.changed.notify_one();
        return Ok(());
    }
    let theirs = shared.clone();
    std::thread::Builder::new()
        .name("flagos_comm".into())
        .spawn(move || work(&theirs))?;
    state.idle += 1;
    Ok(())
}

fn work(shared: &Arc<Shared>) {
    let mut state = shared.state.lock();
    loop {
        while !state.closing && (state.running || state.tasks.is_empty()) {
            shared.changed.wait(&mut state);
        }
        state.idle -= 1;
        let task = match state.tasks.pop_front() {
            Some(task) if !state.running => task,
            unused => {
                // The lane is closing, and the thread that runs a task runs the remaining ones.
                if let Some(task) = unused {
                    state.tasks.push_front(task);
                }
                return;
            }
        };
        state.running = true;
        let after = MutexGuard::unlocked(&mut state, task);
        state.unfinished -= 1;
        state.running = false;
        if let Some(after) = after {
            if !state.tasks.is_empty() {
                // If no other thread starts, this one goes on with the next task after the callbacks.
                let _ = call_a_thread(shared, &mut state);
            }
            MutexGuard::unlocked(&mut state, after);
            if state.idle > 0 && state.tasks.is_empty() {
                return; // another thread waits already
            }
        }
        state.idle += 1;
    }
}
