// SPDX-License-Identifier: Apache-2.0
// Settings of the process, of contexts and of devices, which kernels ask for.
#include <map>

#include "call.h"
#include "device.h"
#include "simulated_ascend.h"

namespace simulated_ascend {

namespace {

auto& process_parameters = *new std::map<int, int64_t>;

aclError set_parameter(Call& call, std::map<int, int64_t>& all, int option, int64_t value) {
  if (option < 0 || option > 3 || value < 0 || value > 3)
    return call.refuse(kParamInvalid, "there is no such option or value");
  all[option] = value;
  return kSuccess;
}

aclError get_parameter(Call& call, const std::map<int, int64_t>& all, int option, int64_t* value) {
  if (option < 0 || option > 3 || !value)
    return call.refuse(kParamInvalid, "there is no such option, or no output");
  const auto found = all.find(option);
  *value = found == all.end() ? 0 : found->second;
  return kSuccess;
}

} // namespace

} // namespace simulated_ascend

using namespace simulated_ascend;

ACL_FUNC aclError aclrtSetSysParamOpt(int option, int64_t value) {
  ENTER(kInit);
  return set_parameter(call, process_parameters, option, value);
}

ACL_FUNC aclError aclrtGetSysParamOpt(int option, int64_t* value) {
  ENTER(kInit);
  return get_parameter(call, process_parameters, option, value);
}

ACL_FUNC aclError aclrtCtxSetSysParamOpt(int option, int64_t value) {
  ENTER(kContext);
  return set_parameter(call, call.context().parameters, option, value);
}

ACL_FUNC aclError aclrtCtxGetSysParamOpt(int option, int64_t* value) {
  ENTER(kContext);
  return get_parameter(call, call.context().parameters, option, value);
}

ACL_FUNC int64_t simulated_ascend_deterministic(void) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto& context = thread().context;
  if (context && context->alive && context->parameters.count(0))
    return context->parameters.at(0);
  const auto found = process_parameters.find(0);
  return found == process_parameters.end() ? 0 : found->second;
}

ACL_FUNC aclError aclrtSetDeviceSatMode(int mode) {
  ENTER(kContext);
  if (mode < 0 || mode > 1)
    return call.refuse(kParamInvalid, "there is no mode " + std::to_string(mode));
  devices()[call.context().device].saturation = mode;
  return kSuccess;
}

ACL_FUNC aclError aclrtGetDeviceSatMode(int* mode) {
  ENTER(kContext);
  if (!mode)
    return call.refuse(kParamInvalid, "the output is NULL");
  *mode = devices()[call.context().device].saturation;
  return kSuccess;
}

ACL_FUNC aclError aclrtSetOpExecuteTimeOut(uint32_t) {
  ENTER(kContext);
  return kSuccess;
}

ACL_FUNC aclError aclrtSetOpWaitTimeout(uint32_t) {
  ENTER(kContext);
  return kSuccess;
}
