//! Threads that the interpreter ends.
//!
//! Before 3.14, a thread that wants the interpreter's lock after finalization began is ended by `pthread_exit`. That
//! unwinds the thread's stack, which must not pass through Rust: the process aborts, or dies of a signal where this
//! module has an unwinder of its own, as it does in a portable wheel. So such a thread is held for ever before its
//! unwinding reaches Rust, as 3.14 does. It can happen in a call that takes the lock, and in one that runs Python code,
//! which gives the lock away and takes it again. `finalization/calls.rs` lists these functions. The linker sends every
//! call of one of them, pyo3's too, to a function here.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use pyo3::ffi::{Py_ssize_t, PyGILState_STATE, PyObject, PyThreadState};

/// `struct _pthread_cleanup_buffer` of glibc's pthread.h.
#[repr(C)]
struct Cleanup {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut Cleanup,
}

// SAFETY: declared in glibc's pthreadP.h; programs that were compiled before glibc 2.3.3 call both.
unsafe extern "C" {
    fn _pthread_cleanup_push(
        buffer: *mut Cleanup,
        routine: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut Cleanup, execute: c_int);
}

unsafe extern "C" fn hold(_: *mut c_void) {
    loop {
        std::thread::park();
    }
}

/// Calls a function of the interpreter, and never returns from a thread that the interpreter ends meanwhile.
///
/// glibc runs a cleanup when the unwinding leaves the frame that has its buffer, after that frame's own cleanups. So the
/// frame is one of its own, without any.
#[inline(never)]
pub fn never_unwinds<T>(call: impl FnOnce() -> T) -> T {
    let mut buffer = MaybeUninit::<Cleanup>::uninit();
    // SAFETY: the buffer stays in this frame until it is popped. A call that does not return by itself leaves the thread
    // in `hold`.
    unsafe {
        _pthread_cleanup_push(buffer.as_mut_ptr(), hold, ptr::null_mut());
        let result = call();
        _pthread_cleanup_pop(buffer.as_mut_ptr(), 0);
        result
    }
}

macro_rules! wanting_the_lock {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[allow(non_snake_case)] // the interpreter's name
        #[unsafe(export_name = concat!("__wrap_", stringify!($name)))]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: as pyo3 declares it. `-wrap` gives the interpreter's own function this name.
            unsafe extern "C" {
                #[link_name = concat!("__real_", stringify!($name))]
                fn real($($argument: $type),*) $(-> $result)?;
            }
            // SAFETY: the caller's promise.
            never_unwinds(|| unsafe { real($($argument),*) })
        }
    )*};
}

include!("finalization/calls.rs");
