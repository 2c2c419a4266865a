//! What this vendor takes for granted of MACA's runtime on little evidence: functions, numbers and structures that one
//! program shows (grade B), or that are taken to be as CUDA's (grade C). The vendor uses them only where nothing better
//! known does the same. Each is tried out here, which `flagos vendor check metax` does first, in a process of its own.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use flagos_core::error::{Error, ErrorKind};
use flagos_core::runtime::Vendor as _;
use flagos_vendor_kit::driver::DriverDevice as _;
use flagos_vendor_kit::export::Declaration;
use flagos_vendor_kit::{call, call_newer};

use super::api::{
    Api, EVENT_DEFAULT, EVENT_DISABLE_TIMING, Handle, IpcHandle, POINTER_DEVICE_ADDRESS,
    STREAM_NON_BLOCKING, SUCCESS, WAVE, attribute, kind,
};
use super::device::Device;
use super::error::INVALID_VALUE;
use super::properties::{attribute as ask, name};
use super::vendor::MetaxVendor;

/// Why nothing is shown.
enum Wrong {
    /// The library lacks the function, which the vendor then does without.
    Lacking(String),
    Otherwise(String),
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::Lacking(error.to_string()),
            _ => Self::Otherwise(error.to_string()),
        }
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Self::Otherwise(what)
    }
}

type Shown = Result<String, Wrong>;

/// Everything that is inferred, in the order in which it is tried.
pub(super) const DECLARATIONS: &[Declaration] = &[
    Declaration {
        name: "mcDeviceGetName",
        grade: 'B',
        run: || tried(device_name),
    },
    Declaration {
        name: "mcDeviceGetAttribute",
        grade: 'B',
        run: || tried(attributes),
    },
    Declaration {
        name: "mcDeviceGetStreamPriorityRange",
        grade: 'B',
        run: || tried(priorities),
    },
    Declaration {
        name: "mcStreamIsCapturing",
        grade: 'B',
        run: || tried(capturing),
    },
    Declaration {
        name: "mcStreamGetDevice",
        grade: 'C',
        run: || tried(stream_device),
    },
    Declaration {
        name: "mcPointerGetAttribute",
        grade: 'C',
        run: || tried(pointer),
    },
    Declaration {
        name: "mcIpcMemHandle_t",
        grade: 'C',
        run: || tried(ipc_handle),
    },
    Declaration {
        name: "mcMemcpyDefault",
        grade: 'C',
        run: || tried(default_copy),
    },
    Declaration {
        name: "mcEventDisableTiming",
        grade: 'C',
        run: || tried(no_timing),
    },
];

/// What a try shows on the first device, which is current. Every try has a stream of its own.
fn tried(show: impl FnOnce(&Try) -> Shown) -> Result<String, String> {
    found(on_first_device(show))
}

fn found(shown: Shown) -> Result<String, String> {
    match shown {
        Ok(shown) => Ok(shown),
        Err(Wrong::Lacking(what)) => Ok(format!("not used: {what}")),
        Err(Wrong::Otherwise(what)) => Err(what),
    }
}

fn on_first_device(show: impl FnOnce(&Try) -> Shown) -> Shown {
    let vendor = MetaxVendor::new(Box::leak(Box::default()))?;
    let device = Arc::clone(&vendor.devices[0]);
    let stream = vendor.stream(0, 0)?;
    let handle = stream.native_handle().unwrap_or_default();
    let _entered = device.enter("declaration")?;
    show(&Try {
        vendor: &vendor,
        device: &device,
        api: device.api,
        stream: handle,
    })
}

struct Try<'t> {
    vendor: &'t MetaxVendor,
    device: &'t Device,
    api: &'static Api,
    stream: Handle,
}

impl Try<'_> {
    /// Device memory with this many bytes, given back afterwards.
    fn with_memory(&self, nbytes: usize, show: impl FnOnce(NonNull<u8>) -> Shown) -> Shown {
        let memory = self.vendor.alloc(self.device.index, nbytes)?;
        let shown = show(memory);
        // SAFETY: allocated above; every try waits for what it queues.
        unsafe { self.vendor.free(self.device.index, memory, nbytes) };
        shown
    }
}

fn ensure(condition: bool, what: String) -> Result<(), String> {
    condition.then_some(()).ok_or(what)
}

fn device_name(on: &Try<'_>) -> Shown {
    let name = name(on.api, on.device.raw())?;
    let readable = !name.is_empty() && name.len() < 128 && !name.contains(char::is_control);
    ensure(
        readable,
        format!("it gave {name:?}, which is no product name"),
    )?;
    Ok(format!("the device is {name}"))
}

fn attributes(on: &Try<'_>) -> Shown {
    let mut shown = Vec::new();
    for (what, number, plausible) in [
        (
            "threads of a block",
            attribute::MAX_THREADS_PER_BLOCK,
            256..=4096,
        ),
        ("threads in step", attribute::WAVE_SIZE, 32..=WAVE),
        ("multiprocessors", attribute::MULTIPROCESSOR_COUNT, 1..=2048),
        ("major capability", attribute::CAPABILITY_MAJOR, 1..=99),
        ("minor capability", attribute::CAPABILITY_MINOR, 0..=99),
    ] {
        let value = ask(on.api, number, on.device.raw())?;
        ensure(
            plausible.contains(&value),
            format!(
                "attribute {number} ({what}) is {value}, and {plausible:?} is expected: the numbering differs"
            ),
        )?;
        shown.push(format!("{what} {value}"));
    }
    Ok(shown.join(", "))
}

fn priorities(on: &Try<'_>) -> Shown {
    let (mut least, mut greatest) = (i32::MAX, i32::MIN);
    // SAFETY: valid outputs.
    unsafe {
        call_newer!(
            on.api,
            mcDeviceGetStreamPriorityRange(&mut least, &mut greatest)
        )
    }?;
    let ordered = greatest <= least && (-100..=100).contains(&greatest) && least <= 100;
    ensure(
        ordered,
        format!("least {least} and greatest {greatest}: a lower number is to be more urgent"),
    )?;
    let mut stream = null_mut();
    // SAFETY: a valid output; the stream is new and unused.
    unsafe {
        call!(
            on.api,
            mcStreamCreateWithPriority(&mut stream, STREAM_NON_BLOCKING, greatest)
        )?;
        call!(on.api, mcStreamDestroy(stream))?;
    }
    Ok(format!("from {greatest} (urgent) to {least}"))
}

fn capturing(on: &Try<'_>) -> Shown {
    let mut status = [-1, -1];
    // SAFETY: a live stream, and an output with room behind it.
    unsafe { call_newer!(on.api, mcStreamIsCapturing(on.stream, status.as_mut_ptr())) }?;
    ensure(
        status == [0, -1],
        format!("it wrote {status:?} for a stream that nobody captures, and 0 is expected"),
    )?;
    Ok("a stream that nobody captures has the status 0".into())
}

fn stream_device(on: &Try<'_>) -> Shown {
    let mut device = [-1, -1];
    // SAFETY: a live stream, and an output with room behind it.
    unsafe { call_newer!(on.api, mcStreamGetDevice(on.stream, device.as_mut_ptr())) }?;
    ensure(
        device == [on.device.raw(), -1],
        format!(
            "it wrote {device:?} for a stream of device {}",
            on.device.index
        ),
    )?;
    Ok("a stream tells its device".into())
}

fn pointer(on: &Try<'_>) -> Shown {
    on.with_memory(512, |memory| {
        let mut found = [0_usize, 0];
        // SAFETY: an output with room behind it; addresses are only looked up, here and below.
        unsafe {
            call_newer!(
                on.api,
                mcPointerGetAttribute(
                    found.as_mut_ptr().cast(),
                    POINTER_DEVICE_ADDRESS,
                    memory.as_ptr().cast()
                )
            )
        }?;
        let address = memory.as_ptr() as usize;
        ensure(
            found == [address, 0],
            format!("it wrote {found:#x?} for memory at {address:#x}"),
        )?;
        let ordinary = Box::new(0_u8);
        let asked = (&raw const *ordinary).cast_mut().cast();
        let code = on.api.mcPointerGetAttribute.map(|ask| {
            // SAFETY: as above.
            unsafe { ask(found.as_mut_ptr().cast(), POINTER_DEVICE_ADDRESS, asked) }
        });
        on.api.forget_failure();
        ensure(
            matches!(code, Some(SUCCESS | INVALID_VALUE)),
            format!("it answers {code:?} for ordinary memory, and {INVALID_VALUE} is expected"),
        )?;
        Ok("device memory has its own address".into())
    })
}

fn ipc_handle(on: &Try<'_>) -> Shown {
    /// Far more than any handle.
    const ROOM: usize = 1024;
    on.with_memory(2 << 20, |memory| {
        let mut written = 0;
        // Two fillings, because a handle may have a byte of either.
        for filling in [0x5a_u8, 0xa5] {
            let mut room = [filling; ROOM];
            // SAFETY: an output with much room, and the beginning of a live allocation.
            unsafe {
                call_newer!(
                    on.api,
                    mcIpcGetMemHandle(
                        room.as_mut_ptr().cast::<IpcHandle>(),
                        memory.as_ptr().cast()
                    )
                )
            }?;
            let end = room.iter().rposition(|byte| *byte != filling);
            written = end.map_or(0, |end| end + 1).max(written);
        }
        let expected = IpcHandle::BYTES;
        ensure(
            (1..=expected).contains(&written),
            format!("a handle has {written} bytes, and {expected} are expected"),
        )?;
        Ok(format!("a handle ends within {expected} bytes"))
    })
}

fn default_copy(on: &Try<'_>) -> Shown {
    const NBYTES: usize = 4096;
    let from: Vec<u8> = (0..NBYTES).map(|at| (at * 7 % 251) as u8).collect();
    let mut to = vec![0_u8; NBYTES];
    on.with_memory(NBYTES, |memory| {
        let there: *mut c_void = memory.as_ptr().cast();
        // SAFETY: all ranges live until the stream has been waited for.
        unsafe {
            call!(
                on.api,
                mcMemcpyAsync(
                    there,
                    from.as_ptr().cast(),
                    NBYTES,
                    kind::DEFAULT,
                    on.stream
                )
            )?;
            call!(
                on.api,
                mcMemcpyAsync(
                    to.as_mut_ptr().cast(),
                    there,
                    NBYTES,
                    kind::DEFAULT,
                    on.stream
                )
            )?;
            call!(on.api, mcStreamSynchronize(on.stream))?;
        }
        ensure(
            from == to,
            "bytes differ after a copy to the device and back, of the kind 4".into(),
        )?;
        Ok("the runtime finds out where memory lies".into())
    })
}

fn no_timing(on: &Try<'_>) -> Shown {
    let timed = |flags| {
        let [mut start, mut end] = [null_mut(); 2];
        let mut elapsed = 0.0;
        // SAFETY: valid outputs; the events are waited for, and used no more.
        unsafe {
            call!(on.api, mcEventCreateWithFlags(&mut start, flags))?;
            call!(on.api, mcEventCreateWithFlags(&mut end, flags))?;
            for event in [start, end] {
                call!(on.api, mcEventRecord(event, on.stream))?;
                call!(on.api, mcEventSynchronize(event))?;
            }
            let code = (on.api.mcEventElapsedTime)(&mut elapsed, start, end);
            on.api.forget_failure();
            for event in [start, end] {
                call!(on.api, mcEventDestroy(event))?;
            }
            Ok::<_, Wrong>(code)
        }
    };
    let (with, without) = (timed(EVENT_DEFAULT)?, timed(EVENT_DISABLE_TIMING)?);
    ensure(
        with == SUCCESS,
        format!("events of the flags 0 have no time: {with}"),
    )?;
    ensure(
        without != SUCCESS,
        "events of the flag 2 have a time, so that it is another flag".into(),
    )?;
    Ok("events of the flag 2 have no time, those of 0 have".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::missing;

    #[test]
    fn what_the_library_lacks_is_no_finding() {
        let lacking = found(Err(missing("mcStreamGetDevice").into()));
        let says = "not used: mcStreamGetDevice: libmcruntime.so has no mcStreamGetDevice";
        assert!(lacking.is_ok_and(|text| text.starts_with(says)));
        let refused = Error::device("mcStreamGetDevice", "mcErrorUnknown (999)");
        assert!(found(Err(refused.into())).is_err());
        assert_eq!(
            found(Err("5 is expected".to_owned().into())),
            Err("5 is expected".into())
        );
    }
}
