//! Kernels of the vendor's own modules. Images are of the machine: without a known one a test says so.

use std::ffi::CStr;

use flagos_core::ErrorKind;
use flagos_core::runtime::launch::{ParameterType, Shape};

use crate::{Memory, copy, open, pattern};

/// A program with the kernels `axpy(float* y, const float* x, float a, int n)` and `stop()`, which fails: of the simulated
/// runtime, and for a library that forwards to NVIDIA's, which takes PTX.
pub fn image(device_name: &str) -> Option<&'static [u8]> {
    const PTX: &str = include_str!("axpy.ptx");
    if device_name.starts_with("Simulated") {
        return Some(b"simulated-mcfatbin axpy stop");
    }
    device_name.contains("NVIDIA").then_some(PTX.as_bytes())
}

const AXPY: &CStr = c"axpy";
const N: usize = 1000;

fn parameters() -> [ParameterType; 4] {
    [8, 8, 4, 4].map(ParameterType::Word)
}

#[test]
fn a_kernel_of_a_module_computes() {
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    let name = vendor.properties(0).expect("it is described").name;
    let Some(image) = image(&name) else {
        return crate::say(&format!("skipped: no program for {name} is known here"));
    };
    let module = vendor.load_module(0, image).expect("it loads");
    let shape = Shape {
        block: [128, 1, 1],
        ..Shape::default()
    };
    let error = module
        .kernel(c"nothing", &shape, &[])
        .expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let kernel = module
        .kernel(AXPY, &shape, &parameters())
        .expect("a kernel");
    // The kernel keeps its module.
    drop(module);

    let [x, y] = [1, 2].map(|_| pattern(vendor, 4 * N, 1));
    let [there_x, there_y] = [1, 2].map(|_| Memory::new(vendor, 0, 4 * N));
    // SAFETY: of this size, aligned, and used by nobody else.
    let numbers = |host: *mut u8| unsafe { std::slice::from_raw_parts_mut(host.cast::<f32>(), N) };
    for (i, (x, y)) in numbers(x.address())
        .iter_mut()
        .zip(numbers(y.address()))
        .enumerate()
    {
        (*x, *y) = (i as f32, 1.0);
    }
    let stream = vendor.stream(0, 0).expect("a stream");
    copy(&*stream, there_x.address(), x.address(), 4 * N);
    copy(&*stream, there_y.address(), y.address(), 4 * N);
    let words = [
        there_y.address() as u64,
        there_x.address() as u64,
        u64::from(0.5_f32.to_bits()),
        N as u64,
    ];
    let handle = stream.native_handle().expect("a handle") as u64;
    // SAFETY: the kernel's parameters, and memory of this size.
    unsafe {
        kernel.launch(handle, [8, 1, 1], &words).expect("queued");
        let error = kernel
            .launch(handle, [8, 1, 1], &words[..3])
            .expect_err("too few");
        assert!(
            error
                .to_string()
                .contains("3 parameters were given to a kernel of 4"),
            "{error}"
        );
        let error = kernel
            .launch(handle, [0, 1, 1], &words)
            .expect_err("no blocks");
        assert!(
            error.to_string().contains("mcModuleLaunchKernel"),
            "{error}"
        );
    }
    copy(&*stream, y.address(), there_y.address(), 4 * N);
    stream.sync().expect("everything ran");
    let expected: Vec<f32> = (0..N).map(|i| 1.0 + 0.5 * i as f32).collect();
    assert_eq!(numbers(y.address()), expected);
}

#[test]
fn a_wrong_program_is_refused() {
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    for image in [&b""[..], b"no program"] {
        vendor.load_module(0, image).err().expect("it is refused");
    }
    vendor.device_sync(0).expect("nothing is left behind");
}

#[test]
fn addresses_that_kernels_reach_are_told() {
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    let launcher = vendor.launcher().expect("it launches");
    let memory = Memory::new(vendor, 0, 512);
    let address = memory.address() as u64;
    assert_eq!(
        launcher.device_address(address).expect("it is known"),
        Some(address)
    );
    let pinned = pattern(vendor, 512, 1);
    let address = pinned.address() as u64;
    assert_eq!(
        launcher.device_address(address).expect("it is known"),
        Some(address)
    );
    let ordinary = Box::new(1_u64);
    let address = std::ptr::from_ref(&*ordinary) as u64;
    let name = vendor.properties(0).expect("it is described").name;
    if name.starts_with("Simulated") {
        assert_eq!(launcher.device_address(address).expect("it is known"), None);
    }
}
