// SPDX-License-Identifier: Apache-2.0
#include "cpu/codec/codec_layout.h"

#include "cpu/codec/codec_kernels.h"
#include "kernels/attention.h"

namespace kvgauge {
namespace {

static_assert(kCodePageEntries == kKvPageEntries);
constexpr int kBlockDims = 32;  // of kQ8_0 and kQ4_0

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

int BitsOf(const KvCodec& codec) {
  switch (codec.kind) {
    case KvCodecKind::kQ4_0:
      return 4;
    case KvCodecKind::kQ8_0:
    case KvCodecKind::kFp8E4M3:
      return 8;
    default:
      return codec.bits;
  }
}

}  // namespace

CodedLayout::CodedLayout(const KvCodec& codec)
    : side(codec.side),
      dim(static_cast<int>(codec.dim)),
      width(CeilDiv(dim, kCodeLanes) * kCodeLanes),
      steps(side == KvSide::kKeys ? dim : kCodePageEntries),
      vectors((side == KvSide::kKeys ? kCodePageEntries : width) / kCodeLanes),
      slots(CeilDiv(steps, 2) * vectors),
      bits(BitsOf(codec)),
      high_offset(0),
      axis(CodeAxis::kToken),
      group(kBlockDims),
      groups(0),
      scale_stride(kCodePageEntries),
      scale_offset(0),
      zero_offset(0),
      bytes(0) {
  if (codec.kind == KvCodecKind::kAffine || codec.kind == KvCodecKind::kCodebook) {
    axis = codec.axis;
    group = static_cast<int>(codec.group);
  }
  if (bits == 3) {
    high_offset = PlaneBytes(2);
    bytes = high_offset + PlaneBytes(1);
  } else {
    bytes = PlaneBytes(bits);
  }

  const bool codebook = codec.kind == KvCodecKind::kCodebook;
  const bool scaled =
      codec.kind != KvCodecKind::kFp8E4M3 && !(codebook && axis == CodeAxis::kChannel);
  if (!scaled) return;
  if (axis == CodeAxis::kToken) {
    groups = CeilDiv(dim, group);
  } else {
    groups = kCodePageEntries / group;
    scale_stride = width;
  }
  const int64_t scale_bytes = int64_t{groups} * scale_stride * SizeOf(DType::kF16);
  scale_offset = bytes;
  bytes += scale_bytes;
  const bool zeros = (codec.kind == KvCodecKind::kAffine && !codec.symmetric) ||
                     (codebook && codec.range == CodeRange::kExtremes);
  if (!zeros) return;
  zero_offset = bytes;
  bytes += scale_bytes;
}

int64_t CodedLayout::PlaneBytes(int field_bits) const {
  return int64_t{CeilDiv(slots, kCodeLanes / field_bits)} * kCodeBlockBytes;
}

CodecPlan::CodecPlan(const KvCodec& codec)
    : layout(codec),
      kind(codec.kind),
      symmetric(codec.symmetric),
      range(codec.range),
      rank(static_cast<int>(codec.rank)),
      table{},
      offset(0),
      thresholds{},
      low(nullptr),
      high(nullptr) {
  if (kind == KvCodecKind::kQ4_0 || kind == KvCodecKind::kQ8_0 || symmetric) {
    offset = static_cast<float>(1 << (layout.bits - 1));
  }
  const int count = 1 << layout.bits;
  const bool codebook = kind == KvCodecKind::kCodebook;
  for (int i = 0; i < 16; ++i) {
    const int code = i % count;
    table[i] = codebook ? codec.levels.f32()[code] : static_cast<float>(code) - offset;
  }
  if (!codebook) return;
  for (int i = 0; i + 1 < count; ++i) thresholds[i] = 0.5f * (table[i] + table[i + 1]);
  if (codec.axis == CodeAxis::kChannel) {
    low = codec.channel_low.f32();
    high = codec.channel_high.f32();
  }
}

}  // namespace kvgauge
