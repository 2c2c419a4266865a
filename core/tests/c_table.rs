//! The C table, used as adapters use it. The table belongs to the process, so every test runs the test of the
//! same name in `inside` below in a process of its own.

#![cfg(all(unix, not(loom)))]

use std::process::Command;

// A vendor of the build that this machine may lack.
use flagos_cuda as _;

/// Runs `inside::<name>` in a new process with these variables.
fn alone(name: &str, variables: &[(&str, &str)]) {
    let own = std::env::vars_os().filter(|(name, _)| {
        name.to_str()
            .is_some_and(|name| name.starts_with("FLAGOS_") || name == "XDG_CONFIG_HOME")
    });
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    own.for_each(|(name, _)| {
        command.env_remove(name);
    });
    let folder = tempfile::tempdir().expect("a folder without flagos.toml");
    let output = command
        .args([
            "--exact",
            &format!("inside::{name}"),
            "--ignored",
            "--nocapture",
        ])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        // The vendor `host` is the same on every machine.
        .env("FLAGOS_VENDOR", "host")
        .envs(variables.iter().copied())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let ran = text.contains("1 passed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && ran, "{name}:\n{text}\n{errors}");
}

macro_rules! alone {
    ($($name:ident($($variable:literal = $value:literal),*);)*) => {
        $(
            #[test]
            fn $name() {
                alone(stringify!($name), &[$(($variable, $value)),*]);
            }
        )*
    };
}

alone! {
    nothing_works_before_init();
    init_is_idempotent_and_describes_devices("FLAGOS_HOST_DEVICES" = "2", "FLAGOS_HOST_MEMORY" = "64M");
    init_can_be_tried_again("FLAGOS_VENDOR" = "cuda", "CUDA_VISIBLE_DEVICES" = "");
    wrong_configuration_is_a_status("FLAGOS_HOST_MEMORY" = "much");
    the_vendor_is_described();
    a_vendor_that_cannot_be_used_is_an_error_of_init("FLAGOS_VENDOR" = "cuda", "CUDA_VISIBLE_DEVICES" = "");
    unknown_variables_are_a_status("FLAGOS_HOST_MEMROY" = "1G");
    memory_is_counted("FLAGOS_HOST_MEMORY" = "64M");
    memory_is_known_by_its_address("FLAGOS_HOST_DEVICES" = "2");
    out_of_memory_has_a_table("FLAGOS_HOST_MEMORY" = "64M");
    streams_and_events_work();
    pinned_memory_is_known();
    failures_of_queued_work_arrive("FLAGOS_HOST_FAULT" = "copy=1");
    the_host_has_no_kernels();
    wrong_arguments_are_refused();
    blocked_operators_say_why("FLAGOS_OP_mm" = "cuda");
    a_forked_child_is_told();
    a_forked_child_knows_its_parents_addresses();
    a_child_forked_before_init_is_free();
}

mod inside {
    use std::ffi::{CStr, CString, c_char, c_void};
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicU64, Ordering};

    use flagos_core::abi::*;

    fn table() -> &'static FlagosApi {
        api()
    }

    fn message() -> String {
        // SAFETY: a NUL-terminated string until the next failing call of this thread.
        unsafe { CStr::from_ptr((table().last_error)()) }
            .to_string_lossy()
            .into_owned()
    }

    fn ok(status: i32) {
        assert_eq!(status, FLAGOS_OK, "{}", message());
    }

    fn refused(status: i32, wanted: i32, says: &str) {
        assert_eq!(status, wanted, "{}", message());
        assert!(
            message().contains(says),
            "`{says}` is missing in: {}",
            message()
        );
    }

    fn init() {
        ok((table().init)());
    }

    fn alloc(device: i32, nbytes: usize) -> (*mut c_void, *mut c_void) {
        let (mut data, mut block) = (null_mut(), null_mut());
        // SAFETY: valid outputs.
        ok(unsafe { (table().mem_alloc)(device, 0, nbytes, &mut data, &mut block) });
        (data, block)
    }

    fn alloc_at(device: i32, nbytes: usize) -> *mut c_void {
        let mut data = null_mut();
        // SAFETY: a valid output.
        ok(unsafe { (table().mem_alloc_at)(device, 0, nbytes, &mut data) });
        data
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn memory_is_known_by_its_address() {
        init();
        let table = table();
        let (first, second) = (alloc_at(0, 4096), alloc_at(1, 4096));
        assert_eq!(alloc_at(0, 0), null_mut());
        let counts = || [0, 1].map(|device| stats(device).allocation.all.current);
        assert_eq!(counts(), [1, 1]);
        ok((table.mem_record_stream_at)(second, 0));
        for other in [null_mut(), first.wrapping_byte_add(512)] {
            ok((table.mem_record_stream_at)(other, 0));
            assert_eq!((table.mem_free_at)(other), 0);
        }
        assert_eq!((table.mem_free_at)(first), 1);
        assert_eq!((table.mem_free_at)(first), 0);
        assert_eq!(counts(), [0, 1]);
        assert_eq!(alloc_at(0, 4096), first, "cached");
        let by_handle = alloc(0, 4096);
        assert_eq!((table.mem_free_at)(by_handle.0), 0, "named by its handle");
        (table.mem_free)(by_handle.1);
    }

    fn stats(device: i32) -> FlagosMemoryStats {
        let mut stats = FlagosMemoryStats::default();
        // SAFETY: a valid output.
        ok(unsafe { (table().mem_stats)(device, &mut stats) });
        stats
    }

    fn pending() -> u64 {
        // SAFETY: the address of an atomic that lives as long as the process.
        unsafe { AtomicU64::from_ptr((table().pending)().cast_mut()) }.load(Ordering::Acquire)
    }

    fn string(text: *mut std::ffi::c_char) -> String {
        // SAFETY: a string of the table, freed once.
        unsafe {
            let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
            (table().string_free)(text);
            owned
        }
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn nothing_works_before_init() {
        let table = table();
        let (mut data, mut block, mut number) = (null_mut(), null_mut(), 0);
        assert_eq!(
            (table.struct_size, table.abi_version),
            (size_of::<FlagosApi>(), 1)
        );
        // SAFETY: valid outputs.
        unsafe {
            let status = (table.mem_alloc)(0, 0, 1, &mut data, &mut block);
            refused(status, FLAGOS_NOT_INITIALIZED, "init");
            let status = (table.event_create)(0, 0, &mut data);
            refused(status, FLAGOS_NOT_INITIALIZED, "init");
            refused(
                (table.stream_create)(0, 0, &mut number),
                FLAGOS_NOT_INITIALIZED,
                "init",
            );
        }
        refused((table.device_sync)(0), FLAGOS_NOT_INITIALIZED, "init");
        (table.mem_free)(8 as *mut c_void);
        assert_eq!((table.mem_device_of)(null()), -1);
        assert_eq!((table.is_pinned)(null()), 0);
        assert_eq!(pending(), 0);
        let before = (table.pending)();
        assert_eq!((table.device_count)(), 1);
        init();
        assert_eq!((table.pending)(), before, "an adapter may keep the address");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn init_is_idempotent_and_describes_devices() {
        let table = table();
        assert_eq!((table.device_count)(), 2);
        let statuses = std::thread::scope(|scope| {
            let init = || scope.spawn(|| (table.init)());
            let threads: Vec<_> = (0..8).map(|_| init()).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        assert_eq!(statuses, [FLAGOS_OK; 8]);
        init();
        let mut out = std::mem::MaybeUninit::<FlagosDeviceProperties>::uninit();
        // SAFETY: a valid output, initialised when the status is OK; names end with NUL.
        unsafe {
            ok((table.device_properties)(1, out.as_mut_ptr()));
            let properties = out.assume_init_ref();
            assert_eq!(CStr::from_ptr(properties.vendor.as_ptr()), c"host");
            assert!(!CStr::from_ptr(properties.name.as_ptr()).is_empty());
            assert_eq!(properties.total_memory, 64 << 20);
            assert!(properties.multi_processor_count > 0);
            let status = (table.device_properties)(2, out.as_mut_ptr());
            refused(status, FLAGOS_INVALID_ARGUMENT, "FLAGOS_HOST_DEVICES");
        }
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn init_can_be_tried_again() {
        assert_eq!((table().device_count)(), 0);
        refused((table().init)(), FLAGOS_CONFIG, "`cuda`");
        assert!(message().contains("available here: host"), "{}", message());
        assert_eq!((table().init)(), FLAGOS_CONFIG);
        let router = flagos_core::router::global();
        // SAFETY: no other thread of this process uses the environment.
        unsafe { std::env::set_var("FLAGOS_VENDOR", "host") };
        router.reload().expect("the configuration is right now");
        init();
        assert_eq!((table().device_count)(), 1);
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn wrong_configuration_is_a_status() {
        refused((table().init)(), FLAGOS_CONFIG, "FLAGOS_HOST_MEMORY");
        assert_eq!((table().device_count)(), 0);
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn unknown_variables_are_a_status() {
        refused((table().init)(), FLAGOS_CONFIG, "FLAGOS_HOST_MEMORY");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn memory_is_counted() {
        init();
        let table = table();
        let (data, block) = alloc(0, 0);
        assert!(data.is_null() && block.is_null());
        let (data, block) = alloc(0, 1000);
        assert_eq!(data as usize % 512, 0);
        assert_eq!(
            (table.mem_device_of)(data.cast_const().wrapping_byte_add(999)),
            0
        );
        let now = stats(0);
        assert_eq!(
            now.allocation.all,
            FlagosStat {
                current: 1,
                peak: 1,
                allocated: 1,
                freed: 0
            }
        );
        assert_eq!(now.requested_bytes.small_pool.current, 1000);
        assert_eq!(now.allocated_bytes.all.current, 1024);
        assert_eq!(now.reserved_bytes.all.current, 2 << 20);
        (table.mem_free)(block);
        ok((table.mem_reset_peak)(0));
        ok((table.mem_reset_accumulated)(0));
        assert_eq!(stats(0).allocation.all, FlagosStat::default());
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid outputs.
        ok(unsafe { (table.mem_info)(0, &mut free, &mut total) });
        assert_eq!((free, total), (62 << 20, 64 << 20));
        let mut json = null_mut();
        // SAFETY: a valid output.
        ok(unsafe { (table.mem_snapshot_json)(0, &mut json) });
        assert!(string(json).contains("\"total_size\":2097152"));
        ok((table.mem_empty_cache)(-1));
        assert_eq!(stats(0).reserved_bytes.all.current, 0);
        assert_eq!((table.mem_device_of)(data), -1);
        // A second free only logs a message.
        (table.mem_free)(block);
        assert!(message().contains("free each block once"), "{}", message());
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn out_of_memory_has_a_table() {
        init();
        let table = table();
        let last = std::cell::Cell::new(null_mut());
        let ask = |nbytes| {
            let mut data = null_mut();
            // SAFETY: valid outputs.
            unsafe { (table.mem_alloc)(0, 0, nbytes, &mut data, last.as_ptr()) }
        };
        refused(
            ask(65 << 20),
            FLAGOS_OUT_OF_MEMORY,
            "more than the 64.00 MiB",
        );
        ok((table.mem_set_fraction)(0, 0.25));
        refused(
            ask(17 << 20),
            FLAGOS_OUT_OF_MEMORY,
            "raise the memory fraction",
        );
        assert!(message().lines().count() > 8, "{}", message());
        ok((table.mem_set_fraction)(0, 1.0));
        ok(ask(64 << 20));
        refused(ask(1), FLAGOS_OUT_OF_MEMORY, "FLAGOS_HOST_MEMORY");
        (table.mem_free)(last.get());
        ok(ask(1));
        assert_eq!(stats(0).num_ooms, 3);
        refused(
            (table.mem_set_fraction)(0, 2.0),
            FLAGOS_INVALID_ARGUMENT,
            "fraction",
        );
    }

    extern "C" fn add_one(number: *mut c_void) {
        // SAFETY: the tests pass the address of an atomic that outlives the work.
        unsafe { &*number.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn streams_and_events_work() {
        init();
        let table = table();
        let number = AtomicU64::new(0);
        let context = std::ptr::from_ref(&number).cast_mut().cast::<c_void>();
        let mut ids = [0; 66];
        let (mut start, mut end) = (null_mut(), null_mut());
        let (mut flag, mut time) = (0, 0.0);
        let (from, mut to) = ([7_u8; 4096], [0_u8; 4096]);
        // SAFETY: valid outputs; `number`, `from` and `to` outlive the work, which is waited for.
        unsafe {
            for (i, id) in ids.iter_mut().enumerate() {
                ok((table.stream_create)(0, -i32::from(i % 2 == 1), id));
            }
            assert!(!ids.contains(&0));
            assert_eq!(
                (ids[0], ids[1]),
                (ids[64], ids[65]),
                "round robin over 32 of each"
            );
            assert_eq!(
                ids[..64]
                    .iter()
                    .collect::<std::collections::HashSet<_>>()
                    .len(),
                64
            );
            let (a, b) = (ids[0], ids[1]);
            ok((table.event_create)(0, 1, &mut start));
            ok((table.event_create)(0, 1, &mut end));
            ok((table.event_record)(start, 0, a));
            ok((table.event_query)(start, &mut flag));
            assert_eq!(flag, 1, "an idle stream reaches its event at once");
            for _ in 0..100 {
                ok((table.stream_launch)(0, a, add_one, context));
            }
            ok((table.event_record)(end, 0, a));
            ok((table.event_wait)(end, 0, b));
            ok((table.copy_async)(
                0,
                b,
                to.as_mut_ptr().cast(),
                from.as_ptr().cast(),
                4096,
            ));
            ok((table.stream_sync)(0, b));
            assert_eq!(number.load(Ordering::Relaxed), 100, "b has waited for a");
            assert_eq!(from, to);
            ok((table.event_sync)(end));
            ok((table.event_elapsed)(start, end, &mut time));
            assert!(time > 0.0);
            (table.event_destroy)(start);
            (table.event_destroy)(end);
            (table.event_destroy)(null_mut());
            ok((table.device_sync)(0));
            ok((table.stream_query)(0, a, &mut flag));
            assert_eq!((flag, pending()), (1, 0));
            ok((table.mem_record_stream)(alloc(0, 64).1, a));
            let data = alloc_at(0, 64);
            ok((table.mem_record_stream_at)(data, a));
            ok((table.mem_record_stream_of)(data, 0, a));
            assert_ne!((table.mem_record_stream_of)(data, 9, a), 0);
            assert_eq!((table.mem_free_at)(data), 1);
            ok((table.mem_record_stream_of)(data, 9, a)); // no block, so no use
        }
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn pinned_memory_is_known() {
        init();
        let table = table();
        let (mut data, mut block) = (null_mut(), null_mut());
        // SAFETY: valid outputs.
        ok(unsafe { (table.pinned_alloc)(10_000, &mut data, &mut block) });
        assert_eq!((table.is_pinned)(data.wrapping_byte_add(9_999)), 1);
        assert_eq!((table.is_pinned)(alloc(0, 64).0), 0);
        ok((table.pinned_record)(block, 0, 0));
        (table.pinned_free)(block);
        refused(
            (table.pinned_record)(block, 0, 0),
            FLAGOS_INVALID_ARGUMENT,
            "not allocated",
        );
        ok((table.mem_empty_cache)(-1));
        assert_eq!((table.is_pinned)(data), 0);
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn failures_of_queued_work_arrive() {
        init();
        let table = table();
        let mut bytes = [0_u8; 2];
        let data = bytes.as_mut_ptr();
        // SAFETY: `bytes` outlives the copy, which is waited for.
        ok(unsafe { (table.copy_async)(0, 0, data.cast(), data.wrapping_add(1).cast(), 1) });
        refused(
            (table.stream_sync)(0, 0),
            FLAGOS_DEVICE,
            "injected failure of copy 0",
        );
        ok((table.stream_sync)(0, 0));
    }

    /// A struct for the vendor's description, of this size.
    fn info(struct_size: usize) -> FlagosVendorInfo {
        FlagosVendorInfo {
            struct_size,
            name: null(),
            torch_device_type: null(),
            collective_engine: null(),
            triton_backend: null(),
            flaggems_vendor: null(),
            serving: -1,
            dlpack_device_type: -1,
        }
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn the_vendor_is_described() {
        let text = |text: *const c_char| {
            assert!(!text.is_null());
            // SAFETY: not NULL; texts of the table live as long as the process.
            unsafe { CStr::from_ptr(text) }
        };
        let mut first = info(size_of::<FlagosVendorInfo>());
        // SAFETY: as many bytes as it says.
        ok(unsafe { (table().vendor)(&mut first) });
        assert_eq!(text(first.name), c"host");
        assert_eq!(text(first.collective_engine), c"shm");
        assert_eq!((first.serving, first.dlpack_device_type), (0, 1));
        for absent in [
            first.torch_device_type,
            first.triton_backend,
            first.flaggems_vendor,
        ] {
            assert!(absent.is_null());
        }
        // No device is open yet.
        refused((table().device_sync)(0), FLAGOS_NOT_INITIALIZED, "init");
        init();
        let mut longer = [0_usize; 16];
        longer[0] = size_of_val(&longer);
        // SAFETY: as many bytes as it says.
        ok(unsafe { (table().vendor)(longer.as_mut_ptr().cast()) });
        assert_eq!(longer[0], size_of_val(&longer), "the caller's own");
        assert_eq!(longer[1] as *const c_char, first.name, "the same text");
        assert_eq!(longer[size_of::<FlagosVendorInfo>() / 8..], [0; 9]);
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn a_vendor_that_cannot_be_used_is_an_error_of_init() {
        let mut told = info(size_of::<FlagosVendorInfo>());
        // SAFETY: as many bytes as it says.
        ok(unsafe { (table().vendor)(&mut told) });
        // SAFETY: a text of the table, which lives as long as the process.
        assert_eq!(unsafe { CStr::from_ptr(told.name) }, c"host");
        let reason = "vendor `cuda` cannot be used";
        refused((table().init)(), FLAGOS_CONFIG, reason);
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn the_host_has_no_kernels() {
        init();
        assert!((table().kernels)().is_null());
        let (mut instance, mut stream) = (null_mut(), null_mut());
        // SAFETY: valid outputs.
        let code = unsafe { (table().stream_library)(0, 0, &mut instance, &mut stream) };
        assert_eq!(code, FLAGOS_UNSUPPORTED);
        assert!(message().contains("`host` is no library"), "{}", message());
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn wrong_arguments_are_refused() {
        init();
        let table = table();
        let mut data = null_mut();
        // SAFETY: NULL is refused, and nothing else is dereferenced.
        let statuses = unsafe {
            [
                (table.mem_alloc)(0, 0, 1, null_mut(), null_mut()),
                (table.mem_alloc)(-1, 0, 1, &mut data, &mut null_mut()),
                (table.mem_alloc)(9, 0, 1, &mut data, &mut null_mut()),
                (table.mem_alloc)(0, 99, 1, &mut data, &mut null_mut()),
                (table.mem_alloc_at)(0, 0, 1, null_mut()),
                (table.mem_alloc_at)(9, 0, 1, &mut data),
                (table.mem_stats)(0, null_mut()),
                (table.mem_record_stream)(null_mut(), 0),
                (table.mem_record_stream)(usize::MAX as *mut c_void, 0),
                (table.stream_sync)(0, u64::MAX),
                (table.stream_query)(0, 0, null_mut()),
                (table.copy_async)(0, 0, null_mut(), null(), 1),
                (table.event_create)(0, 0, null_mut()),
                (table.event_record)(null_mut(), 0, 0),
                (table.op_blocked_reason)(null(), null_mut()),
                (table.op_blocked_reason)(c"not a name!".as_ptr(), null_mut()),
                (table.device_properties)(0, null_mut()),
                (table.vendor)(null_mut()),
                (table.vendor)(&mut info(size_of::<FlagosVendorInfo>() - 1)),
            ]
        };
        assert_eq!(statuses, [FLAGOS_INVALID_ARGUMENT; 19]);
        // SAFETY: as above.
        unsafe {
            assert!((table.op_slot)(null()).is_null());
            assert!((table.op_slot)(c"not a name!".as_ptr()).is_null());
            assert!((table.op_slot)(c"\xff".as_ptr()).is_null());
            (table.string_free)(null_mut());
            (table.op_log_dispatch)(null(), c"cpu".as_ptr());
            (table.op_log_dispatch)(c"aten::mm".as_ptr(), c"\xff".as_ptr());
        }
        (table.mem_free)(usize::MAX as *mut c_void);
        assert!(!message().is_empty());
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn blocked_operators_say_why() {
        use flagos_core::registry::{Implementation, Kind};
        use flagos_core::router::global;
        let native = Implementation::new("cpu.native", Kind::Reference, "cpu");
        global()
            .register_all("aten", ["mm", "add.Tensor"], native)
            .expect("registered");
        init();
        let name = |text: &str| CString::new(text).expect("no NUL");
        // SAFETY: NUL-terminated names, valid outputs, slots live for ever.
        unsafe {
            let mm = (table().op_slot)(name("aten::mm").as_ptr());
            assert_eq!((*mm).route, FLAGOS_ROUTE_BLOCKED);
            assert_eq!(mm as usize % 64, 0);
            let add = (table().op_slot)(name("aten::add.Tensor").as_ptr());
            assert_eq!((*add).route, FLAGOS_ROUTE_NATIVE);
            let mut reason = null_mut();
            ok((table().op_blocked_reason)(
                name("aten::mm").as_ptr(),
                &mut reason,
            ));
            assert!(string(reason).contains("FLAGOS_OP_mm"));
        }
    }

    /// Runs `child` in a forked child and returns its exit code.
    fn in_child(child: impl FnOnce() -> bool) -> i32 {
        // SAFETY: the child calls what this test is about, then leaves without unwinding.
        unsafe {
            let id = libc::fork();
            assert!(id >= 0);
            if id == 0 {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                libc::_exit(if result.unwrap_or(false) { 0 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(id, &mut status, 0), id);
            assert!(libc::WIFEXITED(status), "the child was killed: {status}");
            libc::WEXITSTATUS(status)
        }
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn a_forked_child_is_told() {
        init();
        let table = table();
        let (data, block) = alloc(0, 4096);
        let mut event = null_mut();
        let (mut pinned, mut pinned_block) = (null_mut(), null_mut());
        let gate = std::sync::Mutex::new(());
        extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: the address of the mutex below, which outlives the work.
            drop(unsafe { &*gate.cast::<std::sync::Mutex<()>>() }.lock());
        }
        let closed = gate.lock().expect("no panic");
        let context = std::ptr::from_ref(&gate).cast_mut().cast();
        // SAFETY: valid outputs; `gate` outlives the work, which is waited for.
        unsafe {
            ok((table.event_create)(0, 0, &mut event));
            ok((table.pinned_alloc)(1, &mut pinned, &mut pinned_block));
            ok((table.stream_launch)(0, 0, wait, context));
            ok((table.event_record)(event, 0, 0));
        }
        assert_eq!(pending(), 2);
        let code = in_child(|| {
            let (mut flag, mut id) = (0, 0);
            let (mut out, mut other) = (null_mut(), null_mut());
            // SAFETY: valid outputs, live handles.
            let statuses = unsafe {
                [
                    (table.init)(),
                    (table.mem_alloc)(0, 0, 4096, &mut out, &mut other),
                    (table.mem_record_stream)(block, 0),
                    (table.mem_empty_cache)(-1),
                    (table.pinned_alloc)(1, &mut out, &mut other),
                    (table.stream_create)(0, 0, &mut id),
                    (table.stream_sync)(0, 0),
                    (table.device_sync)(0),
                    (table.stream_launch)(0, 0, add_one, null_mut()),
                    (table.copy_async)(0, 0, data, data, 1),
                    (table.event_create)(0, 0, &mut out),
                    (table.event_record)(event, 0, 0),
                    (table.event_query)(event, &mut flag),
                    (table.event_sync)(event),
                    (table.op_blocked_reason)(c"aten::mm".as_ptr(), &mut null_mut()),
                ]
            };
            (table.mem_free)(block);
            (table.pinned_free)(pinned_block);
            // SAFETY: a live handle.
            unsafe { (table.event_destroy)(event) };
            let told = message().contains("use the 'spawn' start method");
            told && statuses == [FLAGOS_FORKED; 15] && pending() == 0
        });
        assert_eq!(code, 0, "the child was not told everything");
        drop(closed);
        ok((table.device_sync)(0));
        (table.mem_free)(block);
        assert_eq!(alloc(0, 4096).0, data, "the parent goes on");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn a_forked_child_knows_its_parents_addresses() {
        init();
        let data = alloc_at(0, 4096);
        let mut own = 0_u8;
        let own = std::ptr::from_mut(&mut own).cast();
        let code = in_child(|| {
            let mut out = null_mut();
            // SAFETY: a valid output.
            let refused = unsafe { (table().mem_alloc_at)(0, 0, 64, &mut out) };
            refused == FLAGOS_FORKED
                && (table().mem_free_at)(own) == 0
                && (table().mem_free_at)(data) == 1
                && (table().mem_free_at)(data) == 0
        });
        assert_eq!(code, 0);
        assert_eq!((table().mem_free_at)(data), 1, "the parent still has it");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn a_child_forked_before_init_is_free() {
        let code = in_child(|| (table().init)() == FLAGOS_OK && !alloc(0, 64).0.is_null());
        assert_eq!(code, 0, "the child cannot initialise");
        init();
        assert_eq!(in_child(|| (table().init)() == FLAGOS_FORKED), 0);
    }
}
