// SPDX-License-Identifier: Apache-2.0
#include "src/record_view.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/strings.h"
#include "kernels/attention.h"
#include "src/op_checks.h"

namespace kvgauge {
namespace {

static_assert(kRecordPage == kKvPageEntries);

constexpr int kMostRecordBits = 12;  // of a codeword

int64_t TableNumbers(const KvCodec& codec) {
  if (codec.kind == KvCodecKind::kClusters) return codec.dim;
  if (codec.kind != KvCodecKind::kVectors) return 0;
  if (codec.commuting) return codec.stages * (int64_t{1} << codec.bits / 2) * codec.dim;
  return codec.stages * (codec.dim / codec.group) * (int64_t{1} << codec.bits) * codec.group;
}

Status CheckPairs(const KvCodec& codec) {
  if (codec.dim % 2 == 0 && (codec.apart == 1 || codec.apart == codec.dim / 2)) return {};
  return BadInput(StrCat("apart ", codec.apart, ": the dims of a pair must be 1 or ", codec.dim / 2,
                         " apart, and an entry has ", codec.dim));
}

Status CheckTable(const KvCodec& codec) {
  const int64_t count = TableNumbers(codec);
  const Tensor& table = codec.table;
  if (table.empty() || table.device != Device::kHost || !IsVector(table, DType::kF32, count)) {
    return BadInput(StrCat("table ", table.DebugString(), ": must be f32[", count, "]"));
  }
  for (int64_t i = 0; i < count; ++i) {
    const float v = table.f32()[i];
    if (!std::isfinite(v)) {
      return BadInput(StrCat("table: number ", i, " is ", v, "; all must be finite"));
    }
    const bool group = v >= 0 && v < static_cast<float>(codec.stages) && v == std::floor(v);
    if (codec.kind == KvCodecKind::kClusters && !group) {
      return BadInput(
          StrCat("table: dim ", i, " is in group ", v, "; groups are 0 to ", codec.stages - 1));
    }
  }
  return {};
}

Status CheckBits(const KvCodec& codec, int most) {
  if (codec.bits >= 1 && codec.bits <= most) return {};
  return BadInput(StrCat("bits ", codec.bits, ": must be 1 to ", most));
}

Status CheckEntriesOfGroup(const KvCodec& codec) {
  if (codec.group == 16 || codec.group == 32 || codec.group == 64) return {};
  return BadInput(StrCat("group ", codec.group, " over entries: must be 16, 32 or 64"));
}

Status CheckClusters(const KvCodec& codec) {
  KVG_TRY(CheckBits(codec, 4));
  if (codec.stages < 1 || codec.stages > codec.dim) {
    return BadInput(StrCat("stages ", codec.stages, ": groups must be 1 to ", codec.dim));
  }
  if (!(codec.clip > 0 && codec.clip <= 1)) {
    return BadInput(StrCat("clip ", codec.clip, ": must be above 0 and at most 1"));
  }
  return CheckTable(codec);
}

Status CheckVectors(const KvCodec& codec) {
  KVG_TRY(CheckBits(codec, codec.commuting ? kMostRecordBits : 8));
  if (codec.stages < 1 || codec.stages > 64) {
    return BadInput(StrCat("stages ", codec.stages, ": must be 1 to 64"));
  }
  if (codec.group < 1 || codec.group > codec.dim || codec.dim % codec.group != 0) {
    return BadInput(
        StrCat("group ", codec.group, ": must divide the ", codec.dim, " dims of an entry"));
  }
  if (codec.commuting) {
    KVG_TRY(CheckPairs(codec));
    if (codec.group != codec.dim || codec.bits % 2 != 0) {
      return BadInput(
          StrCat("commuting: codewords are of whole entries and have an even number of "
                 "bits, not group ",
                 codec.group, " and ", codec.bits, " bits"));
    }
  }
  return CheckTable(codec);
}

Status CheckMeanSizes(const KvCodec& codec) {
  if (codec.bits != 0) KVG_TRY(CheckBits(codec, 4));
  if (codec.stages < 0 || codec.stages > codec.dim) {
    return BadInput(StrCat("stages ", codec.stages, ": dims with signs must be 0 to ", codec.dim));
  }
  return CheckEntriesOfGroup(codec);
}

Status CheckSketched(const KvCodec& codec) {
  KVG_TRY(CheckBits(codec, 3));
  const int64_t count = int64_t{1} << codec.bits;
  const Tensor& levels = codec.levels;
  if (levels.empty() || levels.device != Device::kHost || !IsVector(levels, DType::kF32, count)) {
    return BadInput(StrCat("levels ", levels.DebugString(), ": must be f32[", count, "]"));
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* level = levels.f32() + i;
    if (std::isfinite(*level) && (i == 0 || level[-1] < *level)) continue;
    return BadInput(StrCat("level ", i, " is ", *level, ": levels must ascend"));
  }
  return {};
}

}  // namespace

Status CheckRecord(const KvCodec& codec) {
  if (codec.dim > kMostRecordDims) {
    return BadInput(StrCat("dim ", codec.dim, " of a record: must be at most ", kMostRecordDims));
  }
  switch (codec.kind) {
    case KvCodecKind::kClusters:
      return CheckClusters(codec);
    case KvCodecKind::kPolarPairs:
      KVG_TRY(CheckBits(codec, 8));
      KVG_TRY(CheckEntriesOfGroup(codec));
      return CheckPairs(codec);
    case KvCodecKind::kPolarTree:
      if (codec.dim % kTreeBlock == 0) return {};
      return BadInput(StrCat("dim ", codec.dim, ": must be a multiple of ", kTreeBlock,
                             ", the dims of a block"));
    case KvCodecKind::kVectors:
      return CheckVectors(codec);
    case KvCodecKind::kMeanSizes:
      return CheckMeanSizes(codec);
    default:
      return CheckSketched(codec);
  }
}

int64_t RecordBits(const KvCodec& codec) {
  switch (codec.kind) {
    case KvCodecKind::kPolarTree:
      return codec.dim / kTreeBlock * kTreeBits;
    case KvCodecKind::kVectors:
      return codec.group < 1 ? 0 : codec.stages * (codec.dim / codec.group) * codec.bits;
    case KvCodecKind::kSketched:
      return codec.dim * (codec.bits + 1);
    case KvCodecKind::kMeanSizes: {
      const int64_t others = codec.dim - codec.stages;
      return codec.stages + (codec.bits > 0 ? others * codec.bits : (others + 4) / 5 * 8);
    }
    default:
      return codec.dim * codec.bits;
  }
}

RecordView RecordOf(const KvCodec& codec) {
  RecordView view = {};
  view.kind = codec.kind;
  view.scaled = codec.kind == KvCodecKind::kVectors && codec.range == CodeRange::kRms;
  view.commuting = codec.commuting;
  view.dim = static_cast<int>(codec.dim);
  view.bits = codec.bits;
  view.group = static_cast<int>(codec.group);
  view.stages = static_cast<int>(codec.stages);
  view.apart = static_cast<int>(codec.apart);
  view.runs = codec.kind == KvCodecKind::kVectors && view.group > 0 ? view.dim / view.group : 0;
  view.clip = codec.clip;
  view.table = codec.table.empty() ? nullptr : codec.table.f32();
  if (codec.kind == KvCodecKind::kSketched && !codec.levels.empty()) {
    std::copy_n(codec.levels.f32(), std::min(kMostRecordLevels, 1 << view.bits), view.levels);
  }
  if (codec.kind == KvCodecKind::kPolarPairs && view.group > 0) {
    view.header_bytes = kRecordPage / view.group * (view.dim / 2) * 4 * 2;
  }
  if (codec.kind == KvCodecKind::kMeanSizes && view.group > 0) {
    view.header_bytes = kRecordPage / view.group * SizesBytes(view);
  }
  view.record_bytes = ScaleBytesOf(view) + static_cast<int>((RecordBits(codec) + 7) / 8);
  return view;
}

}  // namespace kvgauge
