// SPDX-License-Identifier: Apache-2.0
#include "aten/register.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/zeros.h>

#include "aten/typed/typed.h"

namespace flagos {

namespace {

// CUDA has a histogram of integers, torch's CPU none.
bool is_of_integers(const at::Tensor& self) {
  return c10::isIntegralType(self.scalar_type(), /*includeBool=*/false);
}

bool is_counted_here(const at::Tensor& self) {
  return is_flagos(self) && is_of_integers(self);
}

// Counts as CUDA does (aten/src/ATen/native/cuda/SummaryOps.cu): in 64-bit integers, with bounds truncated to them.
at::Tensor count(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  int64_t low = min.to<int64_t>();
  int64_t high = max.to<int64_t>();
  if (low == high && self.numel() > 0) {
    low = self.min().item().to<int64_t>();
    high = self.max().item().to<int64_t>();
  }
  if (low == high) {
    --low;
    ++high;
  }
  TORCH_CHECK(low < high, "max must be larger than min");
  if (self.numel() == 0) {
    return at::zeros({bins}, self.options());
  }
  at::Tensor values = self.flatten().to(at::kLong);
  values = values.masked_select(values.ge(low).logical_and_(values.le(high)));
  const at::Tensor bin = values.sub_(low).mul_(bins).div_(high - low, "trunc").clamp_max_(bins - 1);
  return at::bincount(bin, /*weights=*/{}, bins).to(self.scalar_type());
}

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  if (!is_counted_here(self)) {
    return Typed<at::_ops::histc>::call(self, bins, min, max);
  }
  Slot<at::_ops::histc>::enter();
  return count(self, bins, min, max);
}

at::Tensor&
count_into(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, at::Tensor& out) {
  TORCH_CHECK(
      out.scalar_type() == self.scalar_type(),
      "torch.histogram: input tensor and hist tensor should have the same dtype, but got input ",
      self.scalar_type(),
      " and hist ",
      out.scalar_type());
  const at::Tensor counted = count(self, bins, min, max);
  out.resize_(counted.sizes());
  return out.copy_(counted);
}

at::Tensor&
histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, at::Tensor& out) {
  if (!is_counted_here(self)) {
    return Typed<at::_ops::histc_out>::call(self, bins, min, max, out);
  }
  Slot<at::_ops::histc_out>::enter();
  return count_into(self, bins, min, max, out);
}

} // namespace

bool count_copies(size_t count_of_arguments, torch::jit::Stack* arguments) {
  const bool into = count_of_arguments == 5; // with `out`
  if (!is_of_integers(torch::jit::peek(*arguments, 0, count_of_arguments).toTensor())) {
    return false;
  }
  const auto argument = [&](size_t place) { return torch::jit::peek(*arguments, place, count_of_arguments); };
  const at::Tensor self = argument(0).toTensor();
  const int64_t bins = argument(1).toInt();
  const at::Scalar min = argument(2).toScalar();
  const at::Scalar max = argument(3).toScalar();
  at::Tensor counted = into ? argument(4).toTensor() : at::Tensor();
  if (into) {
    count_into(self, bins, min, max, counted);
  } else {
    counted = count(self, bins, min, max);
  }
  torch::jit::drop(*arguments, count_of_arguments);
  arguments->emplace_back(std::move(counted));
  return true;
}

void register_histc(Registrar& registrar) {
  registrar.kernel<at::_ops::histc>(TORCH_FN(histc));
  registrar.kernel<at::_ops::histc_out>(TORCH_FN(histc_out));
}

} // namespace flagos
