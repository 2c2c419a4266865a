// SPDX-License-Identifier: Apache-2.0
// The registrations of the cuda room.
#pragma once

#include <memory>
#include <string>

#include "aten/attention.h"
#include "aten/registrar.h"
#include "runtime/native.h"

namespace flagos {

// The way of serving of vendors that torch knows as CUDA: torch owns the memory and the streams, and its kernels
// compute.
std::unique_ptr<Native> torch_native(std::string vendor, const std::string& device_type);

// torch's autograd engine knows one accelerator per process. Once a PrivateUse1 device is registered, torch takes that
// device for the accelerator, and every backward pass over CUDA tensors fails at an internal assertion
// (github.com/pytorch/pytorch/issues/161129). Under the cuda vendor both devices exist, so the autograd engine's two
// questions about accelerators are redirected to functions that look at the graph. Throws if this build of torch asks
// them in a way that cannot be redirected.
void teach_autograd_engine();

// Defines `flagos::enter_backward` and `flagos::exit_backward`, between which the autograd engine runs a graph.
void register_autograd_engine();

// The kernels that CUDA would choose for fused attention.
NativeAttention cuda_attention();

// Composites in which torch asks whether a tensor is on CUDA: batch normalization, grid sampling, recurrent layers,
// Fourier transforms in half precision.
void register_cudnn_choices(Registrar& registrar);
void register_rnn_cudnn(Registrar& registrar);
void register_fft_half(Registrar& registrar);

// Conversions between flagos and CUDA tensors that share the memory.
void register_to(Registrar& registrar);

} // namespace flagos
