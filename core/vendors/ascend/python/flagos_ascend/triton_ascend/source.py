"""C++ of the launchers of kernels: what flagos puts in the place of torch_npu's.

No header of torch is among it: the launchers compile in a second, and fit any torch.
"""

from __future__ import annotations

HEADERS = r"""
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>
#include <sys/syscall.h>
#include <unistd.h>

namespace flagos {

// Memory for one launch, of flagos_ascend.triton_ascend.memory, which learns of the release when the kernel is queued.
// The GIL is held. Without memory the address is null, and Python's error is set.
class Memory {
 public:
  Memory(const char* kind, uint64_t bytes) {
    PyObject* module = PyImport_ImportModule("flagos_ascend.triton_ascend.memory");
    if (module == nullptr)
      return;
    owner_ = PyObject_CallMethod(module, kind, "K", static_cast<unsigned long long>(bytes));
    Py_DECREF(module);
    PyObject* number = owner_ == nullptr ? nullptr : PyObject_CallMethod(owner_, "data_ptr", nullptr);
    if (number == nullptr)
      return;
    address_ = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(owner_);
    PyErr_Restore(type, value, trace);
  }
  void* address() const {
    return address_;
  }

 private:
  PyObject* owner_ = nullptr;
  void* address_ = nullptr;
};

// The runtime's answer to a launch: what is not 0 becomes Python's error, unless there is one already.
inline void launched(const char* kernel, int code) {
  if (code == 0 || PyErr_Occurred())
    return;
  const char* text = aclGetRecentErrMsg();
  PyErr_Format(
      PyExc_RuntimeError,
      "Triton kernel %s was not launched: the Ascend runtime returned %d%s%s",
      kernel,
      code,
      text == nullptr ? "" : ": ",
      text == nullptr ? "" : text);
}

} // namespace flagos
"""
"""To be included after `Python.h` and `acl/acl.h`."""


def memory(kind: str, nbytes: str, pointer: str) -> str:
    """Declares memory of a kind (a function of `memory`) until the end of the block, and sets `pointer` to it."""
    name = f"flagos_{kind}"
    return f'flagos::Memory {name}("{kind}", {nbytes});\n    {pointer} = {name}.address();'


def launch(function: str) -> str:
    """Calls the C++ function that launches, which returns the runtime's code, at once on this thread.

    A launch only queues the kernel. A grid without programs launches nothing.
    """
    return (
        "if (!PyErr_Occurred() && gridX > 0 && gridY > 0 && gridZ > 0)\n"
        f"     flagos::launched(name.c_str(), {function}());"
    )
