//! Every environment variable flagos reads, declared once.
//!
//! `docs/environment.md` is generated from [`VARS`] and from the descriptions of this build's vendors, and a
//! `FLAGOS_*` variable that is not declared is an error with the nearest valid name. Values come from an injected
//! [`Env`], a snapshot: nothing else in this crate reads the process environment.

mod declared;
mod docs;
mod host;
mod log;
mod value;

pub use declared::declaration;
pub use docs::markdown;
pub use host::{FaultSite, HostSettings};
pub(crate) use host::{parse_faults, valid_devices};
pub use log::LogSetting;
pub use value::{Env, parse_bytes};

/// How the text of a variable is read. An empty value means "not set", except of a vendor's own variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VarKind {
    /// `1`, `true`, `on`, `yes`, or `0`, `false`, `off`, `no`.
    Flag,
    /// An unsigned integer.
    Count,
    /// An unsigned integer, or `unlimited`.
    Limit,
    /// A number of bytes, with an optional suffix: `1073741824`, `512MiB`, `4G`.
    Bytes,
    /// A file or directory.
    Path,
    /// Files or directories, separated by `:`.
    Paths,
    /// A name or text with a grammar of its own, described in the documentation.
    Text,
    /// A selector, or several separated by `|`.
    Route,
    /// A name of another project's plugin, which has no effect here.
    Retired,
}

/// The subject of a variable. Each subject is a section of the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The files of the configuration.
    Configuration,
    /// Routes: which implementation serves an operator.
    Routing,
    /// Logs and reports.
    Logging,
    /// FlagGems.
    FlagGems,
    /// The LightX2V adapter.
    LightX2v,
    /// The host device.
    Host,
    /// The vendor of this build that has this name: its own variables.
    Vendor(&'static str),
    /// TransformerEngine, in the words of TransformerEngine-FL.
    TransformerEngine,
    /// Collectives.
    Collectives,
    /// Names of Torch-FL, which was PyTorch-Plugin-FL: flagos recognises and replaces them.
    Legacy,
}

/// One declared variable.
#[derive(Debug, Clone, Copy)]
pub struct Var {
    /// The name. `<op>` at the end stands for the name of an operator, `<name>` for any ending.
    pub name: &'static str,
    /// How the variable's text is read.
    pub kind: VarKind,
    /// The value that applies when the variable is not set, in words.
    pub default: &'static str,
    /// The variable's effect. Of a retired name: the replacement.
    pub doc: &'static str,
    /// The variable's section in the documentation.
    pub group: Group,
}

macro_rules! declare {
    ($($ident:ident: $name:literal, $kind:expr, $default:literal, $group:ident, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub const $ident: Var = Var {
                name: $name,
                kind: $kind,
                default: $default,
                doc: $doc,
                group: Group::$group,
            };
        )*

        /// Every variable of flagos and of its adapters, in the order of the documentation.
        pub static VARS: &[Var] = &[$($ident),*];
    };
}

declare! {
    CONFIG: "FLAGOS_CONFIG", VarKind::Path, "`./flagos.toml`, then `$XDG_CONFIG_HOME/flagos/flagos.toml`", Configuration,
        "The `flagos.toml` to read. It must exist.";
    BACKEND_CONFIG: "FLAGOS_BACKEND_CONFIG", VarKind::Path, "the `backends.conf` an adapter ships, if any", Configuration,
        "A `backends.conf` (`operator = backend` lines) to read. It must exist. It beats `flagos.toml`.";
    LOCK: "FLAGOS_LOCK", VarKind::Path, "no check", Configuration,
        "A plan lock file. Initialisation and reload fail, with the difference, when the plan differs from it.";
    VENDOR: "FLAGOS_VENDOR", VarKind::Text, "the best one found", Configuration,
        "The vendor whose devices are used, by its name or another of its names: `host`, or one that `flagos devices` lists. Initialisation fails when that vendor cannot be used.";
    VENDOR_PATH: "FLAGOS_VENDOR_PATH", VarKind::Paths, "none", Configuration,
        "Manifests of vendor libraries, or folders with manifests, to find vendors in. Each must exist.";
    ALIAS_CUDA: "FLAGOS_ALIAS_CUDA", VarKind::Flag, "`0`", Configuration,
        "`cuda` means flagos in programs of torch, from `import torch` on, as after `torch.flagos.alias_cuda()`. Where torch has CUDA devices `import torch` fails with the reason.";
    MEGATRON: "FLAGOS_MEGATRON", VarKind::Flag, "`0`", Configuration,
        "Megatron-LM-FL trains on flagos: its platform is flagos, and its modules read `cuda` as flagos, from `import torch` on. Needs `flagos-trainers`, else `import torch` fails with the reason.";
    ACCELERATOR: "FLAGOS_ACCELERATOR", VarKind::Text, "when the program asks", Configuration,
        "`flagos` makes the device torch's accelerator at `import torch` where torch has the same device under another name; otherwise a program's first `import torch_fl` or `flagos` device string does. PyTorch-Plugin-FL's names of chips have no effect: `FLAGOS_VENDOR` chooses at run time.";

    OP: "FLAGOS_OP_<op>", VarKind::Route, "the configuration files", Routing,
        "The route of one operator, `.` written `__`: `FLAGOS_OP_add__Tensor=cpu`. For other namespaces than `aten`, `::` is written `__` too: `FLAGOS_OP_te__rmsnorm_fwd=reference`.";
    STRICT: "FLAGOS_STRICT", VarKind::Flag, "`0`", Routing,
        "Turns a route that cannot be followed, and every CPU fallback, into an error.";
    MAX_CPU_FALLBACK: "FLAGOS_MAX_CPU_FALLBACK", VarKind::Limit, "`unlimited`", Routing,
        "How many times operators may fall back to the CPU before a fallback is an error.";

    BISECT: "FLAGOS_BISECT", VarKind::Path, "none", Routing,
        "The description of one run of `flagos bisect` or `flagos accuracy`, which sets this variable for the programs it runs.";

    GRAPHS: "FLAGOS_GRAPHS", VarKind::Text, "`off`", Routing,
        "`auto` captures calls that repeat, and launches them by graphs when they come again, with the same results; `off` launches each call. `docs/graphs.md` says when it helps and on which vendors it is there.";
    QUEUE: "FLAGOS_QUEUE", VarKind::Text, "`off`", Routing,
        "`auto` has a second thread hand calls to the vendor's library, so that the program goes on at once; `off` hands each call over before it returns. `docs/vendors.md` says what changes; on vendors without such a library it is an error.";
    LOG: "FLAGOS_LOG", VarKind::Text, "`warn`", Logging,
        "The lowest level that is reported (`off`, `error`, `warn`, `info`, `debug`, `trace`), or a list with levels per module: `info,flagos_core::runtime=trace`. Words of Torch-FL may be in the list: `dispatch` means `FLAGOS_LOG_DISPATCH=1`, `fallback` means `FLAGOS_LOG_FALLBACK=1`, and `op_cache` has no effect.";
    REPORT: "FLAGOS_REPORT", VarKind::Path, "no report", Logging,
        "The folder in which every process that uses the device leaves its data for `flagos report`, which sets this variable for the programs it runs.";
    LOG_DISPATCH: "FLAGOS_LOG_DISPATCH", VarKind::Flag, "`0`", Logging,
        "Prints `[flagos dispatch] <op> -> <backend>` for every operator call. Calls of FlagGems under a route by `flagos_python` are logged as `flagos_python`.";
    LOG_FALLBACK: "FLAGOS_LOG_FALLBACK", VarKind::Flag, "`0`", Logging,
        "Prints `[flagos cpu_fallback] <op>` for every call that runs on the CPU instead, and `[flagos fallback] <op>: <reason>` for every call that another implementation serves than the chosen one. `<op>` is without the overload in the first.";

    DISABLE_FLAGGEMS_PY: "FLAGOS_DISABLE_FLAGGEMS_PY", VarKind::Flag, "`0`", FlagGems,
        "Keeps FlagGems' Python kernels out of every route.";
    FLAGGEMS_SOURCE_DIR: "FLAGGEMS_SOURCE_DIR", VarKind::Path, "the installed package", FlagGems,
        "The `src/flag_gems` folder that FlagGems is loaded from.";
    FLAGGEMS: "FLAGOS_FLAGGEMS", VarKind::Text, "`off`", FlagGems,
        "The FlagGems kernels that serve without a route: `off`, none; `auto`, those verified on this chip, for the classes of calls in which they were measured to be faster than the native ones; `verified`, those verified; `verify-on-use`, those too, and at sizes that were not verified a child process verifies the first call; `all`, those not known to be wrong. All but `all` serve only calls of verified sizes.";
    TUNING: "FLAGOS_TUNING", VarKind::Text, "`off`", FlagGems,
        "Which configuration a kernel of FlagGems runs that has several: `off`, the one that was verified; `on`, the fastest, which is measured at the first call of a kind, as FlagGems does; or the path of a tuning file or a kernel pack, which names configurations.";
    PACK: "FLAGOS_PACK", VarKind::Path, "no pack", FlagGems,
        "The kernel pack, made by `flagos pack`, that serves FlagGems' operators without Triton's compiler, tuning or FlagGems.";
    PACK_OUTSIDE: "FLAGOS_PACK_OUTSIDE", VarKind::Text, "`native`", FlagGems,
        "What serves calls that are not in the kernel pack: `native`, the native kernel; `jit`, FlagGems, whose kernels are compiled then.";
    RECORD: "FLAGOS_RECORD", VarKind::Path, "no record", FlagGems,
        "The folder in which every process that imports torch records its distinct operator calls. `flagos record` sets it.";
    RECORD_META: "FLAGOS_RECORD_META", VarKind::Flag, "`0`", FlagGems,
        "Whether recorded processes compute nothing: tensors have shapes and types only. `flagos record --meta` sets it.";
    REPLAY: "FLAGOS_REPLAY", VarKind::Flag, "`1`", FlagGems,
        "Whether calls of FlagGems' kernels are recorded, and repeated without Python.";
    VERIFY_REPLAYS: "FLAGOS_VERIFY_REPLAYS", VarKind::Count, "`0`", FlagGems,
        "Compares every n-th repeated call with a call from Python, bit for bit; a difference is an error. `0` compares none.";
    GEMS_VENDOR: "GEMS_VENDOR", VarKind::Text, "found by FlagGems", FlagGems,
        "The vendor FlagGems generates kernels for.";
    LAUNCHER: "FLAGOS_LAUNCHER", VarKind::Flag, "`1`", FlagGems,
        "`0` leaves the launching of Triton's and FlagGems' kernels to their own Python code.";

    LIGHTX2V_DEVICE: "FLAGOS_LIGHTX2V_DEVICE", VarKind::Text, "`flagos`", LightX2v,
        "The torch device that LightX2V's tensors are on under `PLATFORM=flagos`: `flagos`, or torch's own name of the chip, or `cpu`, on which the same operators run.";
    LIGHTX2V_CHECK: "FLAGOS_LIGHTX2V_CHECK", VarKind::Flag, "`1`", LightX2v,
        "`0` lets LightX2V start with a configuration that `flagos lightx2v check` refuses.";

    HOST_DEVICES: "FLAGOS_HOST_DEVICES", VarKind::Count, "`LOCAL_WORLD_SIZE`, else `1`", Host,
        "The number of devices of the host vendor.";
    LOCAL_WORLD_SIZE: "LOCAL_WORLD_SIZE", VarKind::Text, "not set", Host,
        "Set by launchers such as torchrun: how many processes they start on this machine. The host vendor has a device for each, as on a machine with so many chips.";
    HOST_MEMORY: "FLAGOS_HOST_MEMORY", VarKind::Bytes, "the memory of the machine or of its control group", Host,
        "The memory of each host device.";
    HOST_SEED: "FLAGOS_HOST_SEED", VarKind::Count, "`0`", Host,
        "The seed of injected delays and faults.";
    HOST_DELAY_US: "FLAGOS_HOST_DELAY_US", VarKind::Count, "`0`", Host,
        "The longest random delay, in microseconds, before each item queued on a host stream.";
    HOST_FAULT: "FLAGOS_HOST_FAULT", VarKind::Text, "none", Host,
        "Probabilities of injected failures: `alloc=0.01,copy=0.001`. Sites: `alloc` (device and pinned memory obtained from the system; what the cache serves is not), `copy` (asynchronous copies between the device and pinned memory), `event` (recording one), and `launch` (host functions an adapter queues on a stream; torch's operators run on the calling thread, so none of them is reached).";

    TE_PREFER: "TE_FL_PREFER", VarKind::Text, "`order` of `flagos.toml`, else `flagos`", TransformerEngine,
        "The kind of implementation that comes first: `flagos`, `vendor` or `reference`.";
    TE_PREFER_VENDOR: "TE_FL_PREFER_VENDOR", VarKind::Flag, "not set", TransformerEngine,
        "Older form: `1` means `TE_FL_PREFER=vendor`, `0` means `flagos`. `TE_FL_PREFER` beats it.";
    TE_STRICT: "TE_FL_STRICT", VarKind::Flag, "`FLAGOS_STRICT`", TransformerEngine,
        "`1`: a failure of the chosen implementation is raised. `0`: the next implementation is tried if the failed one has written nothing.";
    TE_ALLOW_VENDORS: "TE_FL_ALLOW_VENDORS", VarKind::Text, "every vendor", TransformerEngine,
        "The only vendors that may serve: `host,acme`. Case does not matter, and another name of a vendor means the vendor.";
    TE_DENY_VENDORS: "TE_FL_DENY_VENDORS", VarKind::Text, "none", TransformerEngine,
        "Vendors that must not serve. This variable beats `TE_FL_ALLOW_VENDORS`.";
    TE_PER_OP: "TE_FL_PER_OP", VarKind::Text, "none", TransformerEngine,
        "Orders of single operators: `rmsnorm_fwd=vendor:acme\\|flagos;gelu=reference`.";
    TE_PLUGIN_MODULES: "TE_FL_PLUGIN_MODULES", VarKind::Text, "none", TransformerEngine,
        "Modules to import for their implementations, separated by commas; each has `te_fl_register(registry)` or `register(registry)`.";
    TE_SKIP_NATIVE: "TE_FL_SKIP_CUDA", VarKind::Flag, "`0`", TransformerEngine,
        "`1`: TransformerEngine's own kernels are not offered.";
    TE_COMPAT: "TE_FL_COMPAT", VarKind::Flag, "`0`", TransformerEngine,
        "`1`: fall back as TransformerEngine-FL does. Only `TE_FL_STRICT=0` raises at once, and an implementation that failed is not tried again until the policy changes.";
    TE_LOG_LEVEL: "TEFL_LOG_LEVEL", VarKind::Text, "`INFO`", TransformerEngine,
        "The lowest level of `[TE-FL ...]` lines that are printed: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`.";
    COMM_ENGINE: "FLAGOS_COMM_ENGINE", VarKind::Text, "that of the vendor", Collectives,
        "The engine of collectives over tensors of flagos devices: `shm`, `nccl`, `mccl`, `flagcx`, `hccl`. Collectives fail when that engine cannot be used.";
    COMM_LIBRARY: "FLAGOS_COMM_LIBRARY", VarKind::Path, "the one that is loaded, or found by name", Collectives,
        "The file of the engine's library, such as a `libnccl.so.2` of your own.";
    COMM_WINDOW: "FLAGOS_COMM_WINDOW", VarKind::Bytes, "`1MiB`", Collectives,
        "The window of the engine `shm`: the shared memory that a rank writes at a time, a multiple of 4 KiB. Each rank of a group has two.";
    COMM_DUMP: "FLAGOS_COMM_DUMP", VarKind::Path, "standard error has one line", Collectives,
        "The folder in which a collective that fails leaves its report: the last calls of its group, and the state of the other ranks.";

    USE_FLAGGEMS: "FLAGOS_USE_FLAGGEMS", VarKind::Flag, "`1`", Legacy,
        "`0` means `FLAGOS_DISABLE_FLAGGEMS_PY=1`, which replaces it.";
    USE_FLAGGEMS_CPP: "FLAGOS_USE_FLAGGEMS_CPP", VarKind::Retired, "", Legacy,
        "Route with `flagos.toml` or `FLAGOS_OP_<op>` instead.";
    FORCE_BACKEND: "FLAGOS_FORCE_BACKEND", VarKind::Retired, "", Legacy,
        "Set `order` in the `[policy]` table of `flagos.toml` instead.";
    DISABLE_CUDA_ASSETS: "FLAGOS_DISABLE_CUDA_ASSETS", VarKind::Retired, "", Legacy,
        "No vendor's libraries are bundled: vendors are found at run time, `FLAGOS_VENDOR` chooses one.";
    SKIP_CUDA_ASSETS: "FLAGOS_SKIP_CUDA_ASSETS", VarKind::Retired, "", Legacy,
        "No vendor's libraries are bundled: one wheel serves every vendor.";
    CUDA_ASSETS_DIR: "FLAGOS_CUDA_ASSETS_DIR", VarKind::Retired, "", Legacy,
        "No vendor's libraries are bundled: one wheel serves every vendor.";
    BUILD_VENDOR: "FLAGOS_BUILD_VENDOR", VarKind::Retired, "", Legacy,
        "No kernels are compiled per vendor: one wheel serves every vendor.";
    BUILD_FLAGGEMS: "FLAGOS_BUILD_FLAGGEMS", VarKind::Retired, "", Legacy,
        "FlagGems is used when it is installed.";
    BUILD_FLAGGEMS_CPP: "FLAGOS_BUILD_FLAGGEMS_CPP", VarKind::Retired, "", Legacy,
        "FlagGems is used when it is installed.";
    BUILD_BOXING: "FLAGOS_BUILD_BOXING", VarKind::Retired, "", Legacy,
        "Every native operator is reached without a build option; route with `vendor`.";
    BUILD_TILEOPS: "FLAGOS_BUILD_TILEOPS", VarKind::Retired, "", Legacy,
        "There are no TileOps kernels here.";
    BUILD_JOBS: "FLAGOS_BUILD_JOBS", VarKind::Retired, "", Legacy,
        "Set cargo's `CARGO_BUILD_JOBS` instead.";
    METAX_CUDART_SHIM: "FLAGOS_METAX_CUDART_SHIM", VarKind::Retired, "", Legacy,
        "Nothing is preloaded; set `FLAGOS_VENDOR=metax` to require MetaX devices.";
    METAX_COMPAT: "FLAGOS_METAX_COMPAT", VarKind::Retired, "", Legacy,
        "`torch.cuda` is not patched; FlagGems gets its vendor from flagos, unless `GEMS_VENDOR` names one.";
    METAX_BOXING: "FLAGOS_METAX_BOXING", VarKind::Retired, "", Legacy,
        "Every native operator is reached without a build option; route with `vendor`.";
    MACA_TORCH_LIB: "FLAGOS_MACA_TORCH_LIB", VarKind::Retired, "", Legacy,
        "The torch that is installed is used.";
    VENDOR_TORCH_LIB: "FLAGOS_VENDOR_TORCH_LIB", VarKind::Retired, "", Legacy,
        "The torch that is installed is used.";
    WHEEL_LOCAL: "FLAGOS_WHEEL_LOCAL", VarKind::Retired, "", Legacy,
        "One wheel serves every vendor.";
    DISABLE_CUDA_SHIM: "FLAGOS_DISABLE_CUDA_SHIM", VarKind::Retired, "", Legacy,
        "`torch.cuda` is not patched.";
    USE_CACHING_ALLOCATOR: "FLAGOS_USE_CACHING_ALLOCATOR", VarKind::Retired, "", Legacy,
        "Device memory is always cached; `torch.flagos.empty_cache()` gives it back.";
    USE_FLAGTREE: "FLAGOS_USE_FLAGTREE", VarKind::Retired, "", Legacy,
        "The Triton that is installed is used; `flagos doctor` reports which one it is.";
    COMPILE_FALLBACK_EAGER: "FLAGOS_COMPILE_FALLBACK_EAGER", VarKind::Retired, "", Legacy,
        "Set `torch._dynamo.config.suppress_errors` instead.";
    DISABLE_APEX_COMPAT: "FLAGOS_DISABLE_APEX_COMPAT", VarKind::Retired, "", Legacy,
        "Apex is not patched.";
    TRACER_LIBRARY: "FLAGOS_TRACER_LIBRARY", VarKind::Retired, "", Legacy,
        "No tracer library is loaded.";
    TRACE: "FLAGOS_TRACE", VarKind::Retired, "", Legacy,
        "Set `FLAGOS_LOG=trace` instead.";
    METAX_MM_HALF_MODE: "FLAGOS_METAX_MM_HALF_MODE", VarKind::Retired, "", Legacy,
        "The vendor's own matrix product is called; its mode is not chosen here.";
    METAX_MM_HALF_HGEMM_STRICT: "FLAGOS_METAX_MM_HALF_HGEMM_STRICT", VarKind::Retired, "", Legacy,
        "The vendor's own matrix product is called; its mode is not chosen here.";
    DIST_FORCE_NCCL: "FLAGOS_DIST_FORCE_NCCL", VarKind::Retired, "", Legacy,
        "Set `FLAGOS_COMM_ENGINE=nccl` instead.";
    EXEC_CACHE: "FLAGOS_EXEC_CACHE", VarKind::Retired, "", Legacy,
        "No calls are cached in files; `flagos explain` shows which implementations serve them.";
    CACHE_STATS: "FLAGOS_CACHE_STATS", VarKind::Retired, "", Legacy,
        "No calls are cached in files; `flagos explain` shows which implementations serve them.";
    CUPTI_LIBRARY: "FLAGOS_CUPTI_LIBRARY", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    MUPTI_LIBRARY: "FLAGOS_MUPTI_LIBRARY", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    TOPSPTI_LIBRARY: "FLAGOS_TOPSPTI_LIBRARY", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    CUPTI_SHIM_DEBUG: "FLAGOS_CUPTI_SHIM_DEBUG", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    KINETO_SHIM_DEBUG: "FLAGOS_KINETO_SHIM_DEBUG", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    MSPTI_DEBUG: "FLAGOS_MSPTI_DEBUG", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    MUPTI_DEBUG: "FLAGOS_MUPTI_DEBUG", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    TOPSPTI_DEBUG: "FLAGOS_TOPSPTI_DEBUG", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    ROCTRACER_DEBUG: "FLAGOS_ROCTRACER_DEBUG", VarKind::Retired, "", Legacy,
        "`torch.profiler` collects kernels by its own library; none is loaded for it.";
    BPU_ACT_SCALE: "FLAGOS_BPU_ACT_SCALE", VarKind::Retired, "", Legacy,
        "There is no vendor for BPU devices.";
    BPU_CACHE: "FLAGOS_BPU_CACHE", VarKind::Retired, "", Legacy,
        "There is no vendor for BPU devices.";
    BPU_MARCH: "FLAGOS_BPU_MARCH", VarKind::Retired, "", Legacy,
        "There is no vendor for BPU devices.";
    BPU_MLIR_LIBS: "FLAGOS_BPU_MLIR_LIBS", VarKind::Retired, "", Legacy,
        "There is no vendor for BPU devices.";
    BPU_QUANTIZE: "FLAGOS_BPU_QUANTIZE", VarKind::Retired, "", Legacy,
        "There is no vendor for BPU devices.";
    BPU_X86_EMULATOR: "FLAGOS_BPU_X86_EMULATOR", VarKind::Retired, "", Legacy,
        "There is no vendor for BPU devices.";
    BPU_X86_PYTHON: "FLAGOS_BPU_X86_PYTHON", VarKind::Retired, "", Legacy,
        "There is no vendor for BPU devices.";
    BPU_X86_STUBS: "FLAGOS_BPU_X86_STUBS", VarKind::Retired, "", Legacy,
        "There is no vendor for BPU devices.";
    CODEGEN_ALL: "FLAGOS_CODEGEN_ALL", VarKind::Retired, "", Legacy,
        "No kernels are compiled per vendor: one wheel serves every vendor.";
    DCU_TORCH_LIB: "FLAGOS_DCU_TORCH_LIB", VarKind::Retired, "", Legacy,
        "The torch that is installed is used.";
    DCU: "FLAGOS_DCU_<name>", VarKind::Retired, "", Legacy,
        "There is no vendor for DCU devices; `flagos devices` lists those that were found.";
    PPU_TORCH_LIB: "FLAGOS_PPU_TORCH_LIB", VarKind::Retired, "", Legacy,
        "The torch that is installed is used.";
    PPU: "FLAGOS_PPU_<name>", VarKind::Retired, "", Legacy,
        "There is no vendor for PPU devices; `flagos devices` lists those that were found.";
    USE_TILEOPS: "FLAGOS_USE_TILEOPS", VarKind::Retired, "", Legacy,
        "There are no TileOps kernels here; route with `flagos.toml` or `FLAGOS_OP_<op>`.";
    TILEOPS: "FLAGOS_TILEOPS_<name>", VarKind::Retired, "", Legacy,
        "There are no TileOps kernels here.";
    USE_VENDOR_OPS: "FLAGOS_USE_VENDOR_OPS", VarKind::Retired, "", Legacy,
        "The vendor's kernels serve without a route; set `order` in the `[policy]` table of `flagos.toml` to prefer others.";
    DISABLE_FLEX_ATTENTION_COMPAT: "FLAGOS_DISABLE_FLEX_ATTENTION_COMPAT", VarKind::Retired, "", Legacy,
        "FlexAttention always takes flagos tensors.";
    DISABLE_QWENIMAGE_ROPE: "FLAGOS_DISABLE_QWENIMAGE_ROPE", VarKind::Retired, "", Legacy,
        "Diffusers is not patched.";
    DIST_REDIRECT_GLOO: "FLAGOS_DIST_REDIRECT_GLOO", VarKind::Retired, "", Legacy,
        "Gloo serves tensors on the CPU alone: make groups of the backend `flagos`, or of `cpu:gloo,flagos:flagos`.";
    DIST_STAGED_GLOO: "FLAGOS_DIST_STAGED_GLOO", VarKind::Retired, "", Legacy,
        "`FLAGOS_COMM_ENGINE` chooses the engine of collectives, which fail when it cannot be used.";
    INSTALL_PATH: "FLAGOS_INSTALL_PATH", VarKind::Retired, "", Legacy,
        "There is no `libflagos.so` to build FlagCX against: flagos opens FlagCX's own library (`FLAGOS_COMM_LIBRARY`).";
    INCLUDE_DIR: "FLAGOS_INCLUDE_DIR", VarKind::Retired, "", Legacy,
        "There is no `libflagos.so` to build FlagCX against: flagos opens FlagCX's own library (`FLAGOS_COMM_LIBRARY`).";
    LIBRARY_DIR: "FLAGOS_LIBRARY_DIR", VarKind::Retired, "", Legacy,
        "There is no `libflagos.so` to build FlagCX against: flagos opens FlagCX's own library (`FLAGOS_COMM_LIBRARY`).";
}

/// Prefixes of the adapters' variables, which flagos reads or warns about.
pub(crate) const ADAPTER_PREFIXES: [&str; 2] = ["TE_FL_", "TEFL_"];

/// The end of a declaration's name that stands for any ending: a family of another project, which may grow.
const ANY_ENDING: &str = "<name>";

/// The prefix of the per-operator variables.
pub(crate) const OP_PREFIX: &str = "FLAGOS_OP_";
