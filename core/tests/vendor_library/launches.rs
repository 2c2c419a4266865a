//! Launches through a table: what a vendor gets of what its user gave.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use flagos_core::env::HostSettings;
use flagos_core::runtime::launch::{Kernel, Launcher, Module, ParameterType, Shape, TensorMap};
use flagos_core::runtime::{DeviceProperties, Event, MemoryInfo, Stream, Vendor};
use flagos_core::vendors::host::HostVendor;
use flagos_core::vendors::library::*;
use flagos_core::vendors::{Description, Serving};
use flagos_core::{Error, ErrorKind, Result};
use flagos_vendor_kit::export::{Export, Table, entry};

/// What the vendor of this test was asked for, in order.
static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, PartialEq)]
enum Call {
    Load(usize, Vec<u8>),
    Kernel(CString, Shape, Vec<ParameterType>),
    External(u64, Shape, Vec<ParameterType>),
    Launch(u64, [u32; 3], Vec<u64>),
    DropKernel,
    DropModule,
}

fn told(call: Call) {
    CALLS.lock().expect("no panic").push(call);
}

/// The calls since the last look.
fn calls() -> Vec<Call> {
    std::mem::take(&mut *CALLS.lock().expect("no panic"))
}

/// A vendor that notes launches.
struct Noting(HostVendor);

struct NotingModule;

#[derive(Debug)]
struct NotingKernel;

impl Drop for NotingModule {
    fn drop(&mut self) {
        told(Call::DropModule);
    }
}

impl Drop for NotingKernel {
    fn drop(&mut self) {
        told(Call::DropKernel);
    }
}

impl Module for NotingModule {
    fn kernel(
        &self,
        name: &CStr,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>> {
        if name == c"missing" {
            return Err(Error::invalid_argument("kernel", "no kernel `missing`"));
        }
        told(Call::Kernel(name.into(), *shape, parameters.into()));
        Ok(Box::new(NotingKernel))
    }
}

impl Kernel for NotingKernel {
    unsafe fn launch(&self, stream: u64, grid: [u32; 3], words: &[u64]) -> Result<()> {
        told(Call::Launch(stream, grid, words.into()));
        match grid[2] {
            0 => Err(Error::device("launch", "no blocks")),
            _ => Ok(()),
        }
    }
}

impl Launcher for Noting {
    unsafe fn kernel(
        &self,
        function: u64,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>> {
        told(Call::External(function, *shape, parameters.into()));
        Ok(Box::new(NotingKernel))
    }
    fn device_address(&self, address: u64) -> Result<Option<u64>> {
        Ok((address % 2 == 0).then_some(address + 1))
    }
}

impl Vendor for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }
    fn device_count(&self) -> usize {
        self.0.device_count()
    }
    fn properties(&self, device: usize) -> Result<DeviceProperties> {
        self.0.properties(device)
    }
    fn memory(&self, device: usize) -> Result<MemoryInfo> {
        self.0.memory(device)
    }
    fn alloc(&self, device: usize, nbytes: usize) -> Result<std::ptr::NonNull<u8>> {
        self.0.alloc(device, nbytes)
    }
    unsafe fn free(&self, device: usize, address: std::ptr::NonNull<u8>, nbytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.free(device, address, nbytes) };
    }
    fn pinned_alloc(&self, nbytes: usize) -> Result<std::ptr::NonNull<u8>> {
        self.0.pinned_alloc(nbytes)
    }
    unsafe fn pinned_free(&self, address: std::ptr::NonNull<u8>, nbytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.pinned_free(address, nbytes) };
    }
    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        self.0.default_stream(device)
    }
    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        self.0.stream(device, priority)
    }
    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        self.0.event(device, timing)
    }
    fn device_sync(&self, device: usize) -> Result<()> {
        self.0.device_sync(device)
    }
    fn quiesce(&self, device: usize) -> Result<()> {
        self.0.quiesce(device)
    }
    fn pending(&self) -> &AtomicU64 {
        self.0.pending()
    }
    fn launcher(&self) -> Result<&dyn Launcher> {
        Ok(self)
    }
    fn load_module(&self, device: usize, image: &[u8]) -> Result<Box<dyn Module>> {
        told(Call::Load(device, image.into()));
        Ok(Box::new(NotingModule))
    }
}

/// The vendor as a library that launches, or one that says that it does not.
struct Exported<const LAUNCHES: bool>;

impl<const LAUNCHES: bool> Export for Exported<LAUNCHES> {
    fn description() -> &'static Description {
        static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| Description {
            name: "noting".into(),
            version: "1".into(),
            aliases: Vec::new(),
            variables: Vec::new(),
            libraries: Vec::new(),
            device_lost: Vec::new(),
            collective_engine: None,
            triton_backend: None,
            flaggems_vendor: None,
            serving: Serving::Torch("cpu".into()),
            dlpack_device_type: 12,
        });
        &DESCRIPTION
    }
    fn capabilities() -> u64 {
        FLAGOS_VENDOR_NATIVE_HANDLES | (u64::from(LAUNCHES) * FLAGOS_VENDOR_LAUNCHES)
    }
    fn probe() -> Result<usize, String> {
        Ok(2)
    }
    fn open(pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
        let settings = HostSettings {
            devices: Some(2),
            ..HostSettings::default()
        };
        Ok(Arc::new(Noting(HostVendor::new(&settings, pending))))
    }
}

unsafe extern "C" fn launching(
    host: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosVendor {
    static TABLE: OnceLock<Table> = OnceLock::new();
    // SAFETY: as the caller says.
    unsafe { entry::<Exported<true>>(&TABLE, host, reason) }
}

unsafe extern "C" fn not_launching(
    host: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosVendor {
    static TABLE: OnceLock<Table> = OnceLock::new();
    // SAFETY: as the caller says.
    unsafe { entry::<Exported<false>>(&TABLE, host, reason) }
}

fn opened(entry: FlagosVendorEntry) -> Arc<dyn Vendor> {
    // SAFETY: an exported vendor keeps to the header.
    let library = unsafe { Library::adopt("noting", entry, None) }.expect("it is taken");
    open(library, Box::leak(Box::default())).expect("it opens")
}

const MAP: TensorMap = TensorMap {
    data_type: 9,
    rank: 2,
    shape: [1, 2, 3, 4, 5],
    strides: [6, 7, 8, 9, 10],
    block: [11, 12, 13, 14, 15],
    swizzle: 3,
    fills_with_nan: true,
};

const SHAPE: Shape = Shape {
    block: [1, 2, 3],
    cluster: [4, 5, 6],
    shared_bytes: 7,
    cooperative: true,
    pdl: true,
};

const PARAMETERS: [ParameterType; 6] = [
    ParameterType::TensorMap(MAP),
    ParameterType::Word(1),
    ParameterType::Word(2),
    ParameterType::TensorMap(TensorMap { rank: 5, ..MAP }),
    ParameterType::Word(4),
    ParameterType::Word(8),
];

const WORDS: [u64; 6] = [1, 2, 3, 4, 5, u64::MAX];

#[test]
fn a_launch_arrives_as_it_was_made() {
    let vendor = opened(Some(launching));
    let module = vendor.load_module(1, b"image").expect("a module");
    let kernel = module.kernel(c"f", &SHAPE, &PARAMETERS);
    let kernel = kernel.expect("a kernel");
    let error = module.kernel(c"missing", &SHAPE, &[]).expect_err("none");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("no kernel `missing`"), "{error}");
    // The kernel keeps the module.
    drop(module);
    // SAFETY: nothing is launched.
    unsafe {
        kernel.launch(77, [8, 9, 10], &WORDS).expect("launched");
        let error = kernel
            .launch(77, [1; 3], &WORDS[1..])
            .expect_err("one is missing");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("5 parameters"), "{error}");
        let error = kernel.launch(0, [1, 1, 0], &WORDS).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Device);
    }
    drop(kernel);
    let plain = Shape::default();
    let launcher = vendor.launcher().expect("it launches");
    // SAFETY: nothing is launched.
    unsafe {
        let kernel = launcher.kernel(99, &plain, &[]).expect("a kernel");
        kernel.launch(0, [1; 3], &[]).expect("launched");
        let error = launcher.kernel(0, &plain, &[]).expect_err("no function");
        assert!(error.message().contains("NULL"), "{error}");
        let many = [ParameterType::Word(8); 513];
        let error = launcher.kernel(99, &plain, &many).expect_err("too many");
        assert!(error.message().contains("512"), "{error}");
        let odd = [ParameterType::Word(8), ParameterType::Word(3)];
        let error = launcher.kernel(99, &plain, &odd).expect_err("no such size");
        assert!(
            error.message().contains("parameter 1 has 3 bytes"),
            "{error}"
        );
    }
    assert_eq!(launcher.device_address(4).expect("asked"), Some(5));
    assert_eq!(launcher.device_address(5).expect("asked"), None);
    assert_eq!(
        calls(),
        [
            Call::Load(1, b"image".into()),
            Call::Kernel(c"f".into(), SHAPE, PARAMETERS.into()),
            Call::Launch(77, [8, 9, 10], WORDS.into()),
            Call::Launch(0, [1, 1, 0], WORDS.into()),
            Call::DropKernel,
            Call::DropModule,
            Call::External(99, plain, vec![]),
            Call::Launch(0, [1; 3], vec![]),
            Call::DropKernel,
        ]
    );
}

#[test]
fn a_library_that_does_not_launch_is_named() {
    let vendor = opened(Some(not_launching));
    for error in [
        vendor.launcher().err(),
        vendor.load_module(0, b"image").err(),
    ] {
        let error = error.expect("unsupported");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.message().contains("the vendor `noting` has no"),
            "{error}"
        );
    }
    let refused = vendor.load_module(2, b"image").err();
    let kind = refused.map(|error| error.kind());
    assert_eq!(
        kind,
        Some(ErrorKind::InvalidArgument),
        "there is no device 2"
    );
}

#[test]
fn launching_goes_with_handles() {
    unsafe extern "C" fn without(
        _: *const FlagosVendorHost,
        _: *mut *const c_char,
    ) -> *const FlagosVendor {
        let table: &'static Table =
            Box::leak(Box::new(Table::new::<Exported<true>>().expect("texts")));
        // SAFETY: a struct without owners.
        let mut raw = Box::new(unsafe { std::ptr::read(table.raw()) });
        raw.capabilities &= !FLAGOS_VENDOR_NATIVE_HANDLES;
        Box::leak(raw)
    }
    // SAFETY: what the table says is so.
    let error = unsafe { Library::adopt("noting", Some(without), None) }.expect_err("refused");
    let why = "FLAGOS_VENDOR_LAUNCHES without FLAGOS_VENDOR_NATIVE_HANDLES";
    assert!(error.message().contains(why), "{error}");
}

#[test]
fn options_that_cannot_be_are_refused() {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| Table::new::<Exported<true>>().expect("texts without NUL"));
    let table = table.raw();
    let external = table.kernel_external.expect("there");
    let function = std::ptr::dangling_mut();
    let given = FlagosVendorKernelOptions {
        struct_size: size_of::<FlagosVendorKernelOptions>(),
        block: [1; 3],
        cluster: [1; 3],
        shared_bytes: 0,
        flags: 0,
        parameters: null(),
        num_parameters: 0,
        reserved: [null(); 8],
    };
    let options = FlagosVendorOptions {
        struct_size: size_of::<FlagosVendorOptions>(),
        pending: null_mut(),
        reserved: [null(); 8],
    };
    let (mut instance, mut kernel) = (null_mut(), null_mut());
    // SAFETY: valid options and outputs, but for what is refused, and an instance that is closed at the end.
    unsafe {
        assert_eq!((table.open.expect("there"))(&options, &mut instance), 0);
        let refused = |given: *const _, kernel| external(instance, function, given, kernel);
        let code = refused(null(), &mut kernel);
        assert_eq!(code, FLAGOS_VENDOR_INVALID_ARGUMENT);
        let unknown = FlagosVendorKernelOptions { flags: 4, ..given };
        assert_eq!(refused(&unknown, &mut kernel), FLAGOS_VENDOR_UNSUPPORTED);
        for num_parameters in [1, 513] {
            let absent = FlagosVendorKernelOptions {
                num_parameters,
                ..given
            };
            let code = refused(&absent, &mut kernel);
            assert_eq!(code, FLAGOS_VENDOR_INVALID_ARGUMENT);
        }
        assert!(kernel.is_null());
        (table.close.expect("there"))(instance);
    }
}
