//! The processes of the other ranks, and whether they still live.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A process, alive when the value was made.
pub struct Peer {
    /// The kernel's handle, which stays this process's when its number is given to another one; none on kernels
    /// before 5.3. All groups share one handle of a process.
    handle: Option<Arc<OwnedFd>>,
    pid: i32,
}

/// The handles in use by groups of this process, by process number.
static HANDLES: Mutex<Option<HashMap<i32, Weak<OwnedFd>>>> = Mutex::new(None);

impl Peer {
    /// The process `pid`.
    pub fn new(pid: u32) -> Self {
        let pid = pid as i32;
        // The lock is not waited for: in a forked child its holder may not exist. A second handle of a process does
        // no harm.
        let Some(mut handles) = HANDLES.try_lock() else {
            return Self {
                handle: open(pid),
                pid,
            };
        };
        let handles = handles.get_or_insert_default();
        handles.retain(|_, handle| handle.strong_count() != 0);
        let known = handles.get(&pid).and_then(Weak::upgrade);
        // A handle whose process has ended is not reused: the number may be another process's by now.
        let handle = known.filter(|handle| !has_ended(handle)).or_else(|| {
            let opened = open(pid);
            if let Some(handle) = &opened {
                handles.insert(pid, Arc::downgrade(handle));
            }
            opened
        });
        Self { handle, pid }
    }

    /// The number of the process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the process has ended.
    pub fn is_gone(&self) -> bool {
        let Some(handle) = &self.handle else {
            // SAFETY: signal 0 only asks whether there is such a process.
            return unsafe { libc::kill(self.pid, 0) } != 0
                && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        };
        has_ended(handle)
    }
}

fn open(pid: i32) -> Option<Arc<OwnedFd>> {
    // SAFETY: the system call takes a number and flags; the descriptor is checked and owned.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (descriptor >= 0).then(|| Arc::new(OwnedFd::from_raw_fd(descriptor as i32)))
    }
}

fn has_ended(handle: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: handle.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor, polled without waiting. A process handle is readable once the process has ended.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Peer;

    #[test]
    fn a_process_is_there_until_it_is_killed() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .expect("sleep can be run");
        let peer = Peer::new(child.id());
        assert!(!peer.is_gone());
        child.kill().expect("it can be killed");
        child.wait().expect("it has ended");
        assert!(peer.is_gone());
    }

    #[test]
    fn groups_share_the_handle_of_a_process() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .expect("sleep can be run");
        let (first, second) = (Peer::new(child.id()), Peer::new(child.id()));
        let shared = first.handle.as_ref().zip(second.handle.as_ref());
        assert!(shared.is_none_or(|(first, second)| std::sync::Arc::ptr_eq(first, second)));
        child.kill().expect("it can be killed");
        child.wait().expect("it has ended");
        assert!(first.is_gone() && second.is_gone());
    }
}
