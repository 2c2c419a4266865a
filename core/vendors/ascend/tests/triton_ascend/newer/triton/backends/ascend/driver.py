"""The driver and its launchers, which ask the framework for what is its own."""

import ctypes
import hashlib
import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .utils import _build_npu_ext, get_backend_func

HEADER = """
#include <Python.h>
#include "runtime/runtime/rt.h"
#include <acl/acl.h>
{header}
"""

LAUNCHER = """
#include "precompiled.h"
static void _launch(const char* kernelName, const void* func, rtStream_t stream, int gridX, int gridY, int gridZ,
                    void* arg0, int32_t arg1) {{
  std::string name = kernelName;
  void* workspace_addr_ptr = NULL;
  uint32_t blockNum4Workspace = gridX * gridY * gridZ;
  {pre_launch}
  uint64_t totalWorkSpaceSize = {workspace} * blockNum4Workspace;
  {allocate_memory}
  {call} {{
    {pre_launch_again}
    uint32_t blockNum = gridX * gridY * gridZ;
    rtError_t ret = RT_ERROR_NONE;
    void* syncBlockLock_ptr = NULL;
    uint64_t syncBlockLockSize = {locks} * sizeof(int64_t);
    {allocate_sync_block_lock}
    if (!syncBlockLock_ptr) {{ {no_lock} }}
    std::vector<int64_t> lockInitData({locks}, 0);
    ret = rtMemcpy(syncBlockLock_ptr, syncBlockLockSize, lockInitData.data(), syncBlockLockSize,
                   RT_MEMCPY_HOST_TO_DEVICE);
    struct {{ void *ffts, *locks, *workspace, *arg0; int32_t arg1, x, y, z; }} args = {{
      nullptr, syncBlockLock_ptr, workspace_addr_ptr, arg0, arg1, gridX, gridY, gridZ}};
    ret = rtKernelLaunch(func, blockNum, static_cast<void*>(&args), sizeof(args), NULL, stream);
    {end}
  }};
  {async_launch}
}}
static PyObject* launch(PyObject*, PyObject* args) {{
  int gridX, gridY, gridZ, arg1;
  unsigned long long stream, function, arg0;
  PyObject *packed, *metadata, *enter, *leave;
  if (!PyArg_ParseTuple(args, "iiiKKOOOOKi", &gridX, &gridY, &gridZ, &stream, &function, &packed, &metadata, &enter,
                        &leave, &arg0, &arg1))
    return NULL;
  const char* name = PyUnicode_AsUTF8(PyDict_GetItemString(packed, "kernel_name"));
  _launch(name, (const void*)function, (rtStream_t)stream, gridX, gridY, gridZ, (void*)arg0, arg1);
  if (PyErr_Occurred())
    return NULL;
  Py_RETURN_NONE;
}}
static PyMethodDef methods[] = {{{{"launch", launch, METH_VARARGS, ""}}, {{NULL, NULL, 0, NULL}}}};
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "__triton_launcher", NULL, -1, methods}};
PyMODINIT_FUNC PyInit___triton_launcher(void) {{ return PyModule_Create(&definition); }}
"""


def get_cache_manager(key: str) -> Path:
    folder = Path(os.environ["TRITON_CACHE_DIR"]) / key
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class NPUUtils:
    """The helper module, which triton-ascend compiles."""

    def __init__(self) -> None:
        # Kept under this key: a test looks for it.
        (get_cache_manager("npu_utils") / "npu_utils.so").touch()

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int, mix_mode: str) -> Any:
        runtime = ctypes.CDLL("libruntime.so")

        class Binary(ctypes.Structure):
            _fields_ = (
                ("magic", ctypes.c_uint32),
                ("version", ctypes.c_uint32),
                ("data", ctypes.c_char_p),
                ("length", ctypes.c_uint64),
            )

        assert runtime.rtSetDevice(device) == 0
        handle, binary = ctypes.c_void_p(), Binary(0x41415246, 0, kernel, len(kernel))
        assert runtime.rtDevBinaryRegister(ctypes.byref(binary), ctypes.byref(handle)) == 0
        stub = ctypes.create_string_buffer(8)
        named = name.encode()
        assert runtime.rtFunctionRegister(handle, stub, named + b"_0", named, 0) == 0
        self.kept = [*getattr(self, "kept", []), stub]
        return handle.value, ctypes.addressof(stub), 0, 0


class NPULauncher:
    def __init__(self, src: Any, metadata: SimpleNamespace) -> None:
        queue = os.environ.get("TRITON_ENABLE_TASKQUEUE", "true") == "true"
        header = HEADER.format(header=get_backend_func("header_file", queue))
        text = LAUNCHER.format(
            pre_launch=get_backend_func("pre_launch", True),
            pre_launch_again=get_backend_func("pre_launch", False),
            workspace=metadata.workspace_size,
            locks=metadata.lock_num,
            allocate_memory=get_backend_func("allocate_memory", "totalWorkSpaceSize", "stream"),
            allocate_sync_block_lock=get_backend_func(
                "allocate_sync_block_lock", "syncBlockLockSize", "stream"
            ),
            call="auto launch_call = [=]() -> rtError_t" if queue else "",
            no_lock="return 1;" if queue else "return;",
            end="return ret;" if queue else "ret = rtStreamSynchronize(stream);",
            async_launch=get_backend_func("async_launch", "launch_call") if queue else "",
        )
        key = hashlib.sha256(
            (text + "".join(get_backend_func("version_hash"))).encode()
        ).hexdigest()
        folder = get_cache_manager(key)
        (folder / "precompiled.h").write_text(header)
        (folder / "launcher.cxx").write_text(text)
        file = _build_npu_ext("launcher", folder / "launcher.cxx")
        spec = importlib.util.spec_from_file_location("__triton_launcher", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.launch = module.launch

    def __call__(self, *args: Any) -> None:
        self.launch(*args)


class NPUDriver:
    def __init__(self) -> None:
        self.utils = NPUUtils()
        self.launcher_cls = NPULauncher

    def get_current_device(self) -> Any:
        return get_backend_func("get_current_device")

    def set_current_device(self, device: int) -> Any:
        return get_backend_func("set_current_device", device)

    def get_current_stream(self, device: int | None = None) -> Any:
        return get_backend_func("get_current_stream", device)

    def get_device_interface(self) -> Any:
        return get_backend_func("get_device_interface")

    def get_empty_cache_for_benchmark(self) -> Any:
        return get_backend_func("get_empty_tensor", 1024)
