// SPDX-License-Identifier: Apache-2.0
// The registrations of the aten room.
#pragma once

#include "aten/registrar.h"

namespace flagos {

struct NativeAttention;

void register_factories_and_views(Registrar& registrar);
void register_copies(Registrar& registrar);
void register_attention(Registrar& registrar, const NativeAttention& native);
void register_sparse();

// Where CPU kernels serve: the CPU's arithmetic for composites in which torch asks on which device a tensor is.
void register_dropout(Registrar& registrar);
void register_rnn(Registrar& registrar);
// Likewise: operators of which torch has kernels for accelerators only.
void register_histc(Registrar& registrar);

// Serves a call of histc or histc.out on copies that are on the CPU, whose own kernel takes no integers; false for a
// call of which that kernel computes the result.
bool count_copies(size_t count_of_arguments, torch::jit::Stack* arguments);
void register_sync_batch_norm(Registrar& registrar);

void register_typed_pointwise(Registrar& registrar);
void register_typed_reductions(Registrar& registrar);
void register_typed_linear(Registrar& registrar);
void register_typed_gradients(Registrar& registrar);
void register_typed_lists(Registrar& registrar);

} // namespace flagos
