//! A few functions of the driver, by which tests act as other users of CUDA.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

type Handle = *mut c_void;

pub struct Driver {
    pub get_current: unsafe extern "C" fn(*mut Handle) -> u32,
    pub set_current: unsafe extern "C" fn(Handle) -> u32,
    pub create: unsafe extern "C" fn(*mut Handle, c_uint, c_int) -> u32,
    pub destroy: unsafe extern "C" fn(Handle) -> u32,
    load_module: unsafe extern "C" fn(*mut Handle, *const c_void) -> u32,
    get_function: unsafe extern "C" fn(*mut Handle, Handle, *const i8) -> u32,
    #[allow(clippy::type_complexity)]
    launch: unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut Handle,
        *mut Handle,
    ) -> u32,
}

/// The driver. Only called once a vendor could be opened.
pub fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        // SAFETY: CUDA's driver with the signatures of cuda.h, never closed.
        unsafe {
            let library = libloading::Library::new("libcuda.so.1").expect("the driver");
            let library: &'static _ = Box::leak(Box::new(library));
            Driver {
                get_current: *library.get("cuCtxGetCurrent\0").expect("a symbol"),
                set_current: *library.get("cuCtxSetCurrent\0").expect("a symbol"),
                create: *library.get("cuCtxCreate_v2\0").expect("a symbol"),
                destroy: *library.get("cuCtxDestroy_v2\0").expect("a symbol"),
                load_module: *library.get("cuModuleLoadData\0").expect("a symbol"),
                get_function: *library.get("cuModuleGetFunction\0").expect("a symbol"),
                launch: *library.get("cuLaunchKernel\0").expect("a symbol"),
            }
        }
    })
}

impl Driver {
    /// The context of this thread.
    pub fn current(&self) -> Handle {
        let mut context = null_mut();
        // SAFETY: a valid output.
        assert_eq!(unsafe { (self.get_current)(&mut context) }, 0);
        context
    }

    pub fn make_current(&self, context: Handle) {
        // SAFETY: a live context or null.
        assert_eq!(unsafe { (self.set_current)(context) }, 0);
    }

    /// Loads a program in the current context, and finds its kernel of this name.
    pub fn load(&self, ptx: &CStr, name: &CStr) -> Handle {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the text of a program, a name, and valid outputs.
        unsafe {
            assert_eq!((self.load_module)(&mut module, ptx.as_ptr().cast()), 0);
            assert_eq!(
                (self.get_function)(&mut function, module, name.as_ptr().cast()),
                0
            );
        }
        function
    }

    /// Launches a kernel that stops with an error, on a stream of the current context.
    pub fn launch_trap(&self, stream: Handle) {
        const PTX: &CStr = c".version 6.0\n.target sm_70\n.address_size 64\n\
            .visible .entry stop() { trap; ret; }\n";
        let function = self.load(PTX, c"stop");
        // SAFETY: a kernel without parameters.
        unsafe {
            let code = (self.launch)(
                function,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                null_mut(),
                null_mut(),
            );
            assert_eq!(code, 0);
        }
    }
}
