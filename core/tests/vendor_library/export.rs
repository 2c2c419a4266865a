//! What exporting a vendor adds to it.

use std::ffi::{CStr, c_char};
use std::mem::size_of;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, OnceLock};

use flagos_core::descriptions::{NeededLibrary, Variable};
use flagos_core::env::HostSettings;
use flagos_core::runtime::{DeviceProperties, Event, MemoryInfo, Stream, Vendor};
use flagos_core::vendors::host::HostVendor;
use flagos_core::vendors::library::*;
use flagos_core::vendors::{Description, Serving};
use flagos_core::{Error, ErrorKind, Result};
use flagos_vendor_kit::export::{Export, Table, entry};

/// A vendor that fails in many ways, with a description that has everything.
struct Failing {
    host: HostVendor,
}

impl Export for Failing {
    fn description() -> &'static Description {
        static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| Description {
            name: "failing".into(),
            version: "1.2 β".into(),
            aliases: vec!["fails".into(), "f2".into()],
            variables: vec![Variable {
                name: "FAILS".into(),
                text: "What fails.".into(),
            }],
            libraries: vec![
                NeededLibrary {
                    soname: "libfail.so".into(),
                    text: "failing".into(),
                    required: true,
                },
                NeededLibrary {
                    soname: "liblog.so".into(),
                    text: "telling".into(),
                    required: false,
                },
            ],
            device_lost: vec!["ILLEGAL".into(), "LOST".into()],
            collective_engine: Some("shm".into()),
            triton_backend: Some("fails".into()),
            flaggems_vendor: Some("fail".into()),
            serving: Serving::Torch("cpu".into()),
            dlpack_device_type: 12,
        });
        &DESCRIPTION
    }
    fn capabilities() -> u64 {
        FLAGOS_VENDOR_NATIVE_HANDLES
    }
    fn probe() -> Result<usize, String> {
        Err("the driver is too old".into())
    }
    fn open(pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
        let host = HostVendor::new(&HostSettings::default(), pending);
        Ok(Arc::new(Self { host }))
    }
}

impl Vendor for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }
    fn device_count(&self) -> usize {
        1
    }
    fn properties(&self, device: usize) -> Result<DeviceProperties> {
        let mut told = self.host.properties(device)?;
        // The last letter that fits has two bytes, and does not fit.
        told.name = format!("{}ä", "n".repeat(254));
        Ok(told)
    }
    fn memory(&self, _: usize) -> Result<MemoryInfo> {
        panic!("there is no memory");
    }
    fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        match nbytes {
            1 => Err(Error::out_of_memory("alloc", "full")),
            2 => Err(Error::unsupported("alloc", "no")),
            3 => Err(Error::device("alloc", "queue 7")),
            4 => Err(Error::device("alloc", "ILLEGAL address")),
            5 => Err(Error::config("FAILS", "wrong\0text")),
            6 => Err(Error::forked("alloc")),
            _ => self.host.alloc(device, nbytes),
        }
    }
    unsafe fn free(&self, device: usize, address: NonNull<u8>, nbytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.host.free(device, address, nbytes) };
    }
    fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        self.host.pinned_alloc(nbytes)
    }
    unsafe fn pinned_free(&self, address: NonNull<u8>, nbytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.host.pinned_free(address, nbytes) };
    }
    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        self.host.default_stream(device)
    }
    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        self.host.stream(device, priority)
    }
    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        self.host.event(device, timing)
    }
    fn device_sync(&self, device: usize) -> Result<()> {
        self.host.device_sync(device)
    }
    fn quiesce(&self, device: usize) -> Result<()> {
        self.host.quiesce(device)
    }
    fn in_stream_work(&self) -> bool {
        panic!("it does not know");
    }
    fn pending(&self) -> &AtomicU64 {
        self.host.pending()
    }
}

/// What `flagos_vendor` of a library is.
unsafe extern "C" fn failing(
    host: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosVendor {
    static TABLE: OnceLock<Table> = OnceLock::new();
    // SAFETY: as the caller says.
    unsafe { entry::<Failing>(&TABLE, host, reason) }
}

fn adopted() -> &'static Library {
    // SAFETY: an exported vendor keeps to the header.
    unsafe { Library::adopt("exported", Some(failing), None) }.expect("it is taken")
}

fn opened() -> Arc<dyn Vendor> {
    open(adopted(), Box::leak(Box::default())).expect("it opens")
}

#[test]
fn a_description_arrives_whole() {
    let library = adopted();
    assert_eq!(library.description(), Failing::description());
    assert!(library.can(FLAGOS_VENDOR_TELLS_MEMORY) && library.can(FLAGOS_VENDOR_NATIVE_HANDLES));
    assert!(!library.can(FLAGOS_VENDOR_HOST_COMPUTES));
    let error = library.probe().expect_err("it cannot be used");
    assert!(error.message().contains("the driver is too old"), "{error}");
}

#[test]
fn errors_keep_their_kind_and_their_text() {
    let vendor = opened();
    for (nbytes, kind, text) in [
        (1, ErrorKind::OutOfMemory, "full"),
        (2, ErrorKind::Unsupported, "no"),
        (3, ErrorKind::Device, "queue 7"),
        (4, ErrorKind::Device, "restart the process"),
        (5, ErrorKind::Config, "wrong\\u{0}text"),
        (6, ErrorKind::Device, "forked child"),
    ] {
        let error = vendor.alloc(0, nbytes).expect_err("refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        let lost = error.to_string().contains("restart the process");
        assert_eq!(lost, nbytes == 4, "{error}");
    }
}

#[test]
fn a_panic_stays_in_the_library() {
    let vendor = opened();
    let error = vendor.memory(0).expect_err("it panics");
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.message().contains("there is no memory"), "{error}");
    assert!(!vendor.in_stream_work());
}

#[test]
fn a_name_is_cut_between_letters() {
    let told = opened().properties(0).expect("it is described");
    assert_eq!(told.name, "n".repeat(254));
}

#[test]
fn a_stream_without_a_handle_has_none() {
    let stream = opened().stream(0, 0).expect("a stream");
    assert_eq!(stream.native_handle(), None);
}

#[test]
fn the_default_stream_has_one_handle() {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| Table::new::<Failing>().expect("texts without NUL"));
    let table = table.raw();
    let options = FlagosVendorOptions {
        struct_size: size_of::<FlagosVendorOptions>(),
        pending: null_mut(),
        reserved: [null(); 8],
    };
    let (mut instance, mut handles) = (null_mut(), [null_mut(); 2]);
    // SAFETY: valid options and outputs, and an instance that is closed at the end alone.
    unsafe {
        assert_eq!((table.open.expect("there"))(&options, &mut instance), 0);
        for handle in &mut handles {
            assert_eq!(
                (table.stream_default.expect("there"))(instance, 0, handle),
                0
            );
        }
        assert!(!handles[0].is_null() && handles[0] == handles[1]);
        let code = (table.stream_default.expect("there"))(instance, -1, &mut handles[0]);
        assert_eq!(code, FLAGOS_VENDOR_INVALID_ARGUMENT);
        let code = (table.memory_free.expect("there"))(instance, 0, null_mut(), 1);
        assert_eq!(code, FLAGOS_VENDOR_INVALID_ARGUMENT);
        let text = CStr::from_ptr((table.last_error.expect("there"))());
        assert!(text.to_str().expect("UTF-8").contains("NULL"));
        (table.close.expect("there"))(instance);
    }
}

#[test]
fn a_host_of_other_versions_is_declined() {
    let host = FlagosVendorHost {
        struct_size: size_of::<FlagosVendorHost>(),
        oldest_major: FLAGOS_VENDOR_MAJOR + 1,
        newest_major: FLAGOS_VENDOR_MAJOR + 2,
        newest_minor: 0,
        reserved_word: 0,
        log: None,
        reserved: [null(); 8],
    };
    let small = FlagosVendorHost {
        struct_size: 8,
        ..host
    };
    for (host, why) in [
        (&raw const host, "does not take"),
        (&raw const small, "does not tell"),
        (null(), "does not tell"),
    ] {
        let mut reason = null();
        // SAFETY: NULL or a struct of at least its size, and a valid output.
        unsafe {
            assert!(failing(host, &mut reason).is_null());
            let reason = CStr::from_ptr(reason).to_str().expect("UTF-8");
            assert!(reason.contains(why), "{reason}");
            assert!(failing(host, null_mut()).is_null(), "no reason is wanted");
        }
    }
}
