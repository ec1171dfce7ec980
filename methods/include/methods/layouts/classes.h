// SPDX-License-Identifier: Apache-2.0
// Entries of a head in classes, each with codecs of its own; the newest wait uncoded for theirs.
#pragma once

#include <vector>

#include "methods/seal_rule.h"
#include "methods/store_plan.h"

namespace kvgauge {

// Which class an entry is in is said by Store::Classify, after the prompt and whenever a head has
// `waiting` entries without one. In a head entries then come class by class, each in the order of
// positions, and those that wait come last.
struct Classes final : StoreLayout {
  struct Class {
    KvCodec keys, values;  // kFloat: uncoded; no tables of its own, outliers or corrections
    double share = 0;      // of a head's entries that are expected in it: what prices go by
    // Codewords of this sequence for kVectors: f32 [kv_heads, numbers]. Set by Store::Calibrate.
    Tensor key_table, value_table;
  };
  std::vector<Class> classes;
  int64_t waiting = 64;
  // Coded entries are divided by the scale of their channel before they are coded: f32, positive,
  // [kv_heads, dim]; empty: they are not. Set by Store::Calibrate where the store says so below.
  Tensor key_scales, value_scales;
  bool scales_keys = false, scales_values = false;
  // Then they are turned by the Walsh-Hadamard matrix, in blocks (HadamardBasis).
  bool turns_keys = false, turns_values = false;

  static constexpr std::string_view kId = "classes";
  static constexpr int64_t kMost = 64;  // classes
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override;
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
  int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const override;
};

// Why a codec cannot be that of a class, if so. A table is that of a head, or still to come.
Status CheckClassCodec(const KvCodec& codec);

}  // namespace kvgauge
