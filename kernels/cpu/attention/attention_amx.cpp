// SPDX-License-Identifier: Apache-2.0
// The second name is that of Clang before 16.
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#include "cpu/attention/attention_panel_tiles.h"
#include "cpu/isa/tiles_amx.h"
#include "cpu/isa/vector_math_avx512.h"

namespace kvgauge {
namespace {

AttentionKernels WithTiles() {
  using Products = TileProducts<AmxEngine, Avx512Vector>;
  constexpr int kBf16 = static_cast<int>(DType::kBF16);
  AttentionKernels k = Avx512Bf16AttentionKernels();
  k.f32_entry_rows = true;
  // Processors with tiles convert halves from the first-level cache faster than from registers.
  for (const NumberForm form : {NumberForm::kE4M3, NumberForm::kE5M2}) {
    const auto i = static_cast<size_t>(form);
    k.number_product[i] = Avx512AttentionKernels().number_product[i];
  }
  k.begin_products = &AmxEngine::Begin;
  k.end_products = &AmxEngine::End;
  k.product[kBf16] = &Products::Product;
  k.chosen_keys[kBf16] = &Products::ChosenKeys;
  k.chosen_values[kBf16] = &Products::ChosenValues;
  k.entry_keys[kBf16] = &Products::EntryKeys;
  k.entry_values[kBf16] = &Products::EntryValues;
  return k;
}

}  // namespace

const AttentionKernels& AmxAttentionKernels() {
  static const AttentionKernels kernels = WithTiles();
  return kernels;
}
}  // namespace kvgauge
#endif
