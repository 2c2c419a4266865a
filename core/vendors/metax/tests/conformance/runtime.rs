//! A few functions of the runtime, by which tests act as other users of it.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

pub type Handle = *mut c_void;

pub struct Runtime {
    get_device: unsafe extern "C" fn(*mut c_int) -> c_int,
    set_device: unsafe extern "C" fn(c_int) -> c_int,
    last_error: unsafe extern "C" fn() -> c_int,
    create: unsafe extern "C" fn(*mut Handle, c_uint) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    begin_capture: unsafe extern "C" fn(Handle, c_int) -> c_int,
    end_capture: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    destroy_graph: unsafe extern "C" fn(Handle) -> c_int,
}

/// The runtime. Only called once a vendor could be opened.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        // SAFETY: MACA's runtime with the signatures of its users, never closed.
        unsafe {
            let library = libloading::Library::new("libmcruntime.so").expect("the runtime");
            let library: &'static _ = Box::leak(Box::new(library));
            Runtime {
                get_device: *library.get("mcGetDevice\0").expect("a symbol"),
                set_device: *library.get("mcSetDevice\0").expect("a symbol"),
                last_error: *library.get("mcGetLastError\0").expect("a symbol"),
                create: *library.get("mcStreamCreateWithFlags\0").expect("a symbol"),
                destroy: *library.get("mcStreamDestroy\0").expect("a symbol"),
                begin_capture: *library.get("mcStreamBeginCapture\0").expect("a symbol"),
                end_capture: *library.get("mcStreamEndCapture\0").expect("a symbol"),
                destroy_graph: *library.get("mcGraphDestroy\0").expect("a symbol"),
            }
        }
    })
}

impl Runtime {
    /// The current device of this thread.
    pub fn device(&self) -> c_int {
        let mut device = -1;
        // SAFETY: a valid output.
        assert_eq!(unsafe { (self.get_device)(&mut device) }, 0);
        device
    }

    pub fn set_device(&self, device: c_int) {
        // SAFETY: any number may be given.
        assert_eq!(unsafe { (self.set_device)(device) }, 0);
    }

    /// The failure that the runtime keeps for this thread, which it then forgets.
    pub fn last_error(&self) -> c_int {
        // SAFETY: needs nothing.
        unsafe { (self.last_error)() }
    }

    /// A stream of the current device.
    pub fn stream(&self) -> Handle {
        let mut stream = null_mut();
        // SAFETY: a valid output.
        assert_eq!(unsafe { (self.create)(&mut stream, 1) }, 0);
        stream
    }

    pub fn destroy(&self, stream: Handle) {
        // SAFETY: the caller's own stream.
        assert_eq!(unsafe { (self.destroy)(stream) }, 0);
    }

    /// What `inside` returns while a stream is captured, in the mode in which nobody is disturbed.
    pub fn while_capturing<T>(&self, stream: Handle, inside: impl FnOnce() -> T) -> T {
        const RELAXED: c_int = 2;
        let mut graph = null_mut();
        // SAFETY: a live stream, and a valid output; the graph is used no more.
        unsafe {
            assert_eq!((self.begin_capture)(stream, RELAXED), 0);
            let found = inside();
            assert_eq!((self.end_capture)(stream, &mut graph), 0);
            assert_eq!((self.destroy_graph)(graph), 0);
            found
        }
    }
}
