//! Launches of kernels that another library loaded, or the vendor.
//!
//! The kernel `report` writes its launch to the address in its first parameter: grid, block, dynamic shared
//! memory and its other parameters, each as 8 bytes.

use std::ffi::{CStr, c_int, c_uint};
use std::ptr::{null, null_mut};

use flagos_core::ErrorKind;
use flagos_core::abi;
use flagos_core::kernels::{Launch, LaunchSpec, Parameter};
use flagos_core::runtime::Vendor;
use flagos_core::runtime::launch::{ParameterType, Shape, TensorMap};

use crate::driver::driver;
use crate::{Memory, open, open_exported};
use flagos_vendor_kit::conformance::Pinned;

const REPORT: &CStr = c"
.version 6.0
.target sm_70
.address_size 64
.visible .entry report(.param .u64 out, .param .u8 a, .param .u16 b, .param .u32 c, .param .u64 d)
{
    .reg .u32 %r<10>;
    .reg .u64 %w<13>;
    ld.param.u64 %w0, [out];
    cvta.to.global.u64 %w0, %w0;
    mov.u32 %r0, %nctaid.x;
    mov.u32 %r1, %nctaid.y;
    mov.u32 %r2, %nctaid.z;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ntid.y;
    mov.u32 %r5, %ntid.z;
    mov.u32 %r6, %dynamic_smem_size;
    ld.param.u8 %r7, [a];
    ld.param.u16 %r8, [b];
    ld.param.u32 %r9, [c];
    ld.param.u64 %w11, [d];
    cvt.u64.u32 %w1, %r0;
    cvt.u64.u32 %w2, %r1;
    cvt.u64.u32 %w3, %r2;
    cvt.u64.u32 %w4, %r3;
    cvt.u64.u32 %w5, %r4;
    cvt.u64.u32 %w6, %r5;
    cvt.u64.u32 %w7, %r6;
    cvt.u64.u32 %w8, %r7;
    cvt.u64.u32 %w9, %r8;
    cvt.u64.u32 %w10, %r9;
    st.global.u64 [%w0], %w1;
    st.global.u64 [%w0+8], %w2;
    st.global.u64 [%w0+16], %w3;
    st.global.u64 [%w0+24], %w4;
    st.global.u64 [%w0+32], %w5;
    st.global.u64 [%w0+40], %w6;
    st.global.u64 [%w0+48], %w7;
    st.global.u64 [%w0+56], %w8;
    st.global.u64 [%w0+64], %w9;
    st.global.u64 [%w0+72], %w10;
    st.global.u64 [%w0+80], %w11;
    ret;
}
";
const WORDS: usize = 11;
const NBYTES: usize = WORDS * 8;

/// The parameters of `report`: the output, and four numbers; the last is an address too.
const PARAMETERS: [Parameter; 5] = [
    Parameter::Pointer {
        index: 1,
        offset: 0,
    },
    Parameter::Constant {
        size: 1,
        value: u64::MAX,
    },
    Parameter::Constant {
        size: 2,
        value: 40_000,
    },
    Parameter::Constant {
        size: 4,
        value: (-2_i64) as u64,
    },
    Parameter::Pointer {
        index: 0,
        offset: 24,
    },
];

const SHAPE: Shape = Shape {
    block: [32, 2, 1],
    cluster: [1; 3],
    shared_bytes: 1024,
    cooperative: false,
    pdl: false,
};

/// Their types.
const TYPES: [ParameterType; 5] = [
    ParameterType::Word(8),
    ParameterType::Word(1),
    ParameterType::Word(2),
    ParameterType::Word(4),
    ParameterType::Word(8),
];

fn spec(function: u64) -> LaunchSpec<'static> {
    LaunchSpec {
        function,
        grid: [3, 2, 1],
        shape: SHAPE,
        parameters: &PARAMETERS,
    }
}

/// Runs a test over the vendor, and over the vendor exported as a table.
fn in_both_forms(test: impl Fn(&dyn Vendor)) {
    let Some(cuda) = open() else { return };
    test(&*cuda.vendor);
    test(&*open_exported());
}

/// The function `report`, loaded in the context of device 0, which stays current.
fn report(vendor: &dyn Vendor) -> u64 {
    drop(Memory::new(vendor, 0, NBYTES));
    driver().load(REPORT, c"report") as u64
}

/// A launch of `report`.
pub fn ready(vendor: &dyn Vendor) -> Launch {
    // SAFETY: the kernel of these parameters, in the context that is current.
    unsafe {
        Launch::new(
            vendor.launcher().expect("it launches"),
            &spec(report(vendor)),
        )
    }
    .expect("a launch")
}

/// The values that a kernel wrote to device memory, read behind the work queued on a stream.
fn read(
    vendor: &dyn Vendor,
    memory: &Memory<'_>,
    stream: &dyn flagos_core::runtime::Stream,
) -> [u64; WORDS] {
    let host = Pinned::new(vendor, NBYTES).expect("pinned memory");
    crate::copy(stream, host.address(), memory.address(), NBYTES);
    stream.sync().expect("everything ran");
    // SAFETY: written by the copy that was waited for, and aligned as every allocation is.
    unsafe { host.address().cast::<[u64; WORDS]>().read() }
}

#[test]
fn a_kernel_gets_what_its_launch_was_made_of() {
    in_both_forms(|vendor| {
        let launch = ready(vendor);
        let stream = vendor.stream(0, 0).expect("a stream");
        let handle = stream.native_handle().expect("a CUstream") as u64;
        let memories = [
            Memory::new(vendor, 0, NBYTES),
            Memory::new(vendor, 0, NBYTES),
        ];
        for round in 0..3_u64 {
            for memory in &memories {
                let pointers = [round * 1000, memory.address() as u64, 0];
                // SAFETY: a live stream, and memory for the report.
                unsafe { launch.run(handle, &pointers) }.expect("queued");
            }
            for memory in &memories {
                let words = read(vendor, memory, &*stream);
                let expected = [
                    3,
                    2,
                    1,
                    32,
                    2,
                    1,
                    1024,
                    0xff,
                    40_000,
                    0xffff_fffe,
                    round * 1000 + 24,
                ];
                assert_eq!(words, expected);
            }
        }
    });
}

#[test]
fn functions_are_loaded_from_images() {
    let Some(cuda) = open() else { return };
    let vendor = &*cuda.vendor;
    let launcher = vendor.launcher().expect("it launches");
    let memory = Memory::new(vendor, 0, NBYTES);
    let stream = vendor.stream(0, 0).expect("a stream");
    let handle = stream.native_handle().expect("a CUstream") as u64;
    // More shared memory than a function may have without being allowed to.
    let shared_bytes = 64 << 10;
    let function = launcher
        .load(0, REPORT.to_bytes(), c"report", shared_bytes)
        .expect("loaded");
    // SAFETY: the function of these parameters, in the context that is current.
    let launch = unsafe { Launch::new(launcher, &spec(function)) }.expect("a launch");
    // SAFETY: a live stream, and memory for the report.
    unsafe { launch.run(handle, &[0, memory.address() as u64]) }.expect("queued");
    assert_eq!(read(vendor, &memory, &*stream)[..3], [3, 2, 1]);

    let missing = launcher.load(0, REPORT.to_bytes(), c"repor", 0);
    let error = missing.expect_err("no such function").to_string();
    assert!(error.contains("no kernel `repor`"), "{error}");
    for image in [&b""[..], b"neither PTX nor a cubin"] {
        assert!(launcher.load(0, image, c"report", 0).is_err());
    }
    // On a thread without a context, the device's own becomes current.
    let context = driver().current();
    driver().make_current(null_mut());
    launcher
        .load(0, REPORT.to_bytes(), c"report", 0)
        .expect("loaded");
    assert_eq!(driver().current(), context);
    driver().make_current(null_mut());
    // SAFETY: a function that was loaded above.
    unsafe { Launch::new(launcher, &spec(function)) }.expect("its context is known");
    driver().make_current(null_mut());
    assert!(launcher.load(99, REPORT.to_bytes(), c"report", 0).is_err());
    driver().make_current(context);

    let exported = open_exported();
    let refused =
        exported
            .launcher()
            .expect("it launches")
            .load(0, REPORT.to_bytes(), c"report", 0);
    assert_eq!(
        refused.expect_err("not in the table").kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn another_grid_is_reported_as_another() {
    in_both_forms(|vendor| {
        let launcher = vendor.launcher().expect("it launches");
        // SAFETY: the kernel of these parameters, in the current context.
        let kernel = unsafe { launcher.kernel(report(vendor), &SHAPE, &TYPES) }.expect("a kernel");
        let stream = vendor.stream(0, 0).expect("a stream");
        let handle = stream.native_handle().expect("a CUstream") as u64;
        let memory = Memory::new(vendor, 0, NBYTES);
        for grid in [[1, 1, 1], [70_000, 1, 1], [2, 3, 4]] {
            let words = [memory.address() as u64, 1, 2, 3, 4];
            // SAFETY: a live stream, and memory for the report.
            unsafe { kernel.launch(handle, grid, &words) }.expect("queued");
            let got = read(vendor, &memory, &*stream);
            assert_eq!(got[..3], grid.map(u64::from));
            assert_eq!(got[7..], [1, 2, 3, 4]);
            // SAFETY: refused before anything is queued.
            let error =
                unsafe { kernel.launch(handle, grid, &words[..4]) }.expect_err("one is missing");
            assert!(error.to_string().contains("4 parameters"), "{error}");
        }
        // SAFETY: the driver refuses a grid without blocks.
        let error = unsafe { kernel.launch(handle, [0, 1, 1], &[0; 5]) }.expect_err("no blocks");
        assert!(error.to_string().contains("cuLaunchKernelEx"), "{error}");
    });
}

#[test]
fn parameters_that_are_not_the_functions_are_refused() {
    in_both_forms(|vendor| {
        let function = report(vendor);
        let launcher = vendor.launcher().expect("it launches");
        let refused = |parameters: &[Parameter], says: &str| {
            let spec = LaunchSpec {
                parameters,
                ..spec(function)
            };
            // SAFETY: a function of the current context; the launch is not run.
            let error = unsafe { Launch::new(launcher, &spec) }.expect_err(says);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        };
        refused(&PARAMETERS[..4], "has 5 parameters, and 4 were given");
        let more: Vec<_> = PARAMETERS.into_iter().chain(PARAMETERS).collect();
        refused(&more, "has 5 parameters, and 10 were given");
        let mut other = PARAMETERS;
        other[2] = Parameter::Constant { size: 4, value: 7 };
        refused(
            &other,
            "parameter 2 of the function has 2 bytes, and 4 were given",
        );
        other.swap(1, 2);
        refused(&other, "parameter 1 of the function has 1 bytes");
        let zero = spec(0);
        // SAFETY: refused before it is used.
        assert!(unsafe { Launch::new(launcher, &zero) }.is_err());
        let map = TensorMap {
            data_type: 99,
            rank: 1,
            shape: [0; 5],
            strides: [0; 5],
            block: [0; 5],
            swizzle: 0,
            fills_with_nan: false,
        };
        other[0] = Parameter::TensorMap {
            index: 1,
            offset: 0,
            map,
        };
        refused(&other, "a tensor map of data type 99");
        let mut maps = [other[0]; 9];
        for parameter in &mut maps {
            let map = TensorMap {
                data_type: 7,
                ..map
            };
            *parameter = Parameter::TensorMap {
                index: 0,
                offset: 0,
                map,
            };
        }
        refused(&maps, "9 tensor maps");
    });
}

#[test]
fn only_memory_that_kernels_reach_has_a_device_address() {
    in_both_forms(|vendor| {
        let launcher = vendor.launcher().expect("it launches");
        let memory = Memory::new(vendor, 0, NBYTES);
        let pinned = Pinned::new(vendor, NBYTES).expect("pinned memory");
        for address in [memory.address() as u64 + 8, pinned.address() as u64] {
            assert_eq!(
                launcher.device_address(address).expect("asked"),
                Some(address)
            );
        }
        let ordinary = Box::new(7_u64);
        let address = std::ptr::from_ref(&*ordinary) as u64;
        assert_eq!(launcher.device_address(address).expect("asked"), None);
    });
}

#[test]
fn modules_of_the_vendor_have_kernels() {
    in_both_forms(|vendor| {
        for device in 0..vendor.device_count() {
            let module = vendor
                .load_module(device, REPORT.to_bytes())
                .expect("a module");
            let missing = module
                .kernel(c"repor", &SHAPE, &TYPES)
                .expect_err("no such kernel");
            assert_eq!(missing.kind(), ErrorKind::InvalidArgument);
            assert!(
                missing.to_string().contains("no kernel `repor`"),
                "{missing}"
            );
            let refused = module
                .kernel(c"report", &SHAPE, &TYPES[1..])
                .expect_err("a parameter is missing");
            assert!(
                refused
                    .to_string()
                    .contains("has 5 parameters, and 4 were given"),
                "{refused}"
            );
            let kernel = module.kernel(c"report", &SHAPE, &TYPES).expect("a kernel");
            drop(module);
            let memory = Memory::new(vendor, device, NBYTES);
            let stream = vendor.stream(device, 0).expect("a stream");
            let handle = stream.native_handle().expect("a CUstream") as u64;
            // Whatever is current on the thread.
            for current in [driver().current(), null_mut()] {
                driver().make_current(current);
                let words = [memory.address() as u64, 1, 2, 3, 4];
                // SAFETY: a live stream, and memory for the report.
                unsafe { kernel.launch(handle, [5, 1, 1], &words) }.expect("queued");
                assert!(current.is_null() || driver().current() == current);
                let expected = [5, 1, 1, 32, 2, 1, 1024, 1, 2, 3, 4];
                assert_eq!(read(vendor, &memory, &*stream), expected);
            }
        }
        let refused = vendor.load_module(0, b"").err().expect("an empty image");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let refused = vendor.load_module(vendor.device_count(), REPORT.to_bytes());
        assert_eq!(
            refused.err().map(|error| error.kind()),
            Some(ErrorKind::InvalidArgument)
        );
    });
}

#[test]
fn threads_without_a_context_launch_at_once() {
    in_both_forms(|vendor| {
        let launch = ready(vendor);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let launch = &launch;
                scope.spawn(move || {
                    assert!(driver().current().is_null(), "a new thread has none");
                    let stream = vendor.stream(0, 0).expect("a stream");
                    let handle = stream.native_handle().expect("a CUstream") as u64;
                    let memory = Memory::new(vendor, 0, NBYTES);
                    driver().make_current(null_mut());
                    for round in 0..100 {
                        let last = thread * 1000 + round;
                        // SAFETY: a live stream, and memory for the report.
                        unsafe { launch.run(handle, &[last, memory.address() as u64]) }
                            .expect("queued");
                        assert_eq!(read(vendor, &memory, &*stream)[10], last + 24);
                    }
                });
            }
        });
    });
}

#[test]
fn attributes_reach_the_driver() {
    in_both_forms(|vendor| {
        type Count = unsafe extern "C" fn() -> c_uint;
        type Get = unsafe extern "C" fn(c_uint, *mut c_int, *mut c_int);
        // SAFETY: the driver, which is open already.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }.expect("the driver");
        // SAFETY: functions of the simulated driver with these signatures.
        let simulated = unsafe {
            let count = library.get::<Count>("simulated_attributes\0");
            count.and_then(|count| Ok((count, library.get::<Get>("simulated_attribute\0")?)))
        };
        let Ok((count, get)) = simulated else {
            return crate::say("skipped: only the simulated driver tells attributes");
        };
        let function = report(vendor);
        let memory = Memory::new(vendor, 0, NBYTES);
        let given = |shape: Shape| {
            let spec = LaunchSpec {
                shape,
                grid: [32, 1, 1],
                ..spec(function)
            };
            // SAFETY: the kernel of these parameters, with memory for the report, on the default stream.
            unsafe {
                let launcher = vendor.launcher().expect("it launches");
                let launch = Launch::new(launcher, &spec).expect("a launch");
                launch
                    .run(0, &[0, memory.address() as u64])
                    .expect("queued");
            }
            // SAFETY: as many attributes as there are.
            let attributes = (0..unsafe { count() }).map(|index| unsafe {
                let (mut id, mut value) = (0, 0);
                get(index, &mut id, &mut value);
                (id, value)
            });
            attributes.collect::<Vec<_>>()
        };
        // The numbers of CUlaunchAttributeID in cuda.h.
        assert_eq!(given(SHAPE), []);
        assert_eq!(given(Shape { pdl: true, ..SHAPE }), [(6, 1)]);
        assert_eq!(
            given(Shape {
                cooperative: true,
                ..SHAPE
            }),
            [(2, 1)]
        );
        assert_eq!(
            given(Shape {
                cluster: [16, 1, 1],
                ..SHAPE
            }),
            [(4, 16), (5, 1)]
        );
    });
}

/// A launch of one block, of one thread, of no function.
pub const DESC: abi::FlagosLaunchDesc = abi::FlagosLaunchDesc {
    function: 0,
    grid: [1; 3],
    block: [1; 3],
    cluster: [1; 3],
    shared_bytes: 0,
    flags: 0,
    params: null(),
    num_params: 0,
};

/// The launches of the C table, over the vendor of the process.
pub fn by_the_c_table(vendor: &dyn Vendor) {
    let table = abi::api();
    let message = || {
        // SAFETY: never NULL, until the next failing call of this thread.
        unsafe { CStr::from_ptr((table.last_error)()) }
            .to_string_lossy()
            .into_owned()
    };
    let mut params =
        [(8, 1, 0), (1, -1, 5), (2, -1, 6), (4, -1, 7), (8, 0, 3)].map(|(size, pointer, value)| {
            abi::FlagosLaunchParam {
                size,
                pointer,
                value,
                map: std::ptr::null(),
            }
        });
    let mut desc = abi::FlagosLaunchDesc {
        function: report(vendor),
        params: params.as_ptr(),
        num_params: params.len(),
        ..DESC
    };
    let mut launch = null_mut();
    let memory = Memory::new(vendor, 0, NBYTES);
    let pointers = [100, memory.address() as u64];
    // SAFETY: what the table asks for, or what it says that it refuses.
    unsafe {
        let create = |desc: &abi::FlagosLaunchDesc, launch| (table.launch_create)(desc, launch);
        assert_eq!(create(&desc, &mut launch), abi::FLAGOS_OK, "{}", message());
        assert_eq!(
            (table.launch_run)(launch, 0, pointers.as_ptr(), 2),
            abi::FLAGOS_OK,
            "{}",
            message()
        );
        let stream = vendor.default_stream(0).expect("a stream");
        assert_eq!(
            read(vendor, &memory, &*stream),
            [1, 1, 1, 1, 1, 1, 0, 5, 6, 7, 103]
        );
        for status in [
            (table.launch_run)(launch, 0, pointers.as_ptr(), 1),
            (table.launch_run)(launch, 0, null(), 2),
            (table.launch_run)(null(), 0, pointers.as_ptr(), 2),
            (table.launch_create)(null(), &mut launch),
            create(&desc, null_mut()),
        ] {
            assert_eq!(status, abi::FLAGOS_INVALID_ARGUMENT);
        }
        (table.launch_free)(launch);
        (table.launch_free)(null_mut());
        desc.flags = 4;
        assert_eq!(create(&desc, &mut launch), abi::FLAGOS_INVALID_ARGUMENT);
        assert!(message().contains("unknown flags 0x4"), "{}", message());
        desc.flags = 0;
        desc.num_params = 4;
        assert_eq!(create(&desc, &mut launch), abi::FLAGOS_INVALID_ARGUMENT);
        assert!(message().contains("has 5 parameters"), "{}", message());
        desc.num_params = 5;
        for (size, pointer, says) in [
            (4, 1, "of 4 bytes"),
            (8, -2, "-1 means none"),
            (3, -1, "1, 2, 4"),
        ] {
            params[0] = abi::FlagosLaunchParam {
                size,
                pointer,
                value: 0,
                map: std::ptr::null(),
            };
            desc.params = params.as_ptr();
            assert_eq!(create(&desc, &mut launch), abi::FLAGOS_INVALID_ARGUMENT);
            assert!(message().contains(says), "{}", message());
        }
    }
}
