// SPDX-License-Identifier: Apache-2.0
#include "cpu/codec/codec_layout.h"

#include <algorithm>

#include "cpu/codec/codec_kernels.h"
#include "kernels/attention.h"
#include "src/record_view.h"

namespace kvgauge {
namespace {

static_assert(kCodePageEntries == kKvPageEntries);

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

}  // namespace

CodedLayout::CodedLayout(const KvCodec& codec)
    : side(codec.side),
      dim(static_cast<int>(codec.dim)),
      width(CeilDiv(dim, kCodeLanes) * kCodeLanes),
      steps(side == KvSide::kKeys ? dim : kCodePageEntries),
      vectors((side == KvSide::kKeys ? kCodePageEntries : width) / kCodeLanes),
      slots(CeilDiv(steps, 2) * vectors),
      bits(0),
      high_offset(0),
      axis(codec.axis),
      group(0),
      groups(0),
      scale_stride(kCodePageEntries),
      scale(ScaleType::kNone),
      scale_offset(0),
      zero_offset(0),
      bytes(0) {
  if (IsRecord(codec.kind)) {
    group = dim;
    bytes = RecordPageBytes(RecordOf(codec));
    return;
  }
  const CodeForm form = FormOf(codec);
  bits = form.bits;
  group = static_cast<int>(form.group);
  if (form.by_token) axis = CodeAxis::kToken;
  if (bits == 3 || bits == 5) {
    high_offset = PlaneBytes(bits - 1);
    bytes = high_offset + PlaneBytes(1);
  } else {
    bytes = PlaneBytes(bits);
  }

  scale = form.scale;
  if (scale == ScaleType::kNone) {
    group = dim;  // nothing changes within an entry
    return;
  }
  if (axis == CodeAxis::kToken) {
    groups = CeilDiv(dim, group);
  } else {
    groups = kCodePageEntries / group;
    scale_stride = width;
  }
  scale_offset = bytes;
  bytes += int64_t{groups} * scale_stride * SizeOf(scale);
  if (!form.zeros) return;
  zero_offset = bytes;
  bytes += int64_t{groups} * scale_stride * SizeOf(DType::kF16);
}

int64_t CodedLayout::PlaneBytes(int field_bits) const {
  return int64_t{CeilDiv(slots, kCodeLanes / field_bits)} * kCodeBlockBytes;
}

CodecPlan::CodecPlan(const KvCodec& codec)
    : layout(codec),
      kind(codec.kind),
      symmetric(codec.symmetric),
      exact_scale(codec.exact_scale),
      clip(codec.clip),
      range(codec.range),
      rank(static_cast<int>(codec.rank)),
      table{},
      offset(0),
      thresholds{},
      low(nullptr),
      high(nullptr),
      fixed_scale(1),
      fixed_scales(nullptr),
      record(IsRecord(codec.kind) ? RecordOf(codec) : RecordView()) {
  if (IsRecord(codec.kind)) return;
  const CodeForm form = FormOf(codec);
  offset = static_cast<float>(form.offset);
  const int count = std::min(1 << layout.bits, 16);
  const bool leveled = !form.levels.empty();
  for (int i = 0; i < 16; ++i) {
    const int code = i % count;
    table[i] = leveled ? form.levels[code] : static_cast<float>(code) - offset;
  }
  if (!codec.fixed_scale.empty()) {
    fixed_scale = codec.fixed_scale.f32()[0];
    if (form.float8) {
      const bool one = codec.fixed_scale.Numel() == 1;
      fixed_memory.resize(static_cast<size_t>(layout.width), 1.0f);
      for (int c = 0; c < layout.dim; ++c) {
        fixed_memory[static_cast<size_t>(c)] = codec.fixed_scale.f32()[one ? 0 : c];
      }
      fixed_scales = fixed_memory.data();
    }
  }
  if (kind != KvCodecKind::kCodebook && kind != KvCodecKind::kIq4Nl) return;
  const bool edges = kind == KvCodecKind::kCodebook && !codec.table.empty();
  for (int i = 0; i + 1 < count; ++i) {
    thresholds[i] = edges ? codec.table.f32()[i] : 0.5f * (table[i] + table[i + 1]);
  }
  if (kind == KvCodecKind::kCodebook && codec.axis == CodeAxis::kChannel) {
    low = codec.channel_low.f32();
    high = codec.channel_high.f32();
  }
}

}  // namespace kvgauge
