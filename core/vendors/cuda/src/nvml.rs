//! NVIDIA's management library: which devices the machine has, without touching CUDA.
//!
//! CUDA, once initialised, is broken in every child forked afterwards. The management library does not
//! initialise CUDA, and is shut down again after the question.

// The functions keep the names of NVML's documentation.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use flagos_vendor_kit::{driver_library, functions};

/// The library's answer about the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listing {
    /// The UUID (`GPU-...`) of each device, in the order of the bus; empty for a device whose UUID the library
    /// does not tell.
    pub(super) uuids: Vec<String>,
    /// The CUDA version of the driver: 12080 for 12.8.
    pub(super) cuda_version: Option<c_int>,
}

/// The reason why there is no listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unlisted {
    /// The library is not found, or may not answer.
    NoAnswer(String),
    /// The driver does not work, so CUDA would not work either.
    Broken(String),
}

const SONAME: &str = "libnvidia-ml.so.1";
type Code = c_uint;
const SUCCESS: Code = 0;
const NO_PERMISSION: Code = 4;
/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const UUID_SIZE: usize = 96;

type Get<T> = unsafe extern "C" fn(*mut T) -> Code;

functions! {
    Nvml
    required {
        nvmlInit_v2();
        nvmlShutdown();
        nvmlDeviceGetCount_v2(*mut c_uint);
        nvmlDeviceGetHandleByIndex_v2(c_uint, *mut *mut c_void);
        nvmlDeviceGetUUID(*mut c_void, *mut c_char, c_uint);
    }
    newer {
        // CUDA 11.
        nvmlSystemGetCudaDriverVersion_v2(*mut c_int);
    }
    others {
        nvmlErrorString(Code) -> *const c_char;
    }
}

impl Nvml {
    fn open() -> Result<Self, String> {
        let library = driver_library::open(&[SONAME])?;
        // SAFETY: the signatures are those of nvml.h, and the library is never closed.
        let found = unsafe { Self::find(library) };
        found.map_err(|missing| format!("{SONAME} has no {}", missing.join(", ")))
    }

    fn error(&self, code: Code) -> String {
        // SAFETY: it takes any code and returns a static string.
        let text = unsafe { (self.nvmlErrorString)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: see above.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    fn get<T: Default>(&self, function: Get<T>) -> Result<T, String> {
        let mut value = T::default();
        // SAFETY: a valid output; the library is initialised.
        match unsafe { function(&mut value) } {
            SUCCESS => Ok(value),
            code => Err(self.error(code)),
        }
    }

    /// The UUID of a device, if the library tells it.
    fn uuid(&self, index: c_uint) -> Option<String> {
        let mut device = std::ptr::null_mut();
        let mut text = [0; UUID_SIZE];
        // SAFETY: valid outputs of the sizes given; the library is initialised.
        let told = unsafe {
            (self.nvmlDeviceGetHandleByIndex_v2)(index, &mut device) == SUCCESS
                && (self.nvmlDeviceGetUUID)(device, text.as_mut_ptr(), UUID_SIZE as c_uint)
                    == SUCCESS
        };
        if !told {
            return None;
        }
        // SAFETY: the library wrote a string that ends with NUL.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Some(text.to_string_lossy().into_owned())
    }

    fn listing(&self) -> Result<Listing, String> {
        let count = self.get(self.nvmlDeviceGetCount_v2)?;
        let uuids = (0..count).map(|index| self.uuid(index).unwrap_or_default());
        Ok(Listing {
            uuids: uuids.collect(),
            cuda_version: self
                .nvmlSystemGetCudaDriverVersion_v2
                .and_then(|ask| self.get(ask).ok()),
        })
    }
}

/// Asks the library for the devices.
pub(super) fn list() -> Result<Listing, Unlisted> {
    let nvml = Nvml::open().map_err(Unlisted::NoAnswer)?;
    // SAFETY: it may be initialised several times; each time is shut down once.
    let code = unsafe { (nvml.nvmlInit_v2)() };
    match code {
        SUCCESS => {}
        NO_PERMISSION => return Err(Unlisted::NoAnswer(nvml.error(code))),
        _ => return Err(Unlisted::Broken(nvml.error(code))),
    }
    let listing = nvml.listing();
    // SAFETY: initialised above. A failure changes nothing for us.
    let _ = unsafe { (nvml.nvmlShutdown)() };
    listing.map_err(Unlisted::NoAnswer)
}
