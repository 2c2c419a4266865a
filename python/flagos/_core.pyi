"""The native core of the process: registry, policy, plan and device runtime.

Plain functions over plain data; the package ``flagos`` puts a Python face on them. Importing this
module imports nothing else and initialises nothing. Functions that may wait release the GIL.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from os import PathLike
from typing import Any, TypedDict

from flagos.plan_entry import Fallback, Plan, PlanEntry
from flagos.runtime import Device, MissingVendor, VendorInfo, VendorReport

class _Variable(TypedDict):
    """One declared environment variable."""

    name: str
    group: str
    kind: str
    default: str
    doc: str
    value: str | None

class _Check(TypedDict):
    """One check of the conformance suite for vendors."""

    name: str
    #: What a vendor that passes has shown.
    proves: str
    #: The functions of ``flagos_vendor.h`` to look at after a failure.
    functions: list[str]

class FlagosError(Exception):
    """Base of every error raised by flagos."""

    #: The class of the failure: ``configuration``, ``out of memory``, ...
    kind: str
    #: The remedy, if it is known.
    hint: str | None

class ConfigError(FlagosError, ValueError):
    """A configuration file, an environment variable or a route is wrong."""

class InvalidArgumentError(FlagosError, ValueError):
    """An argument is out of range, or a name is not known."""

class OutOfMemoryError(FlagosError, RuntimeError):
    """The device has no memory left for the request; the message lists the memory in use."""

class DeviceError(FlagosError, RuntimeError):
    """The device, its driver or a piece of queued work failed."""

class UnsupportedError(FlagosError, NotImplementedError):
    """The call is not supported here and has changed nothing."""

class ForkedError(FlagosError, RuntimeError):
    """The process is a forked child of one that had initialised flagos."""

#: Version of the distribution.
version: str
#: Version of the layout of the C table.
abi_version: int

def api_capsule() -> object:
    """A capsule named ``flagos.FlagosApi`` over the C table that ``flagos.h`` describes."""

def comm_capsule() -> object:
    """A capsule named ``flagos.FlagosCommApi`` over the C table that ``flagos_comm.h`` describes."""

comm_abi_version: int
"""Version of the layout of the table of :func:`comm_capsule`."""

def comm_engines(
    library: str | None = None, vendor: str = ""
) -> list[tuple[str, bool, str, list[tuple[str, list[str], bool, bool]]]]:
    """Every engine of collectives: (name, whether it can be used, its library or the reason why not, what it lacks).

    ``library`` is the file to try for engines of vendors; without it they search by name. What a library lacks on
    devices of ``vendor``: (dtype, operations, whether the dtype has no other, whether small data are gathered).
    """

comm_gathered_most: int
"""The most bytes of all ranks together that are gathered for a reduction that a library lacks."""

def comm_gathered() -> list[tuple[str, str, str, int, int]]:
    """The reductions that libraries lacked in this process: (library, operation, dtype, calls, bytes of all ranks)."""

def comm_settings() -> tuple[str, str, int, str]:
    """(engine, library, window in bytes, dump folder) of the environment.

    Unset values are empty, or 0. Raises ConfigError for a window that is not a number of bytes.
    """

# Devices.

def init() -> None:
    """Reads the configuration, resolves the plan and starts the vendor. Idempotent."""

def device_count() -> int:
    """The number of devices, 0 when something is wrong. Initialises nothing and never fails."""

def find_vendors_in(folder: str) -> None:
    """Looks for manifests of vendors in this folder too, which need not exist."""

def contribute_vendor(manifest: str) -> None:
    """Adds the vendor of this manifest."""

def contribute_missing_vendor(name: str, origin: str, reason: str) -> None:
    """Adds a vendor that ``origin`` contributes without a manifest, for this reason."""

def reaches(device: int, peer: int) -> bool:
    """Whether a device addresses the memory of another directly, by what its vendor says. Opens the vendor."""

def vendor() -> str:
    """The vendor that serves this process, or would after initialisation. Opens nothing."""

def prefer_vendor(name: str) -> None:
    """Tries the vendor of this name before all others, when none is asked for by name."""

def product_name(vendor: str) -> str:
    """The product name of the first device of a vendor, found without opening it here; "" where that cannot be."""

def vendor_info() -> VendorInfo:
    """The description of the vendor that serves this process, or would after initialisation.

    Loads the vendor's library if it is one, and opens no device. With a mistake in the configuration, which
    :func:`init` reports, it is the best vendor present. Raises :class:`FlagosError` when the library cannot be loaded.
    """

def built_in_vendors() -> list[VendorInfo]:
    """The descriptions of the vendors of this build."""

def close_shared_memory() -> None:
    """Closes the device memory of other processes, which is not used any more because this process ends."""

def devices() -> list[Device]:
    """Every device."""

def stream_handle(device: int, stream: int) -> int | None:
    """The handle of a stream in the vendor's own library, such as an ``aclrtStream``; ``None`` where streams have none.

    ``stream`` is the number that the core gives streams, 0 for the default one, and the ``stream_id`` of a
    ``torch.Stream``. Raises InvalidArgumentError if there is no such device or stream.
    """

def vendors() -> list[VendorReport]:
    """Every vendor, the best first, and why it is used or not; initialises and loads nothing."""

def missing_vendors() -> list[MissingVendor]:
    """The vendors whose chip this machine has, and whose distribution is not installed. Loads nothing."""

# The checklist of `flagos vendor check`. A target is the path of a library or a manifest, which has a slash in it, or
# the name of a vendor that is built in.

def conformance_checks() -> list[_Check]:
    """Every check of the conformance suite, in order."""

def take_vendor(target: str, passed: Callable[[str, str], None]) -> None:
    """Takes the library, opens the vendor, and closes it. Runs its code, which may end the process.

    ``passed`` is told of every step that has passed: its name, and what it has shown. Raises FlagosError for the step
    that fails.
    """

def vendor_declarations(target: str) -> list[tuple[str, str]]:
    """What a vendor's library takes for granted of a library beneath it: names with their grades, ``B`` or ``C``.

    Loads the library.
    """

def try_declaration(file: str, name: str) -> tuple[str, bool]:
    """Tries out one of them on the first device, which may end the process.

    Returns what it shows, and whether that is right.
    """

def check_vendor(target: str, name: str) -> str | None:
    """Opens the vendor and runs one check. Returns what is wrong. May never return."""

def find_kernels(file: str, names: Sequence[str]) -> list[str] | None:
    """Those of the operators that a library has kernels for; ``None`` if it has no kernels at all."""

# Implementations.

def register_impls(
    namespace: str,
    names: Sequence[str],
    impl_id: str,
    kind: str,
    vendor: str | None = None,
    backend: str | None = None,
    priority: int = 0,
    unavailable_reason: str | None = None,
    cpu_fallback: bool = False,
) -> int:
    """Registers one native implementation for many operators of a namespace. Returns their number.

    Registers all or none. ``backend`` defaults to the vendor's name, or to the kind. With
    ``cpu_fallback`` the adapter runs the operator on copies of its arguments on the CPU.
    """

def register_impl(
    op: str,
    impl_id: str,
    kind: str,
    fn: Callable[..., Any] | None = None,
    vendor: str | None = None,
    backend: str | None = None,
    priority: int = 0,
    unavailable_reason: str | None = None,
    on_request: str | None = None,
    only: Sequence[tuple[str, str]] = (),
    verdict: tuple[str, str] | None = None,
) -> int:
    """Registers one implementation, native or the Python callable ``fn``. Returns its token, 0 if native.

    ``on_request`` is the reason why only a route of the operator's own may choose it. ``only`` are
    conditions on calls, as (condition, meaning); ``verdict`` is (verdict, evidence). The explanation shows
    both. The adapter enforces the conditions.
    """

def declare_composite(namespace: str, names: Sequence[str]) -> None:
    """Declares operators that torch decomposes into others when nothing is registered for them.

    A route for such an operator is refused while nothing is registered for it.
    """

def unregister(op: str, impl_id: str) -> None:
    """Removes an implementation and releases its callable."""

def foreign(token: int) -> Callable[..., Any]:
    """The callable behind a token. Raises ``LookupError`` when it was unregistered."""

# The plan.

def resolve() -> None:
    """Resolves and publishes the plan, if anything changed since the last time."""

def reload() -> None:
    """Reads files and environment again, then resolves. On an error nothing changes."""

def plan() -> Plan:
    """``ops``: every operator by name (except those that torch decomposes), sorted, each as from
    :func:`explain`; ``unmatched``: routes for namespaces without registrations, as
    ``(operator, source)``."""

def graphs() -> tuple[bool, str]:
    """Whether the configuration asks for automatic graphs, and its line that says so."""

def queue() -> tuple[bool, str]:
    """Whether the configuration has a second thread hand calls to the vendor's library, and its line that says so."""

def explain(op: str) -> PlanEntry:
    """The decision for an operator: ``op``, ``route`` (``native``, ``foreign``, ``blocked``,
    ``cpu_fallback``), ``composite`` (whether torch decomposes it into others), ``winner`` (an
    ``impl_id`` or ``None``), ``backend``, ``selector``, ``selectors``, ``explicit``,
    ``decided_by`` and ``candidates`` (the winner first; each ``impl_id``, ``kind``, ``vendor``,
    ``backend``, ``priority``, ``chosen`` and ``reason``)."""

def explain_text(op: str) -> str:
    """:func:`explain` as text for people."""

def ops(prefix: str | None = None) -> list[str]:
    """Qualified names of the registered operators, sorted."""

def plan_lock() -> str:
    """The plan as the text of a lock file. Equal plans give equal texts."""

def check_lock(path: str | PathLike[str]) -> None:
    """Raises :class:`ConfigError` with the differences from a lock file."""

# Routes.

def set_route(op: str, selector: str) -> None:
    """Routes an operator, above files and environment."""

def clear_route(op: str | None = None) -> int:
    """Removes one route of :func:`set_route`, or all. Returns the number of removed routes."""

def push_context(routes: Mapping[str, str]) -> int:
    """Puts a context of routes on top and returns the token for :func:`pop_context`."""

def pop_context(token: int) -> None:
    """Removes a context at any place of the order."""

def set_strict(enabled: bool | None) -> None:
    """Sets strict mode; ``None`` leaves the decision to the configuration."""

def strict_override() -> bool | None:
    """The last value of :func:`set_strict`."""

def log_dispatch(op: str, backend: str) -> None:
    """Writes the line of a dispatch to ``sys.stderr`` if the configuration asks to log dispatches."""

# Operators that Python calls.

class Operator:
    """An operator whose implementations are Python functions of one signature.

        >>> scale = Operator("demo::scale")
        >>> scale.offer(lambda x: 2 * x, impl_id="demo.python", kind="reference")
        >>> scale(21)
        42

    There is one object per name. It asks the plan once, and again after a change; a call costs one
    comparison more than the function.

    An implementation declines a call by raising :class:`UnsupportedError` before it has written to
    anything: the next usable one serves the call, which is counted as a fallback, and an error in
    strict mode.

    An adapter that chooses by itself passes ``resolve`` and ``failed``; methods about the plan then raise
    TypeError. ``resolve(op)`` returns the function to call. ``failed(op, target, error, args, kwargs)`` is
    called when that function raises; it returns the result of another function, or NotImplemented to have
    the error raised.
    """

    name: str
    __name__: str
    #: The function that was called last; unset before the first call.
    target: Callable[..., Any]
    def __new__(
        cls,
        name: str,
        *,
        resolve: Callable[[Operator], Callable[..., Any]] | None = None,
        failed: Callable[..., Any] | None = None,
    ) -> Operator: ...
    def offer(
        self,
        fn: Callable[..., Any],
        *,
        impl_id: str,
        kind: str,
        vendor: str | None = None,
        backend: str | None = None,
        priority: int = 0,
        unavailable: str | None = None,
        on_request: str | None = None,
    ) -> None:
        """Registers ``fn``.

        ``unavailable`` is a reason why it can never be chosen, ``on_request`` a reason why only a route of
        the operator's own may choose it. The explanation shows both.
        """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the implementation that the plan chose. Raises :class:`UnsupportedError` without one."""

    @property
    def winner(self) -> str:
        """The implementation that calls go to now."""

    @property
    def calls(self) -> dict[str, int]:
        """Implementation → number of calls that it served since the counters were reset."""

    def reset(self) -> None:
        """Sets the counts to zero."""

    def implementation(self, impl_id: str) -> Callable[..., Any]:
        """The function that was registered as ``impl_id``; ValueError when there is none."""

    def bind(self, epoch: int, target: Callable[..., Any]) -> None:
        """Keeps the result of ``resolve`` for ``epoch``, which was read before resolving."""

class _Override:
    policy: Any

class _Operator:
    """Functions for an adapter that chooses by itself, beside :class:`Operator`."""

    #: The override of the current thread or task. Only operators with ``resolve`` follow it.
    policy_variable: ContextVar[Any]
    def epoch(self) -> int:
        """The number of changes of the plan, plus the calls of :meth:`advance`."""

    def advance(self) -> int:
        """Makes every operator resolve again at its next call. Returns the new epoch."""

    def enter(self) -> None:
        """Tells that a thread or task entered a region with an override."""

    def leave(self) -> None: ...
    def by_name(
        self,
        operators: dict[str, Operator],
        missing: Callable[[str], Operator],
        plain: Callable[..., Any],
    ) -> Callable[..., Any]:
        """A function that calls the operator named by its first argument.

        ``missing(name)`` returns an operator that ``operators`` lacks. ``plain`` serves calls without a
        positional argument.
        """

    def policy_override(self, policy: Any) -> _Override:
        """A value for ``policy_variable``."""

    def bind_under(
        self, over: _Override, op: Operator, epoch: int, target: Callable[..., Any]
    ) -> None:
        """Keeps the result of ``resolve`` under an override, for ``epoch``."""

operator: _Operator

# Counters.

def counters() -> dict[str, dict[str, int]]:
    """``calls`` and ``fallbacks`` of every operator with calls or fallbacks."""

def reset_counters() -> None:
    """Sets every counter to zero."""

def record_fallback(op: str, reason: str) -> None:
    """Counts a CPU fallback; raises in strict mode or beyond the budget."""

def fallbacks() -> list[Fallback]:
    """Every operator that fell back: ``op``, ``count`` and the ``reason`` of the first fallback."""

# Configuration.

def set_shipped_config(path: str | PathLike[str]) -> None:
    """Names the ``backends.conf`` an adapter ships: the weakest layer."""

def leave_to_framework(names: list[str]) -> None:
    """Names operators, ``aten::alias``, for which a line of a ``backends.conf`` is no error, but without effect."""

def configuration() -> dict[str, Any]:
    """The configuration of files and variables: ``files`` that were read, in order, ``backends_conf`` that routes,
    ``warnings``, ``lock``, ``vendor``, ``flaggems_source_dir``, ``gems_vendor``. Raises :class:`ConfigError`."""

def environment() -> list[_Variable]:
    """Every declared variable."""

def check_environment() -> list[tuple[str, str, str | None, bool]]:
    """``(name, message, hint, is_error)`` for each variable set here that is wrong or useless."""

def environment_flag(name: str) -> bool:
    """The value of a declared flag; False where it is not set.

    Raises ConfigError for a value that is no flag, and KeyError for a name that is not declared.
    """

def environment_markdown() -> str:
    """The text of ``docs/environment.md``."""

# Launches of Triton's kernels, for ``torch_fl.launcher``.

class CompiledKernel:
    """A kernel that a backend of Triton has compiled and loaded, with the types of the parameters it is passed.

    Raises :class:`UnsupportedError` when no vendor launches the backend's kernels.
    """

    def __new__(
        cls,
        backend: str,
        function: int,
        threads: int,
        num_ctas: int,
        shared: int,
        cooperative: bool,
        pdl: bool,
        types: list[str],
    ) -> CompiledKernel: ...

class LaunchPlan:
    """How a kind of call is launched."""

    def __new__(
        cls,
        *,
        kernel: object,
        compiled: CompiledKernel,
        passed: Sequence[tuple[int, object]],
        every: Sequence[tuple[int, object]],
        result: object,
        meta: dict[str, object],
        told: Sequence[tuple[str, int]],
        globals: Sequence[tuple[dict[str, object], str, object]],
        caches: Sequence[dict[Any, Any]],
        kept: Sequence[object],
    ) -> LaunchPlan: ...

def launch_enabled() -> bool:
    """Whether ``FLAGOS_LAUNCHER`` allows native launches. Raises :class:`ConfigError`."""

def launch_intercept(
    kind: str,
    cls: type,
    original: object,
    bind: Callable[..., list[str] | None],
    learn: Callable[..., LaunchPlan | None],
    /,
) -> tuple[Any, Any]:
    """The methods ``run`` and ``__getitem__`` that replace those of ``cls``; ``kind`` is ``"jit"`` or ``"entry"``."""

def launch_knobs(
    runtime: dict[str, Any],
    compilation: dict[str, Any],
    enter: tuple[object, list[Any]],
    exit: tuple[object, list[Any]],
    drivers: dict[str, Any],
    active: object,
    get_device: Callable[[], int],
    get_stream: Callable[[int], int],
    backend: str,
    device_type: int,
    /,
) -> None:
    """Declares Triton's knobs and driver as the objects that are read at every launch."""

def launch_constants(types: Sequence[type]) -> bool:
    """Declares the types of compile-time constants that never change. True the first time."""

def launch_tensors(
    types: tuple[type, type], offset: int, data_ptr: int, dtype: int, device_type: int
) -> None:
    """Declares how to read tensors; with an offset of 0 they are read through Python."""

def launch_read_tensor(tensor: object) -> tuple[int, int, int] | None:
    """(address, dtype, device type) as launches read them; ``None`` when they read through Python."""

def launch_pack(kind: str, number: object) -> int | None:
    """The bits of a number as a kernel's parameter; ``None`` where Triton's launcher would refuse it."""

def launch_size(kind: str) -> int:
    """Bytes of a parameter of a Triton type."""

def launch_set_recorder(recorder: Callable[..., None] | None) -> Callable[..., None] | None:
    """Sets ``recorder(kernel, grid, stream, args)``, called at this thread's launches. Returns the previous one."""

def launch_recorder() -> Callable[..., None] | None:
    """The recorder of this thread."""

def launch_statistics() -> dict[str, Any]:
    """``native``: launches, and ``fallback``: launches on the original path by reason."""

def launch_reset_statistics() -> None:
    """Sets the counts of :func:`launch_statistics` to 0."""

# Logs, for ``flagos.logs``.

def set_log_level(directives: str) -> None: ...
def connect_logs(flush: Callable[[], None]) -> None: ...
def disconnect_logs() -> None: ...
def forget_logs() -> None: ...
def take_logs(limit: int) -> list[tuple[int, str, str]]: ...
def take_dropped_logs() -> int: ...
