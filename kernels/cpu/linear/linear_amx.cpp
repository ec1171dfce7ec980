// SPDX-License-Identifier: Apache-2.0
// The second name is that of Clang before 16.
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#include "cpu/linear/block_columns.h"
#include "cpu/linear/linear_multiply.h"
#include "cpu/linear/panel_amx.h"

namespace kvgauge {
namespace {

struct LinearPanels : Panels {
  using ByColumn = BlockColumns<AmxEngine>;
};

LinearKernels LinearWithTiles() {
  LinearKernels k = Avx512Bf16LinearKernels();
  SetBf16Products<LinearPanels>(k);
  return k;
}

}  // namespace

const LinearKernels& AmxLinearKernels() {
  static const LinearKernels kernels = LinearWithTiles();
  return kernels;
}

}  // namespace kvgauge
#endif
