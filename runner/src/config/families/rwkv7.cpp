// SPDX-License-Identifier: Apache-2.0
// RWKV-7, as flash-linear-attention lays it out: a model without a cache.
#include <algorithm>

#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

// One number for all layers, or a list of one each; heads of other widths are not run.
void CheckValueDims(ConfigReader& reader, const ModelConfig& config) {
  const std::vector<int64_t> dims = reader.IntOrInts("value_dim", 1, kMostHidden);
  const bool same =
      std::ranges::all_of(dims, [&](int64_t dim) { return dim == config.hidden_size; });
  if (!same || (dims.size() > 1 && dims.size() != config.layers.size())) {
    reader.Fail("value_dim", StrCat("the hidden size (", config.hidden_size, "), or a list of ",
                                    config.layers.size(), " of these"));
  }
}

void ReadRwkv7(ConfigReader& reader, ModelConfig& config) {
  const double eps = ReadLaidOutRwkv(reader, 4.0, config);
  const int64_t hidden = config.hidden_size;
  StateConfig state = {.kind = StateConfig::Kind::kRwkv7};
  // A head's width says how many there are, whatever num_heads says.
  state.key_dim = state.value_dim = reader.Int("head_dim", 64, 1, kMostHeadDim);
  reader.Ignore({"num_heads"});
  if (reader.ok() && hidden % state.key_dim != 0) {
    reader.Fail("head_dim", StrCat("a divisor of the hidden size (", hidden, ")"));
  }
  state.heads = state.key_heads = std::max<int64_t>(hidden / state.key_dim, 1);
  state.conv_width = 2;
  state.mixed_columns = state.mlp_columns = hidden;
  state.decay_rank = reader.Int("decay_low_rank_dim", std::nullopt, 1, kMostHidden);
  state.write_rank = reader.Int("a_low_rank_dim", std::nullopt, 1, kMostHidden);
  state.gate_rank = reader.Int("gate_low_rank_dim", std::nullopt, 1, kMostHidden);
  state.value_rank = reader.Int("v_low_rank_dim", std::nullopt, 1, kMostHidden);
  state.part_norm_eps = static_cast<float>(static_cast<double>(state.value_dim) * eps);
  config.state = state;
  CheckValueDims(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(rwkv7, {.title = "RWKV-7",
                         .notes = "no cache: every layer keeps a state of constant size, whose "
                                  "rows decay by themselves; method full alone, as a baseline",
                         .read = ReadRwkv7})

}  // namespace kvgauge
