// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/coded.h"

#include <algorithm>
#include <vector>

#include "core/strings.h"
#include "kernels/attention.h"

namespace kvgauge {
namespace {

// A codec whose fields fit each other and the rule that seals its pages.
Status CheckCodedSide(const char* side, KvCodec codec, const SealRule& seal, const Tensor& tables,
                      bool found_later) {
  if (!codec.coded()) return {};
  if (found_later && tables.empty() && IsRecord(codec.kind)) return {};
  for (int64_t head = 1; !tables.empty() && head < tables.shape[0]; ++head) {
    codec.table = tables[head];
    const Status status = CheckCodec(codec);
    if (!status.ok()) return status.error().Wrap(StrCat(side, " of head ", head));
  }
  if (!tables.empty()) codec.table = tables[0];
  // Ranges that Calibrate will fill in.
  const std::vector<float> zeros(static_cast<size_t>(codec.dim));
  if (codec.kind == KvCodecKind::kCodebook && codec.axis == CodeAxis::kChannel &&
      codec.channel_low.empty()) {
    codec.channel_low = codec.channel_high = View(zeros, {codec.dim});
  }
  const Status status = CheckCodec(codec);
  if (!status.ok()) return status.error().Wrap(side);
  const int64_t unit = SealUnit(codec);
  if (seal.unit >= 1 && seal.unit % unit == 0) return {};
  return BadInput(StrCat(side, ": coded ", seal.unit,
                         " entries at a time, which must be a "
                         "multiple of ",
                         unit));
}

}  // namespace

Coded::Coded(const ModelShape& shape) {
  keys.side = KvSide::kKeys;
  keys.dim = shape.key_dim;
  values.side = KvSide::kValues;
  values.dim = shape.value_dim;
  keys.dtype = values.dtype = shape.cache_dtype;
}

StoreTraits Coded::traits() const {
  const bool coded = keys.coded() || values.coded();
  return {.plain = !coded && tier == Tier::kDevice, .exact = !coded, .seals = coded};
}

Status Coded::Check(const StoreUse&) const {
  KVG_TRY(CheckCodedSide("keys", keys, seal_keys, tables.keys, tables.found));
  KVG_TRY(CheckCodedSide("values", values, seal_values, tables.values, tables.found));
  if (!later) return {};
  if (seal_keys.unit != seal_values.unit || seal_keys.keep_recent != seal_values.keep_recent) {
    return BadInput(StrCat("keys are coded ", seal_keys.unit, " entries at a time and values ",
                           seal_values.unit, "; with other codes later both must be alike"));
  }
  KVG_TRY(CheckCodedSide("later keys", later->keys, later->seal_keys, {}, false));
  return CheckCodedSide("later values", later->values, later->seal_values, {}, false);
}

double Coded::HeadBytes(const ModelShape&, int64_t entries) const {
  return StreamBytes(keys, seal_keys, sinks, entries) +
         StreamBytes(values, seal_values, sinks, entries);
}

int64_t Coded::EntryBits(const ModelShape& shape) const {
  const auto bits = [](const KvCodec& codec, int64_t dim) {
    return IsRecord(codec.kind) ? EntryCodeBits(codec) : dim * CodeBits(codec);
  };
  return bits(keys, shape.key_dim) + bits(values, shape.value_dim);
}

int64_t Coded::PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const {
  int64_t bytes = PlannedStreamBytes(keys, seal_keys, sinks, entries, fresh) +
                  PlannedStreamBytes(values, seal_values, sinks, entries, fresh);
  if (later) {
    // Whichever takes more; each of the two parts may have a page that is part filled.
    const int64_t other = PlannedStreamBytes(later->keys, later->seal_keys, 0, entries, fresh) +
                          PlannedStreamBytes(later->values, later->seal_values, 0, entries, fresh);
    const int64_t page = kKvPageEntries * (keys.dim + values.dim) * SizeOf(keys.dtype);
    bytes = std::max(bytes, other) + page;
  }
  return shape.kv_heads * bytes;
}

}  // namespace kvgauge
