// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/classes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/strings.h"
#include "kernels/attention.h"

namespace kvgauge {
namespace {

// Logical bytes of one entry among many.
double BytesOfOne(const KvCodec& codec) {
  if (!codec.coded()) return static_cast<double>(codec.dim * SizeOf(codec.dtype));
  return static_cast<double>(CodedBytes(codec, kKvPageEntries).logical()) / kKvPageEntries;
}

// A head has its own codewords.
int64_t TableBytes(const KvCodec& codec) {
  if (codec.kind != KvCodecKind::kVectors) return 0;
  return (codec.dim << codec.bits) * SizeOf(DType::kF32);
}

Status CheckWords(const KvCodec& codec) {
  if (codec.kind != KvCodecKind::kVectors || codec.stages != 1 || codec.commuting ||
      codec.range == CodeRange::kRms) {
    return BadInput(
        "records of a class are codewords of one stage that do not commute, unscaled (vectors)");
  }
  return codec.table.empty() ? Status() : CheckCodec(codec);
}

}  // namespace

Status CheckClassCodec(const KvCodec& codec) {
  if (!codec.coded()) return {};
  if (IsRecord(codec.kind)) return CheckWords(codec);
  const bool tables = !codec.levels.empty() || !codec.channel_low.empty() ||
                      !codec.channel_high.empty() || !codec.fixed_scale.empty() ||
                      !codec.table.empty();
  if (tables || codec.kind == KvCodecKind::kCodebook || codec.has_outliers() || codec.rank > 0) {
    return BadInput(
        "a class has codes with scales of their own: no codebooks, fixed scales, outliers or "
        "corrections");
  }
  return CheckCodec(codec);
}

StoreTraits Classes::traits() const {
  const bool coded = std::any_of(classes.begin(), classes.end(), [](const Class& one) {
    return one.keys.coded() || one.values.coded();
  });
  return {.exact = !coded, .seals = coded};
}

Status Classes::Check(const StoreUse& use) const {
  if (classes.empty() || std::ssize(classes) > kMost) {
    return BadInput(StrCat(classes.size(), " classes; right is 1 .. ", kMost));
  }
  if (!use.merges_keys_later.empty()) {
    return BadInput(StrCat("keeps entries in classes, and ", use.merges_keys_later,
                           " would merge keys of different ones while decoding; use "
                           "trigger.prefill, which merges before that, or store.plain"));
  }
  for (const Class& one : classes) {
    for (const KvCodec* codec : {&one.keys, &one.values}) {
      const Status status = CheckClassCodec(*codec);
      if (!status.ok()) {
        return status.error().Wrap(codec->side == KvSide::kKeys ? "keys" : "values");
      }
    }
  }
  return {};
}

double Classes::HeadBytes(const ModelShape& shape, int64_t entries) const {
  double bytes = 0;
  for (const Class& one : classes) {
    bytes +=
        one.share * static_cast<double>(entries) * (BytesOfOne(one.keys) + BytesOfOne(one.values));
  }
  for (const Class& one : classes) {
    bytes += static_cast<double>(TableBytes(one.keys) + TableBytes(one.values));
  }
  const int64_t scales = (scales_keys ? shape.key_dim : 0) + (scales_values ? shape.value_dim : 0);
  return bytes + static_cast<double>(scales * SizeOf(DType::kF32));
}

int64_t Classes::EntryBits(const ModelShape&) const {
  double bits = 0;
  for (const Class& one : classes) {
    bits += one.share * static_cast<double>(EntryCodeBits(one.keys) + EntryCodeBits(one.values));
  }
  return static_cast<int64_t>(std::ceil(bits));
}

int64_t Classes::PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const {
  constexpr int64_t kPositionBytes = 4;
  const auto whole = [](int64_t n) { return (n + kKvPageEntries - 1) / kKvPageEntries + 1; };
  const auto count = std::ssize(classes);
  int64_t bytes = entries * kPositionBytes;
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const bool keys = side == KvSide::kKeys;
    int64_t codes = 0, dim = keys ? shape.key_dim : shape.value_dim;
    bool uncoded = false;
    for (const Class& one : classes) {
      const KvCodec& codec = keys ? one.keys : one.values;
      uncoded |= !codec.coded();
      if (codec.coded()) codes = std::max(codes, CodedBytes(codec, kKvPageEntries).logical());
      bytes += TableBytes(codec);
    }
    // Each class has a last page that is part filled, and entries that fill no unit yet.
    const int64_t waits = std::min(entries, waiting + fresh);
    const int64_t floats = whole(waits) + 2 * count + (uncoded ? whole(entries) : 0);
    bytes += codes * (whole(entries) + count);
    bytes += floats * kKvPageEntries * dim * SizeOf(shape.cache_dtype);
    if (keys ? scales_keys : scales_values) bytes += dim * (dim + 1) * SizeOf(DType::kF32);
    if (keys ? turns_keys : turns_values) bytes += dim * dim * SizeOf(DType::kF32);
  }
  return shape.kv_heads * bytes;
}

}  // namespace kvgauge
