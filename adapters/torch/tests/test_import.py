"""How the device gets registered, and what happens when it cannot be."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from torch_fl import _shims

USE = "x = torch.ones(2, device='flagos'); print('sum', x.sum().item())"


@pytest.fixture
def run_python(run_python):
    return partial(run_python, fresh=True)


def _has_entry_point() -> bool:
    return any(e.name == "flagos" for e in importlib.metadata.entry_points(group="torch.backends"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("import torch", id="torch alone"),
        pytest.param("import torch, torch_fl", id="torch first"),
        pytest.param("import torch_fl, torch", id="torch_fl first"),
        pytest.param("import torch_fl, torch, importlib; import torch_fl", id="twice"),
        pytest.param("import torch_fl.flagos, torch", id="submodule first"),
        pytest.param("import torch; import torch.flagos", id="as a submodule of torch"),
    ],
)
def test_device_works_after(script, run_python):
    assert _has_entry_point()
    assert "sum 2.0" in run_python(f"{script}\n{USE}").stdout


def test_without_autoload_the_device_needs_torch_fl(run_python):
    script = f"""
    import torch
    assert not hasattr(torch, "flagos")
    try:
        torch.device("flagos")
    except RuntimeError:
        print("unknown")
    import torch_fl
    {USE}
    """
    out = run_python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    assert out.split() == ["unknown", "sum", "2.0"]


def test_importing_initialises_no_device(run_python):
    script = """
    import torch, torch_fl
    torch.manual_seed(0)
    torch.flagos.is_available(), torch.flagos.device_count()
    print(torch.flagos.is_initialized())
    """
    assert run_python(script).stdout.strip() == "False"


def test_importing_does_not_import_the_compiler(run_python):
    script = """
    import sys, torch, torch_fl
    print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
    """
    assert run_python(script).stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("flag_gems") is not None, reason="FlagGems is installed"
)
def test_without_flaggems_nothing_is_imported_for_it_until_it_is_asked_for(run_python, tmp_path):
    script = """
    import sys, torch, torch_fl
    print("torch_fl.flaggems.tables" in sys.modules, "torch_fl.flaggems.package" in sys.modules)
    try:
        torch_fl.enable_flaggems()
    except RuntimeError as error:
        print(error)
    print(torch_fl.is_flaggems_enabled())
    """
    first, report, last = run_python(script).stdout.splitlines()
    assert (first, last) == ("False False", "False")
    assert report.startswith("FlagGems cannot be used: it is not installed")
    first, report, _ = run_python(script, FLAGGEMS_SOURCE_DIR=str(tmp_path)).stdout.splitlines()
    assert first == "True True" and "not installed" not in report


def test_a_policy_that_does_not_exist_is_refused_without_flaggems_too(run_python):
    script = """
    try:
        import torch_fl
    except ValueError as error:
        print(error)
    """
    out = run_python(script, FLAGOS_FLAGGEMS="most", TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    assert out.startswith("FLAGOS_FLAGGEMS=most: expected one of off, auto")


def test_a_flaggems_that_lacks_a_requirement_is_refused_at_the_start(run_python, tmp_path):
    """FLAGOS_FLAGGEMS and `enable_flaggems` name it, with the command that installs what is absent."""
    package, metadata = tmp_path / "flag_gems", tmp_path / "flag_gems-5.0.2.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").write_text("import absent_one\n_FULL_CONFIG = (('mm', mm),)\n")
    required = (
        "Requires-Dist: absent-one ==2.0\nRequires-Dist: pytest\nRequires-Dist: x ; extra == 'y'\n"
    )
    (metadata / "METADATA").write_text(f"Name: flag_gems\nVersion: 5.0.2\n{required}")
    script = """
    import torch
    def refused(call):
        try:
            call()
        except (ImportError, RuntimeError) as error:
            print(error)
    refused(lambda: __import__("torch_fl"))
    refused(lambda: __import__("torch_fl").enable_flaggems())
    """
    expected = (
        "FlagGems cannot be imported without absent-one: pip install --no-deps 'absent-one==2.0'"
    )
    variables = {"PYTHONPATH": str(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    policy = run_python(script, FLAGOS_FLAGGEMS="all", **variables).stdout
    assert policy.splitlines()[0] == f"FLAGOS_FLAGGEMS=all: {expected}"
    assert run_python(script, **variables).stdout.splitlines() == [expected]


@pytest.mark.host  # where torch has CUDA, `import torch` alone does not register the device
def test_a_pack_is_refused_without_flaggems(run_python):
    """By torch_fl and torch.flagos; a program that imports torch alone goes on with a warning."""
    script = """
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch
    print([str(w.message) for w in caught if "flagos" in str(w.message)])
    print(torch.ones(2).sum().item())
    for use in (lambda: __import__("torch_fl"), lambda: torch.flagos.synchronize()):
        try:
            use()
        except Exception as error:
            print(error)
    """
    said = run_python(script, FLAGOS_PACK="my.flagospack").stdout.splitlines()
    reason = (
        "my.flagospack is not used: a pack serves FlagGems' operators, and FlagGems cannot be used"
    )
    assert len(said) == 4 and said[1] == "2.0"
    assert all(reason in line for line in (said[0], *said[2:])), said
    assert "it is not installed" in said[0] and "or unset FLAGOS_PACK" in said[0]


def test_another_torch_is_refused_with_what_to_install(run_python):
    script = """
    import os
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch, sys, types
    torch.__version__ = "2.10.1"
    try:
        import torch_fl
    except ImportError as error:
        print(error)
    print(torch.ones(2).sum().item(), torch._C._get_privateuse1_backend_name())
    """
    message, state = run_python(script).stdout.strip().splitlines()
    assert "torch 2.10.1 is installed" in message
    assert all(minor in message for minor in _shims.present())
    assert state == "2.0 privateuseone"


AUTOLOAD_FAILURE = """
import sys, types, warnings
{setup}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
print("warned", [str(w.message) for w in caught if "flagos" in str(w.message)])
print("cpu", torch.ones(2).sum().item())
print("available", torch.flagos.is_available(), torch.flagos.device_count())
try:
    torch.flagos.synchronize()
except ImportError as error:
    print("use", error)
try:
    import torch_fl
except (ImportError, RuntimeError) as error:
    print("import", error)
"""
# torch reads its version from the module torch.version.
WRONG_TORCH = """
from importlib.machinery import PathFinder

class Older:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch.version":
            return None
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def run_and_lie(module):
            run(module)
            module.__version__ = "2.10.1"
        spec.loader.exec_module = run_and_lie
        return spec

sys.meta_path.insert(0, Older)
"""


def test_autoload_with_another_torch_warns_and_leaves_torch_usable(run_python):
    out = run_python(AUTOLOAD_FAILURE.format(setup=WRONG_TORCH)).stdout
    lines = dict(line.split(" ", 1) for line in out.strip().splitlines())
    assert "torch 2.10.1 is installed" in lines["warned"]
    assert lines["cpu"] == "2.0"
    assert lines["available"] == "False 0"
    assert "torch 2.10.1 is installed" in lines["use"]
    assert "torch 2.10.1 is installed" in lines["import"]


BROKEN = {
    "no flagos": "sys.modules['flagos'] = None",
    "no core": "sys.modules['flagos._core'] = None",
    "no extension": "sys.modules['torch_fl._C'] = None",
    "an older part": "sys.modules['torch_fl.waiting'] = types.ModuleType('torch_fl.waiting')",
    "a part that is gone": "sys.modules['torch_fl.native'] = None",
    "a core that panics": """
class Panic(BaseException): pass  # as pyo3's
class Core(types.ModuleType):
    def __getattr__(self, name):
        raise AttributeError(name) if name.startswith("__") else Panic("the core is broken")
sys.modules['flagos._core'] = Core('flagos._core')
""",
    "an error without text": """
class Silent(Exception):
    def __str__(self): raise ValueError
class Core(types.ModuleType):
    def __getattr__(self, name):
        raise AttributeError(name) if name.startswith("__") else Silent
sys.modules['flagos._core'] = Core('flagos._core')
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_whatever_is_broken_torch_can_be_imported(what, run_python):
    script = AUTOLOAD_FAILURE.format(setup=BROKEN[what])
    script = script.replace("(ImportError, RuntimeError)", "BaseException")
    script = script.replace('print("import", error)', 'print("import", type(error).__name__)')
    out = run_python(script).stdout
    lines = dict(line.split(" ", 1) for line in out.strip().splitlines())
    assert "the flagos device was not registered" in lines["warned"]
    assert lines["cpu"] == "2.0" and lines["available"] == "False 0"
    assert "the flagos device was not registered" in lines["use"]
    assert "import" in lines


@pytest.mark.slow
@pytest.mark.parametrize("module", ["flagos._core", "torch_fl._C", "the shim"])
def test_a_native_module_that_was_not_written_to_its_end_ends_no_process(
    module, run_python, tmp_path
):
    """Opening one is a bus error, which nothing can catch."""
    if module == "the shim":
        file = _shims.shim_for(torch.__version__)
    else:
        file = Path(importlib.util.find_spec(module).origin)
    for name in ("flagos", "torch_fl"):
        origin = Path(importlib.util.find_spec(name).origin).parent
        shutil.copytree(origin, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    folder = "torch_fl/_shims" if module == "the shim" else file.parent.name
    copy = tmp_path / folder / file.name
    for length in (3, 60, 200_000, file.stat().st_size - 1):
        with copy.open("r+b") as opened:
            opened.truncate(length)
        script = "import torch; print(torch.ones(2).sum().item())"
        done = run_python(script, PYTHONPATH=str(tmp_path))
        assert done.stdout.strip() == "2.0"
        assert "the flagos device was not registered" in done.stderr, length
        copy.write_bytes(file.read_bytes())
    done = run_python("import torch; torch.ones(2, device='flagos')", PYTHONPATH=str(tmp_path))
    assert "Warning" not in done.stderr


def test_torch_can_be_imported_where_warnings_are_errors(run_python):
    script = """
    import sys, warnings
    sys.modules["flagos._core"] = None
    warnings.simplefilter("error")
    import torch
    print(torch.ones(2).sum().item())
    """
    done = run_python(script)
    assert done.stdout.strip() == "2.0"
    assert "RuntimeWarning: the flagos device was not registered" in done.stderr


def test_after_a_subinterpreter_has_loaded_the_core_torch_can_be_imported(run_python):
    script = """
    import importlib, warnings
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
            break
        except ImportError:
            pass
    from flagos import _core
    made = interpreters.create()
    try:
        interpreters.run_string(made, "import flagos._core")
    except Exception as error:
        print("refused", error)
    interpreters.destroy(made)
    import torch
    print(torch.ones(2, device="flagos").sum().item())
    """
    out = run_python(script).stdout
    assert out.splitlines()[-1] == "2.0"


LATE_FAILURE = """
import sys, warnings
from flagos.on_import import when_imported

def fails():
    raise LookupError("it failed") from ValueError("the cause")

def loaded():
    sys.modules["torch_fl.aten.routing"].declare_native_implementations = fails

when_imported("torch_fl.aten.routing", loaded)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
print("warned", *[str(w.message) for w in caught if "flagos" in str(w.message)])
for _ in range(2):
    try:
        import torch_fl
    except LookupError as error:
        print("import", error, "by", error.__cause__)
print("cpu", torch.ones(2).sum().item())
"""


@pytest.mark.parametrize("autoload", ["1", "0"])
def test_a_failure_with_our_kernels_in_torch_is_raised_again(autoload, run_python):
    # Beside a device of torch's own, too, the device is asked for when torch is imported.
    asked = {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "FLAGOS_ACCELERATOR": "flagos"}
    out = run_python(LATE_FAILURE, **asked).stdout
    warned, *imports, cpu = out.splitlines()
    because = " the flagos device was not registered. LookupError: it failed"
    assert warned == "warned" + because * int(autoload)
    assert imports == ["import it failed by the cause"] * 2
    assert cpu == "cpu 2.0"


def test_what_fails_before_is_tried_again(run_python):
    script = f"""
    import sys, torch
    sys.modules["torch_fl._C"] = None
    try:
        import torch_fl
    except ImportError:
        del sys.modules["torch_fl._C"]
    import torch_fl
    {USE}
    """
    assert "sum 2.0" in run_python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        pytest.param("torch.utils.rename_privateuse1_backend('npu')", "'npu'", id="by name"),
        pytest.param(
            "lib = torch.library.Library('aten', 'IMPL');"
            "lib.impl('empty.memory_format', lambda *a, **k: None, 'PrivateUse1')",
            "registered kernels",
            id="by kernels",
        ),
    ],
)
def test_another_owner_of_privateuse1_is_named(claim, evidence, run_python):
    script = f"""
    import torch
    {claim}
    try:
        import torch_fl
    except RuntimeError as error:
        print(error)
    print(torch.ones(2).sum().item())
    """
    message, usable = run_python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.splitlines()
    assert evidence in message and "uninstall that plugin" in message
    assert usable == "2.0"


@pytest.mark.host
def test_with_another_autoloaded_plugin_both_the_cpu_and_that_plugin_work(run_python, tmp_path):
    (tmp_path / "other_plugin.py").write_text(
        "def autoload():\n    import torch\n    torch.utils.rename_privateuse1_backend('npu')\n"
    )
    dist = tmp_path / "other_plugin-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: other-plugin\nVersion: 1.0\n")
    (dist / "entry_points.txt").write_text("[torch.backends]\nnpu = other_plugin:autoload\n")
    out = run_python(AUTOLOAD_FAILURE.format(setup=""), PYTHONPATH=str(tmp_path)).stdout
    lines = dict(line.split(" ", 1) for line in out.strip().splitlines())
    assert all("'npu'" in lines[when] for when in ("warned", "use", "import"))
    assert lines["cpu"] == "2.0" and lines["available"] == "False 0"


@pytest.mark.host  # beside CUDA the place is taken when the device is asked for
def test_a_plugin_that_comes_later_is_refused_by_torch(run_python):
    script = f"""
    import torch
    try:
        torch.utils.rename_privateuse1_backend("npu")
    except RuntimeError as error:
        print("refused")
    {USE}
    """
    assert run_python(script).stdout.split() == ["refused", "sum", "2.0"]


def test_registering_again_changes_nothing(run_python):
    script = f"""
    import torch, torch_fl, importlib
    from torch_fl import _register
    _register.register(); torch_fl._autoload(); importlib.reload(torch_fl)
    {USE}
    """
    assert "sum 2.0" in run_python(script).stdout


def test_an_extension_that_does_not_open_is_explained(run_python):
    script = """
    import sys
    sys.modules["torch_fl._C"] = None
    import torch
    try:
        import torch_fl
    except ImportError as error:
        print(error)
    """
    out = run_python(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    assert "could not be opened" in out and "flagos doctor" in out


def test_a_second_copy_of_the_core_is_refused(run_python, tmp_path):
    script = f"""
    import importlib.util, pathlib, shutil
    from flagos import _core
    copy = pathlib.Path({str(tmp_path)!r}) / pathlib.Path(_core.__file__).name
    shutil.copy(_core.__file__, copy)
    spec = importlib.util.spec_from_file_location("_core", copy)
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except ImportError as error:
        print(error)
    """
    out = run_python(script).stdout
    assert "is loaded already, from" in out and str(tmp_path) in out


INTERRUPTED = """
import gc, signal, torch
used = []

def use(*_):
    used.append(torch.ones(2, device="flagos").sum().item())

class Leaving:
    def __init__(self): self.itself = self
    def __del__(self): use()

{interrupt}
for _ in range(3):
    x = torch.ones(4, device="flagos") + 1
    torch.flagos.init()
while not used:
    Leaving(); gc.collect(); x + 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(set(used), x.sum().item())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "interrupt",
    [
        pytest.param(
            # Each arms the next: where the first use takes long, signals at intervals would only pile up.
            "def again(*_): use(); signal.setitimer(signal.ITIMER_REAL, 1e-3)\n"
            "signal.signal(signal.SIGALRM, again); signal.setitimer(signal.ITIMER_REAL, 1e-4)",
            id="signal",
        ),
        pytest.param(
            "gc.set_threshold(1); kept = [Leaving() for _ in range(9)]; del kept", id="finalizer"
        ),
        pytest.param(
            # Exactly there: in the middle of the initialisation.
            "from torch_fl.flagos import _lifecycle as life; real = life._core\n"
            "def init(): life._core = real; real.init(); use()\n"
            "life._core = type('Core', (), dict(init=staticmethod(init)))",
            id="within",
        ),
        pytest.param(
            # While the modules that the first use needs are run for the first time.
            "import sys\nseen = []\n"
            "def trace(frame, *_):\n"
            "    name = frame.f_code.co_filename\n"
            "    if not seen and frame.f_code.co_name == '<module>' and '/flagos/' in name:\n"
            "        seen.append(name); sys.settrace(None); use()\n"
            "sys.settrace(trace); torch.ones(1, device='flagos'); sys.settrace(None); use()",
            id="importing",
        ),
    ],
)
def test_what_interrupts_the_first_use_may_use_the_device(interrupt, run_python):
    # Registered by then: what interrupts the registration finds no device.
    out = run_python(INTERRUPTED.format(interrupt=interrupt), FLAGOS_ACCELERATOR="flagos").stdout
    assert out.strip() == "{2.0} 8.0"
