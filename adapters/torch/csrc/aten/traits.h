// SPDX-License-Identifier: Apache-2.0
// The one table of what the schemas of torch's operators do not say. Other files ask it by trait, never by name, and
// once for each operator: when they register a kernel, or when they are compiled.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flagos {

// A set of these is their sum.
enum Trait : uint32_t {
  kMetadataOnly = 1U << 0U,     // looks at the parts and sizes of tensors only, not at their elements
  kMadeByShape = 1U << 1U,      // a composite that makes a tensor by the shape, dtype and device of another
  kLeftToTorch = 1U << 2U,      // a composite that must get the flagos tensors: it asks for devices, makes views,
                                // or reads the sizes of a tensor on whatever device
  kAsksForDevice = 1U << 3U,    // a composite that computes otherwise on the CPU: not to be taken apart
  kMadeOfViews = 1U << 4U,      // torch makes views and a copy of it, although the CPU has a kernel besides
  kTakesIndices = 1U << 5U,     // the second argument is a list of indices and masks
  kReplacesStorage = 1U << 6U,  // gives its arguments another storage
  kTracedInside = 1U << 7U,     // torch.jit.trace records what its composite calls
  kCountsVersions = 1U << 8U,   // its kernel, not torch, raises the version counters of what it writes
  kKeepsVersions = 1U << 9U,    // raises no version counter although it is in-place
  kWritesLists = 1U << 10U,     // writes lists whose bookkeeping a kernel may do: no outputs that torch makes views of
  kServedByTensor = 1U << 11U,  // torch can compute it by an operator for each tensor of its lists
  kTakesMixedLists = 1U << 12U, // its lists may have tensors on several devices
  kDrawsNothing = 1U << 13U,    // draws no numbers, although torch's tag says so
  kTakesAddedMask = 1U << 14U,  // the CPU's kernel adds its `attn_mask`: it takes no booleans
  kCountsIntegers = 1U << 15U,  // serves integers on accelerators, but the CPU's kernel takes none
  kSavesInTraining = 1U << 16U, // saves statistics only if `training`
  kTransform = 1U << 17U,       // of Fourier
  kFindsPlaces = 1U << 18U,     // the result has a row for each element of the first argument that is not zero
  kSelectsElements = 1U << 19U, // the result has those elements of `self` that `mask` selects
  kFindsDifferent = 1U << 20U,  // the results are the different elements, their places and how many there are of each
};

// Names of arguments.
using ArgumentNames = std::array<std::string_view, 4>;

struct Particulars {
  std::string_view name; // `aten::name.overload`; a family of names ends with `*`
  uint32_t traits = 0;
  ArgumentNames written = {}; // although the schema does not say so
  ArgumentNames on_cpu = {};  // may be CPU tensors beside flagos ones. Lists of indices may be anyway
  // The statistics of a normalization, to which the CPU's kernel gives the dtype of the first of `deciding` that is
  // there.
  ArgumentNames statistics = {};
  ArgumentNames deciding = {};

  constexpr bool has(Trait trait) const {
    return (traits & trait) != 0;
  }
  constexpr bool is_family() const {
    return name.ends_with('*');
  }
  constexpr bool names(std::string_view op) const {
    return is_family() ? op.starts_with(name.substr(0, name.size() - 1)) : op == name;
  }
};

constexpr uint32_t kOnLists = kCountsVersions | kWritesLists | kServedByTensor | kTakesMixedLists;

// The first entry that names an operator is its entry.
inline constexpr auto kParticulars = std::to_array<Particulars>({
    // Parts and sizes of sparse, quantized and nested tensors.
    {"aten::_indices", kMetadataOnly},
    {"aten::_values", kMetadataOnly},
    {"aten::indices", kMetadataOnly},
    {"aten::values", kMetadataOnly},
    {"aten::crow_indices", kMetadataOnly},
    {"aten::col_indices", kMetadataOnly},
    {"aten::ccol_indices", kMetadataOnly},
    {"aten::row_indices", kMetadataOnly},
    {"aten::_nnz", kMetadataOnly},
    {"aten::_dimI", kMetadataOnly},
    {"aten::_dimV", kMetadataOnly},
    {"aten::sparse_dim", kMetadataOnly},
    {"aten::dense_dim", kMetadataOnly},
    {"aten::is_coalesced", kMetadataOnly},
    {"aten::_coalesced_", kMetadataOnly},
    {"aten::alias", kMetadataOnly},
    {"aten::detach", kMetadataOnly},
    {"aten::as_strided", kMetadataOnly},
    {"aten::view", kMetadataOnly},
    {"aten::squeeze", kMetadataOnly},
    {"aten::squeeze.dim", kMetadataOnly},
    {"aten::squeeze.dims", kMetadataOnly},
    {"aten::transpose.int", kMetadataOnly},
    {"aten::detach_", kKeepsVersions},

    // Nested tensors, whose sizes are CPU tensors on every device.
    {.name = "aten::_nested_from_padded", .on_cpu = {"cpu_nested_shape_example"}},
    {.name = "aten::_nested_from_padded.out", .on_cpu = {"cpu_nested_shape_example"}},
    {.name = "aten::_nested_view_from_buffer",
     .traits = kMetadataOnly,
     .on_cpu = {"nested_size", "nested_strides", "offsets"}},
    {.name = "aten::_nested_view_from_buffer_copy", .on_cpu = {"nested_size", "nested_strides", "offsets"}},
    {.name = "aten::_nested_view_from_buffer_copy.out", .on_cpu = {"nested_size", "nested_strides", "offsets"}},
    {"aten::_nested_tensor_from_tensor_list", kLeftToTorch},

    // Factories.
    {"aten::zeros_like", kMadeByShape},
    {"aten::ones_like", kMadeByShape},
    {"aten::full_like", kMadeByShape},
    {"aten::rand_like", kMadeByShape},
    {"aten::rand_like.generator", kMadeByShape},
    {"aten::randn_like", kMadeByShape},
    {"aten::randn_like.generator", kMadeByShape},
    {"aten::randint_like", kMadeByShape},
    {"aten::randint_like.low_dtype", kMadeByShape},
    {"aten::new_zeros", kMadeByShape},
    {"aten::new_ones", kMadeByShape},
    {"aten::new_full", kMadeByShape},
    {"aten::empty_like", kLeftToTorch},
    {"aten::new_empty", kLeftToTorch},
    {"aten::new_empty_strided", kLeftToTorch},
    {"aten::_new_zeros_with_same_feature_meta", kLeftToTorch},
    {"aten::_new_zeros_with_same_feature_meta.out", kLeftToTorch},

    // Copies, sizes and memory.
    {"aten::_to_copy", kLeftToTorch},
    {"aten::_to_copy.out", kLeftToTorch},
    {"aten::is_pinned", kLeftToTorch},
    {"aten::_pin_memory", kLeftToTorch},
    {"aten::_pin_memory.out", kLeftToTorch},
    {"aten::is_same_size", kLeftToTorch},
    {"aten::_has_same_storage_numel", kLeftToTorch},
    {"aten::resize_as", kLeftToTorch},
    {"aten::resize_as.out", kLeftToTorch},
    {"aten::resize_as_", kLeftToTorch},
    {"aten::narrow_copy", kMadeOfViews},
    {"aten::pixel_shuffle", kMadeOfViews},
    {"aten::pixel_unshuffle", kMadeOfViews},

    // Composites that ask which device a tensor is on.
    {"aten::addr_", kAsksForDevice},
    {"aten::conj_physical_", kAsksForDevice},
    {"aten::convolution", kAsksForDevice | kTracedInside},
    {"aten::convolution.out", kAsksForDevice},
    {"aten::convolution_backward", kAsksForDevice},
    {"aten::convolution_backward.out", kAsksForDevice},
    {"aten::_convolution", kAsksForDevice},
    {"aten::_convolution.out", kAsksForDevice},
    {"aten::ldexp.Tensor", kAsksForDevice},
    {"aten::ldexp_", kAsksForDevice},
    {"aten::ldexp.out", kAsksForDevice},
    {"aten::mode.values", kAsksForDevice},

    // Normalizations.
    {.name = "aten::native_batch_norm", .traits = kSavesInTraining, .written = {"running_mean", "running_var"}},
    {.name = "aten::native_batch_norm.out", .written = {"running_mean", "running_var"}},
    {.name = "aten::batch_norm_update_stats", .written = {"running_mean", "running_var"}},
    {"aten::_native_batch_norm_legit", kSavesInTraining},
    {.name = "aten::native_layer_norm_backward",
     .statistics = {"mean", "rstd"},
     .deciding = {"weight", "bias", "input"}},
    {.name = "aten::native_group_norm_backward", .statistics = {"mean", "rstd"}, .deciding = {"weight", "input"}},
    {.name = "aten::native_batch_norm_backward",
     .statistics = {"save_mean", "save_invstd"},
     .deciding = {"weight", "running_mean", "running_var", "input"}},

    // Attention and recurrent layers.
    {"aten::_scaled_dot_product_flash_attention_for_cpu*", kDrawsNothing | kTakesAddedMask},
    {"aten::_cudnn_rnn_flatten_weight", kReplacesStorage},
    {"aten::_pack_padded_sequence", kLeftToTorch},

    // Indices, and results whose sizes depend on elements.
    {"aten::index.Tensor*", kTakesIndices},
    {"aten::index_put*", kTakesIndices},
    {"aten::_index_put_impl_*", kTakesIndices},
    {"aten::_unsafe_index*", kTakesIndices},
    {"aten::nonzero", kFindsPlaces},
    {"aten::masked_select", kSelectsElements},
    {"aten::_unique2", kFindsDifferent},
    {"aten::unique_consecutive", kFindsDifferent},
    {"aten::histc", kCountsIntegers},
    {"aten::histc.out", kCountsIntegers},

    {.name = "aten::_ctc_loss.Tensor", .on_cpu = {"input_lengths", "target_lengths"}},
    {.name = "aten::_ctc_loss.Tensor_out", .on_cpu = {"input_lengths", "target_lengths"}},
    {.name = "aten::_ctc_loss_backward.Tensor", .on_cpu = {"input_lengths", "target_lengths"}},

    // Fourier transforms. The others of the family move or make numbers.
    {"aten::fft_fftfreq*"},
    {"aten::fft_rfftfreq*"},
    {"aten::fft_fftshift*"},
    {"aten::fft_ifftshift*"},
    {"aten::fft_*", kTransform},

    // Lists.
    {.name = "aten::_foreach_addcdiv.Tensor", .traits = kOnLists, .on_cpu = {"scalars"}},
    {.name = "aten::_foreach_addcdiv_.Tensor", .traits = kOnLists, .on_cpu = {"scalars"}},
    {.name = "aten::_foreach_addcmul.Tensor", .traits = kOnLists, .on_cpu = {"scalars"}},
    {.name = "aten::_foreach_addcmul_.Tensor", .traits = kOnLists, .on_cpu = {"scalars"}},
    // Copies between devices.
    {.name = "aten::_foreach_copy", .traits = kOnLists & ~uint32_t(kTakesMixedLists), .on_cpu = {"self", "src"}},
    {.name = "aten::_foreach_copy_", .traits = kOnLists & ~uint32_t(kTakesMixedLists), .on_cpu = {"self", "src"}},
    {"aten::_foreach_copy*", kOnLists & ~uint32_t(kTakesMixedLists)},
    {"aten::_foreach_*", kOnLists},
    {"aten::_fused_*", kWritesLists},
    {"aten::_amp_*", kWritesLists},

    // Quantized operators.
    {.name = "quantized::conv2d_add", .written = {"qaccum"}},
    {.name = "quantized::conv2d_add_relu", .written = {"qaccum"}},
    {.name = "quantized::relu6", .written = {"qx"}}, // if `inplace`
});

inline constexpr Particulars kNothingParticular{};

// The entry of an operator, `aten::name.overload`; `kNothingParticular` for an operator that has none.
constexpr const Particulars& particulars_of(std::string_view op) {
  for (const Particulars& entry : kParticulars) {
    if (entry.names(op)) {
      return entry;
    }
  }
  return kNothingParticular;
}

static_assert(
    [] {
      for (const Particulars& entry : kParticulars) {
        if (&particulars_of(entry.name) != &entry) {
          return false;
        }
      }
      return true;
    }(),
    "an entry stands behind another one that names the same operators");

// The facts about an operator that its calls need, from its schema and from the table.
struct Traits {
  bool mutates;           // some argument is written
  uint64_t writes;        // bit i: argument i is written
  uint64_t cpu_arguments; // bit i: argument i may be a CPU tensor beside flagos ones
  bool counts_versions;   // the kernel, not torch, raises the version counters of written arguments
  bool metadata_only;     // the kernel looks at no element
};

Traits traits_of(const c10::OperatorHandle& op);

// The places of arguments by their names, in their order. Throws for a name that the schema does not have.
std::vector<size_t> places_of(const ArgumentNames& names, const c10::FunctionSchema& schema);

// The place of one argument.
size_t place_of(std::string_view name, const c10::FunctionSchema& schema);

// The names of the entries with the names of the arguments that they speak of.
c10::Dict<std::string, std::vector<std::string>> listed_particulars();

} // namespace flagos
