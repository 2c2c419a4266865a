// SPDX-License-Identifier: Apache-2.0
#include "distributed/comm.h"

#include <algorithm>
#include <cstring>

#include "runtime/stream.h"

namespace flagos {

const FlagosCommApi* comm_api = nullptr;

void open_comm(const FlagosCommApi* api) {
  TORCH_CHECK(
      api->abi_version == FLAGOS_COMM_ABI_VERSION && api->struct_size >= sizeof(FlagosCommApi),
      "torch_fl was built for version ",
      FLAGOS_COMM_ABI_VERSION,
      " of flagos' collectives, the installed flagos has version ",
      api->abi_version,
      "; install flagos and torch-fl of the same version");
  comm_api = api;
}

void raise_comm(int32_t status) {
  const std::string message = comm_api->last_error();
  switch (status) {
    case FLAGOS_COMM_INVALID_ARGUMENT:
      TORCH_CHECK_VALUE(false, message);
    case FLAGOS_COMM_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    default:
      TORCH_CHECK_WITH(DistBackendError, false, message);
  }
  // TORCH_CHECK's macros are not marked noreturn.
  throw std::runtime_error(message);
}

uint32_t comm_dtype(c10::ScalarType type) {
  using c10::ScalarType;
  switch (type) {
    case ScalarType::Byte:
      return FlagosCommDType_UInt8;
    case ScalarType::Char:
      return FlagosCommDType_Int8;
    case ScalarType::Short:
      return FlagosCommDType_Int16;
    case ScalarType::Int:
      return FlagosCommDType_Int32;
    case ScalarType::Long:
      return FlagosCommDType_Int64;
    case ScalarType::UInt16:
      return FlagosCommDType_UInt16;
    case ScalarType::UInt32:
      return FlagosCommDType_UInt32;
    case ScalarType::UInt64:
      return FlagosCommDType_UInt64;
    case ScalarType::Half:
      return FlagosCommDType_Float16;
    case ScalarType::BFloat16:
      return FlagosCommDType_BFloat16;
    case ScalarType::Float:
      return FlagosCommDType_Float32;
    case ScalarType::Double:
      return FlagosCommDType_Float64;
    case ScalarType::Bool:
      return FlagosCommDType_Bool;
    case ScalarType::ComplexFloat:
      return FlagosCommDType_Complex64;
    case ScalarType::ComplexDouble:
      return FlagosCommDType_Complex128;
    case ScalarType::Float8_e4m3fn:
      return FlagosCommDType_Float8E4M3Fn;
    case ScalarType::Float8_e5m2:
      return FlagosCommDType_Float8E5M2;
    case ScalarType::Float8_e4m3fnuz:
      return FlagosCommDType_Float8E4M3FnUz;
    case ScalarType::Float8_e5m2fnuz:
      return FlagosCommDType_Float8E5M2FnUz;
    default:
      return FlagosCommDType_Bytes;
  }
}

namespace {

// Whether `failure` of a store says that a key did not come in time, and not that the store is gone.
bool only_late(const std::exception& failure, c10d::Store& store, const std::string& key) {
  if (dynamic_cast<const c10::DistStoreError*>(&failure) != nullptr) {
    return true;
  }
  if (dynamic_cast<const c10::DistNetworkError*>(&failure) != nullptr) {
    return false;
  }
  // A FileStore says it with a plain error, and stores written in Python with any: one that answers is there.
  try {
    (void)store.check({key});
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

int32_t tell(const std::exception& failure, bool late, char* error, uint64_t capacity) {
  const auto* ours = dynamic_cast<const c10::Error*>(&failure);
  const char* what = ours != nullptr ? ours->what_without_backtrace() : failure.what();
  const size_t length = std::min<size_t>(std::strcspn(what, "\n"), capacity - 1);
  std::memcpy(error, what, length);
  error[length] = '\0';
  return late ? FLAGOS_COMM_TIMEOUT : FLAGOS_COMM_SYSTEM;
}

using StorePtr = c10::intrusive_ptr<c10d::Store>;

c10d::Store& store_of(void* context) {
  return **static_cast<StorePtr*>(context);
}

int32_t
store_set(void* context, const char* key, const uint8_t* value, uint64_t length, char* error, uint64_t capacity) {
  try {
    store_of(context).set(key, std::vector<uint8_t>(value, value + length));
    return 0;
  } catch (const std::exception& failure) {
    return tell(failure, /*late=*/false, error, capacity);
  }
}

int32_t store_get(
    void* context,
    const char* key,
    uint64_t timeout_ms,
    void (*take)(void* taker, const uint8_t* value, uint64_t length),
    void* taker,
    char* error,
    uint64_t capacity) {
  c10d::Store& store = store_of(context);
  try {
    store.wait({key}, std::chrono::milliseconds(std::max<uint64_t>(timeout_ms, 1)));
    const std::vector<uint8_t> value = store.get(key);
    take(taker, value.data(), value.size());
    return 0;
  } catch (const std::exception& failure) {
    return tell(failure, only_late(failure, store, key), error, capacity);
  }
}

void store_release(void* context) {
  delete static_cast<StorePtr*>(context);
}

int32_t use_device(int32_t device, char* error, uint64_t capacity) {
  try {
    set_current_device(static_cast<c10::DeviceIndex>(device));
    return 0;
  } catch (const std::exception& failure) {
    return tell(failure, /*late=*/false, error, capacity);
  }
}

} // namespace

CommGroup::CommGroup(
    const GroupSettings& settings,
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::chrono::milliseconds timeout) {
  FlagosVendorInfo vendor{};
  vendor.struct_size = sizeof(vendor);
  check(core->vendor(&vendor));
  FlagosCommConfig config{};
  config.engine = settings.engine.c_str();
  config.library = settings.library.c_str();
  config.vendor = vendor.name;
  config.vendor_engine = vendor.collective_engine;
  config.group = settings.group.c_str();
  config.dump = settings.dump_folder.c_str();
  config.rank = static_cast<uint32_t>(rank);
  config.size = static_cast<uint32_t>(size);
  config.timeout_ms = static_cast<uint64_t>(timeout.count());
  config.window = settings.window;
  config.use_device = &use_device;
  const FlagosCommStore callbacks{new StorePtr(store), &store_set, &store_get, &store_release};
  check_comm(comm_api->group_open(&config, &callbacks, &group_));
}

CommGroup::~CommGroup() {
  comm_api->group_close(group_);
}

std::string CommGroup::state() const {
  char* text = nullptr;
  check_comm(comm_api->state_json(group_, &text));
  std::string state = text;
  comm_api->string_free(text);
  return state;
}

} // namespace flagos
