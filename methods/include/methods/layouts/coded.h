// SPDX-License-Identifier: Apache-2.0
// Older entries coded, or on another tier; the first and the newest as they are.
#pragma once

#include <optional>

#include "methods/seal_rule.h"
#include "methods/store_plan.h"

namespace kvgauge {

// Ranges for a key codec whose channels' ranges are fixed ahead: f32 [kv_heads, key_dim], a row for
// each head. They are ranges of keys as they are stored, rotated or not.
struct KeyRanges {
  Tensor low, high;       // empty: the codec has none, or Store::Calibrate is to set them
  bool constant = false;  // they are of the model, not of this sequence
};

// Scales for codecs whose scales are fixed ahead: f32 [1, 1], [kv_heads, 1] or [kv_heads, dim], of
// the layer, of its heads, or of their channels.
struct FixedScales {
  Tensor keys, values;    // empty: the codec has none, or Store::Calibrate is to set them
  bool constant = false;  // as above
};

// Tables of heads for codecs that are records: f32 [kv_heads, numbers].
struct HeadTables {
  Tensor keys, values;  // empty: the codec has its own or needs none, or Calibrate is to set them
  bool found = false;   // in this sequence; else constants of the model
};

// Codes without tables.
struct LaterCodes {
  KvCodec keys, values;
  SealRule seal_keys, seal_values;
};

struct Coded : StoreLayout {
  KvCodec keys, values;  // kFloat: entries stay in the cache's dtype
  SealRule seal_keys, seal_values;
  int64_t sinks = 0;          // the first entries stay uncoded, in a segment of their own
  Tier tier = Tier::kDevice;  // of all after them
  KeyRanges ranges;
  FixedScales scales;
  HeadTables tables;
  // How entries are coded that come behind the units which are sealed first, the prompt's: keys and
  // values then have one seal rule. Empty: as those are.
  std::optional<LaterCodes> later;

  Coded() = default;
  // Uncoded, with sides and dims filled in.
  explicit Coded(const ModelShape& shape);

  static constexpr std::string_view kId = "coded";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override;
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const override;
};

}  // namespace kvgauge
