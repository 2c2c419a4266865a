// SPDX-License-Identifier: Apache-2.0
// Calls on host memory, which an engine runs on a thread of the group or on the caller's.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "distributed/collective.h"

namespace flagos {

// Runs calls in order. Returns null when they are done, which is so unless `async`.
c10::intrusive_ptr<c10d::Work> issue_on_host(
    const CommGroup& group,
    int rank,
    int size,
    c10d::OpType type,
    const char* title,
    std::vector<Collective> collectives,
    std::vector<at::Tensor> outputs,
    bool async);

// Calls that wait, run or still hold tensors. A lane lets go of a call's tensors a moment after its work is complete,
// which may need the interpreter.
int64_t host_calls_in_flight();

} // namespace flagos
