//! A trial of foreign code in a forked child, whose crash or endless wait ends the child alone.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The most bytes of an answer.
const LONGEST: usize = 4096;
/// How the child's answer begins: the kind, and the length of the text.
const HEAD: usize = 9;
const TOLD: u8 = 1;
const REFUSED: u8 = 2;

/// The count that `work` returns in a child, or the reason of its failure: see [`tell`].
pub fn run(limit: Duration, work: impl FnOnce() -> Result<usize, String>) -> Result<usize, String> {
    let answer = tell(limit, || work().map(|count| count.to_string()))?;
    answer
        .parse()
        .map_err(|_| format!("its probe answered `{answer}`, which is no number"))
}

/// The answer of `work` in a child: a text, or a reason. Fails with the way in which the child ended, or
/// that it did not within `limit`. The child has one thread, runs no destructor at its end, and must take no lock that
/// another thread may hold now.
pub fn tell(
    limit: Duration,
    work: impl FnOnce() -> Result<String, String>,
) -> Result<String, String> {
    let cannot = |error: io::Error| format!("no process can be started to try it in: {error}");
    let (answer, tell) = pipe().map_err(cannot)?;
    // SAFETY: the child runs `in_child`, which never returns.
    match unsafe { libc::fork() } {
        -1 => Err(cannot(io::Error::last_os_error())),
        0 => {
            drop(answer);
            in_child(limit, tell, work)
        }
        child => {
            drop(tell);
            let answer = read(answer, Instant::now() + limit);
            // It has answered, has ended, or is too late.
            let status = end(child);
            answer.unwrap_or_else(|missing| {
                Err(match missing {
                    Missing::Ended => ended(status),
                    Missing::Late => {
                        format!("no answer within {} s in its probe", limit.as_secs_f32())
                    }
                    Missing::Unreadable(error) => format!("its probe cannot be followed: {error}"),
                })
            })
        }
    }
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two numbers.
    match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } {
        // SAFETY: new, and owned by nobody else.
        0 => Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn in_child(limit: Duration, mut tell: File, work: impl FnOnce() -> Result<String, String>) -> ! {
    // SAFETY: calls that are allowed in a child, with valid arguments.
    unsafe {
        // The library's output here is no part of the program's output.
        libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO);
        // The program's handlers of crashes are not for this child: they would print, or not end.
        for signal in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGABRT,
            libc::SIGALRM,
        ] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        // The end of a child whose parent is gone.
        libc::alarm(
            u32::try_from(limit.as_secs())
                .unwrap_or(u32::MAX)
                .saturating_add(2),
        );
    }
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("its probe panicked, which is a defect of flagos".into()));
    let (kind, text) = match &outcome {
        Ok(text) => (TOLD, text),
        Err(reason) => (REFUSED, reason),
    };
    let mut message = vec![kind];
    message.extend((text.len().min(LONGEST) as u64).to_ne_bytes());
    message.extend(text.bytes().take(LONGEST));
    // A parent that is gone reads nothing.
    let _ = tell.write_all(&message);
    // SAFETY: ends the child without running what belongs to the parent.
    unsafe { libc::_exit(0) }
}

/// Why there is no answer.
enum Missing {
    Ended,
    Late,
    Unreadable(io::Error),
}

/// The child's answer.
fn read(mut pipe: File, deadline: Instant) -> Result<Result<String, String>, Missing> {
    let mut head = [0; HEAD];
    fill(&mut pipe, &mut head, deadline)?;
    let number = u64::from_ne_bytes(head[1..].try_into().unwrap_or_default());
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let mut text = vec![0; number.min(LONGEST)];
    fill(&mut pipe, &mut text, deadline)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(if head[0] == TOLD { Ok(text) } else { Err(text) })
}

/// Fills `buffer` before the deadline.
fn fill(pipe: &mut File, buffer: &mut [u8], deadline: Instant) -> Result<(), Missing> {
    let mut filled = 0;
    while filled < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd {
            fd: pipe.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid entry.
        match unsafe { libc::poll(&mut poll, 1, milliseconds) } {
            0 => return Err(Missing::Late),
            -1 => retry(io::Error::last_os_error())?,
            _ => match pipe.read(&mut buffer[filled..]) {
                Ok(0) => return Err(Missing::Ended),
                Ok(count) => filled += count,
                Err(error) => retry(error)?,
            },
        }
    }
    Ok(())
}

fn retry(error: io::Error) -> Result<(), Missing> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(Missing::Unreadable(error)),
    }
}

/// Ends the child and waits for it. Returns its status, unless somebody else in this process has taken it.
fn end(child: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: a child of this process that nobody has waited for; a valid output.
    unsafe {
        match libc::waitpid(child, &mut status, libc::WNOHANG) {
            // Its own end may be on the way; the signal is for a child that answers no more.
            0 => libc::kill(child, libc::SIGKILL),
            -1 => return None,
            _ => return Some(status),
        };
        while libc::waitpid(child, &mut status, 0) == -1 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
    }
    Some(status)
}

/// How a child ended that told nothing.
fn ended(status: Option<i32>) -> String {
    match status {
        Some(status) if libc::WIFSIGNALED(status) => {
            format!("ended by {} in its probe", signal(libc::WTERMSIG(status)))
        }
        Some(status) => {
            let code = libc::WEXITSTATUS(status);
            format!("ended its process with status {code} in its probe")
        }
        None => "ended its process in its probe".into(),
    }
}

fn signal(number: i32) -> String {
    let known = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    let found = known.iter().find(|(known, _)| *known == number);
    found.map_or_else(
        || format!("signal {number}"),
        |(_, name)| (*name).to_owned(),
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn reason(limit: Duration, work: impl FnOnce() -> Result<usize, String>) -> String {
        run(limit, work).expect_err("no number")
    }

    #[test]
    fn an_answer_comes_back() {
        assert_eq!(run(LONG, || Ok(3)), Ok(3));
        assert_eq!(reason(LONG, || Err("no driver".into())), "no driver");
        assert_eq!(reason(LONG, || Err(String::new())), "");
        let long = "é".repeat(LONGEST);
        assert!(long.starts_with(&reason(LONG, || Err(long.clone()))));
    }

    #[test]
    fn a_text_comes_back() {
        assert_eq!(tell(LONG, || Ok("MXC500".into())), Ok("MXC500".into()));
        assert_eq!(tell(LONG, || Ok(String::new())), Ok(String::new()));
        assert_eq!(tell(LONG, || Err("none".into())), Err("none".into()));
    }

    #[test]
    fn what_work_does_stays_in_the_child() {
        let mut touched = 1;
        let answer = run(LONG, || {
            touched = 2;
            Ok(touched)
        });
        assert_eq!((answer, touched), (Ok(2), 1));
    }

    #[test]
    fn a_crash_is_told_by_its_signal() {
        for (signal, name) in [
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGABRT, "SIGABRT"),
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGUSR1, "signal 10"),
        ] {
            let answer = reason(LONG, || {
                // SAFETY: ends the child.
                unsafe { libc::raise(signal) };
                Ok(1)
            });
            assert_eq!(answer, format!("ended by {name} in its probe"));
        }
        let answer = reason(LONG, || {
            // SAFETY: never read: the child ends here.
            Ok(unsafe { std::ptr::read_volatile(std::ptr::dangling::<usize>()) })
        });
        assert_eq!(answer, "ended by SIGSEGV in its probe");
    }

    #[test]
    fn an_end_without_a_crash_is_told_too() {
        // SAFETY: ends the child.
        let answer = reason(LONG, || unsafe { libc::_exit(7) });
        assert_eq!(answer, "ended its process with status 7 in its probe");
        let answer = reason(LONG, || panic!("deliberately"));
        assert!(answer.starts_with("its probe panicked"), "{answer}");
    }

    #[test]
    fn what_work_prints_is_no_output_of_the_program() {
        let output = tempfile::tempfile().expect("a file");
        let answer = run(LONG, || {
            // SAFETY: of this child alone.
            unsafe { libc::dup2(output.as_raw_fd(), libc::STDOUT_FILENO) };
            run(LONG, || {
                let noise = c"noise of a library\n".to_bytes();
                // SAFETY: as many bytes as there are.
                let written = unsafe { libc::write(1, noise.as_ptr().cast(), noise.len()) };
                usize::try_from(written).map_err(|_| "it cannot print".into())
            })
        });
        assert_eq!(answer, Ok(19));
        assert_eq!(output.metadata().expect("a file").len(), 0);
    }

    #[test]
    fn an_endless_wait_is_ended() {
        let begun = Instant::now();
        let answer = reason(Duration::from_millis(200), || {
            loop {
                std::thread::sleep(LONG);
            }
        });
        assert_eq!(answer, "no answer within 0.2 s in its probe");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_process_that_ignores_its_children_gets_answers_too() {
        let answer = run(LONG, || {
            // SAFETY: of the child alone.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
            // SAFETY: ends the grandchild.
            let lost = reason(LONG, || unsafe { libc::_exit(7) });
            let counted = run(LONG, || Ok(5))?;
            match lost.as_str() {
                "ended its process in its probe" => Ok(counted),
                _ => Err(lost),
            }
        });
        assert_eq!(answer, Ok(5));
    }
}
