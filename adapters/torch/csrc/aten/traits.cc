// SPDX-License-Identifier: Apache-2.0
#include "aten/traits.h"

#include "runtime/native.h"

namespace flagos {

namespace {

// Bit i: argument i is named.
uint64_t argument_bits(const ArgumentNames& names, const c10::FunctionSchema& schema) {
  uint64_t bits = 0;
  for (const size_t place : places_of(names, schema)) {
    bits |= uint64_t(1) << place;
  }
  return bits;
}

// Whether torch raises the version counters of what the operator writes in no kernel of its own. It does not for lists,
// nor for composites that copy into `out`: there the copy would count, but here it runs below the counting.
bool leaves_versions_to_kernel(const c10::OperatorHandle& op, const std::string& name, const Particulars& particulars) {
  if (particulars.has(kCountsVersions)) {
    return true;
  }
  return name.rfind("aten::", 0) == 0 && op.schema().is_mutable() && !particulars.has(kKeepsVersions) &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
      !op.hasKernelForDispatchKey(native->dense) && !op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
}

} // namespace

size_t place_of(std::string_view name, const c10::FunctionSchema& schema) {
  const auto place = schema.argumentIndexWithName(name);
  TORCH_INTERNAL_ASSERT(place.has_value(), schema.operator_name(), " has no argument ", name);
  return static_cast<size_t>(*place);
}

std::vector<size_t> places_of(const ArgumentNames& names, const c10::FunctionSchema& schema) {
  std::vector<size_t> places;
  for (const std::string_view name : names) {
    if (!name.empty()) {
      places.push_back(place_of(name, schema));
    }
  }
  return places;
}

Traits traits_of(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  const Particulars& particulars = particulars_of(name);
  // Only of a copy must be known that it was written.
  uint64_t writes = native->by_copies ? argument_bits(particulars.written, op.schema()) : 0;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    writes |= static_cast<uint64_t>(alias != nullptr && alias->isWrite()) << i;
  }
  return {
      writes != 0 || particulars.has(kReplacesStorage),
      writes,
      argument_bits(particulars.on_cpu, op.schema()),
      leaves_versions_to_kernel(op, name, particulars),
      particulars.has(kMetadataOnly)};
}

c10::Dict<std::string, std::vector<std::string>> listed_particulars() {
  c10::Dict<std::string, std::vector<std::string>> entries;
  for (const Particulars& entry : kParticulars) {
    std::vector<std::string> arguments;
    for (const ArgumentNames& names : {entry.written, entry.on_cpu, entry.statistics, entry.deciding}) {
      for (const std::string_view name : names) {
        if (!name.empty()) {
          arguments.emplace_back(name);
        }
      }
    }
    entries.insert(std::string(entry.name), std::move(arguments));
  }
  return entries;
}

} // namespace flagos
