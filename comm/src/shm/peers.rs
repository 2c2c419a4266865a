//! Whether the processes of the other ranks still live.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// A process that was alive when this was made.
pub struct Peer {
    /// Stays its own when the number is given to another process; none on kernels before 5.3.
    handle: Option<OwnedFd>,
    pid: i32,
}

impl Peer {
    /// The process `pid`.
    pub fn new(pid: u32) -> Self {
        let pid = pid as i32;
        // SAFETY: the system call takes a number and flags; the descriptor is checked and owned.
        let handle = unsafe {
            let descriptor = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor as i32))
        };
        Self { handle, pid }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has ended.
    pub fn is_gone(&self) -> bool {
        let Some(handle) = &self.handle else {
            // SAFETY: signal 0 only asks whether there is such a process.
            return unsafe { libc::kill(self.pid, 0) } != 0
                && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        };
        let mut poll = libc::pollfd {
            fd: handle.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, not waited for. A process handle is readable once the process ended.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
    }
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
}
