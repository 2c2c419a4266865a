// SPDX-License-Identifier: Apache-2.0
#include "following/modes.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>

#include <tuple>

#include "runtime/native.h"

namespace flagos::following {

namespace {

using at::Context;

// A setting in `kWidth` bits of a word.
template <unsigned kWidth, class Get, class Set>
struct Setting {
  static constexpr unsigned width = kWidth;
  Get get;
  Set set;
};

template <unsigned kWidth, class Get, class Set>
constexpr Setting<kWidth, Get, Set> setting(Get get, Set set) {
  return {get, set};
}

template <auto kGet, auto kSet>
constexpr auto flag() {
  return setting<1>(
      [](Context& context) { return static_cast<uint64_t>((context.*kGet)()); },
      [](Context& context, uint64_t value) { (context.*kSet)(value != 0); });
}

// Whether products of halves may be added up in halves, and split for that.
template <auto kGet, auto kSet>
constexpr auto reduction() {
  using at::CuBLASReductionOption;
  return setting<2>(
      [](Context& context) { return static_cast<uint64_t>((context.*kGet)()); },
      [](Context& context, uint64_t value) {
        const auto option = static_cast<CuBLASReductionOption>(value);
        (context.*kSet)(
            option == CuBLASReductionOption::AllowReducedPrecisionWithSplitK,
            option != CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK);
      });
}

template <at::Float32Backend kBackend, at::Float32Op kOp>
constexpr auto precision() {
  return setting<2>(
      [](Context& context) { return static_cast<uint64_t>(context.float32Precision(kBackend, kOp)); },
      [](Context& context, uint64_t value) {
        context.setFloat32Precision(kBackend, kOp, static_cast<at::Float32Precision>(value));
      });
}

constexpr std::tuple kSettings(
    setting<2>(
        [](Context& context) {
          return static_cast<uint64_t>(context.deterministicAlgorithms()) |
              static_cast<uint64_t>(context.deterministicAlgorithmsWarnOnly()) << 1U;
        },
        [](Context& context, uint64_t value) {
          context.setDeterministicAlgorithms((value & 1U) != 0, (value & 2U) != 0);
        }),
    flag<&Context::deterministicFillUninitializedMemory, &Context::setDeterministicFillUninitializedMemory>(),
    flag<&Context::userEnabledCuDNN, &Context::setUserEnabledCuDNN>(),
    flag<&Context::benchmarkCuDNN, &Context::setBenchmarkCuDNN>(),
    flag<&Context::deterministicCuDNN, &Context::setDeterministicCuDNN>(),
    flag<&Context::userEnabledMkldnn, &Context::setUserEnabledMkldnn>(),
    flag<&Context::deterministicMkldnn, &Context::setDeterministicMkldnn>(),
    flag<&Context::userEnabledNNPACK, &Context::setUserEnabledNNPACK>(),
    flag<&Context::allowFP16ReductionCPU, &Context::setAllowFP16ReductionCPU>(),
    flag<&Context::allowFP16AccumulationCuBLAS, &Context::setAllowFP16AccumulationCuBLAS>(),
    reduction<&Context::allowFP16ReductionCuBLAS, &Context::setAllowFP16ReductionCuBLAS>(),
    reduction<&Context::allowBF16ReductionCuBLAS, &Context::setAllowBF16ReductionCuBLAS>(),
    setting<4>(
        [](Context& context) { return static_cast<uint64_t>(context.blasPreferredBackend()); },
        [](Context& context, uint64_t value) { context.setBlasPreferredBackend(static_cast<at::BlasBackend>(value)); }),
    setting<4>(
        [](Context& context) { return static_cast<uint64_t>(context.linalgPreferredBackend()); },
        [](Context& context, uint64_t value) {
          context.setLinalgPreferredBackend(static_cast<at::LinalgBackend>(value));
        }),
    // Of what integers and numbers make.
    setting<8>(
        [](Context&) { return static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()); },
        [](Context&, uint64_t value) {
          c10::set_default_dtype(c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(value)));
        }),
    // Among which the host divides sums.
    setting<12>(
        [](Context&) {
          return native->host_computes() ? static_cast<uint64_t>(at::get_num_threads()) & 0xFFFU : uint64_t(0);
        },
        [](Context&, uint64_t value) { at::set_num_threads(static_cast<int>(value)); }),
    // Its tensors are others, and a call is not repeated in it.
    setting<1>(
        [](Context&) { return static_cast<uint64_t>(c10::InferenceMode::is_enabled()); },
        [](Context&, uint64_t) {}));

constexpr std::tuple kPrecisions(
    precision<at::Float32Backend::CUDA, at::Float32Op::MATMUL>(),
    precision<at::Float32Backend::CUDA, at::Float32Op::CONV>(),
    precision<at::Float32Backend::CUDA, at::Float32Op::RNN>(),
    precision<at::Float32Backend::MKLDNN, at::Float32Op::MATMUL>(),
    precision<at::Float32Backend::MKLDNN, at::Float32Op::CONV>(),
    precision<at::Float32Backend::MKLDNN, at::Float32Op::RNN>());

// Calls `function` with each setting and its place in a word, and returns the first place behind them.
template <class Settings, class Function>
constexpr unsigned for_each(const Settings& settings, unsigned place, const Function& function) {
  std::apply(
      [&](const auto&... each) {
        const auto one = [&](const auto& setting) {
          function(setting, place);
          place += setting.width;
        };
        (one(each), ...);
      },
      settings);
  return place;
}
constexpr auto kNothing = [](const auto&, unsigned) {};
static_assert(for_each(kPrecisions, for_each(kSettings, 0, kNothing), kNothing) <= 64);

template <class Function>
void for_each(bool multiplies, const Function& function) {
  const unsigned place = for_each(kSettings, 0, function);
  if (multiplies) {
    for_each(kPrecisions, place, function);
  }
}

void change(uint64_t from, uint64_t to, bool multiplies) {
  Context& context = at::globalContext();
  for_each(multiplies, [&](const auto& setting, unsigned place) {
    const uint64_t mask = (uint64_t(1) << setting.width) - 1;
    if ((from >> place & mask) != (to >> place & mask)) { // a precision that is set no longer follows another
      setting.set(context, to >> place & mask);
    }
  });
}

} // namespace

uint64_t Modes::now(bool multiplies) {
  Context& context = at::globalContext();
  uint64_t word = 0;
  for_each(multiplies, [&](const auto& setting, unsigned place) { word |= setting.get(context) << place; });
  return word;
}

Modes::Scope::Scope(uint64_t word, bool multiplies) : word_(word), before_(now(multiplies)), multiplies_(multiplies) {
  if (C10_UNLIKELY(before_ != word_)) {
    change(before_, word_, multiplies_);
  }
}

Modes::Scope::~Scope() {
  if (C10_UNLIKELY(before_ != word_)) {
    change(word_, before_, multiplies_);
  }
}

} // namespace flagos::following
