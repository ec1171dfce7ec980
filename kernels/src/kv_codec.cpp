// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_codec.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/strings.h"
#include "kernels/attention.h"
#include "src/op_checks.h"
#include "src/record_view.h"

namespace kvgauge {
namespace {

constexpr int64_t kF16Bytes = 2;
constexpr int64_t kBlock = 32;  // dims of a block of llama.cpp's formats and of kMxFp4
constexpr int64_t kNvBlock = 16;
constexpr int64_t kMostOutlierDims = 1024;
constexpr int64_t kMostByteScaleDims = 1024;
constexpr int64_t kMostRangePages = 1024;

// llama.cpp's kvalues_iq4nl.
constexpr std::array<float, 16> kIq4Levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
// e2m1: a sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> kE2M1Levels = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

bool IsFloat8(KvCodecKind kind) {
  return kind == KvCodecKind::kFp8E4M3 || kind == KvCodecKind::kFp8E5M2;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool IsHostVector(const Tensor& t, int64_t size) {
  return !t.empty() && t.device == Device::kHost && IsVector(t, DType::kF32, size);
}

Status CheckGroup(const KvCodec& codec) {
  const int64_t group = codec.group;
  if (codec.axis == CodeAxis::kToken && (group < 1 || group > codec.dim)) {
    return BadInput(
        StrCat("group ", group, ": must be 1 to ", codec.dim, ", the dims of an entry"));
  }
  if (codec.axis == CodeAxis::kChannel && group != 16 && group != 32 && group != 64) {
    return BadInput(StrCat("group ", group, " over entries: must be 16, 32 or 64"));
  }
  return {};
}

Status CheckAffine(const KvCodec& codec) {
  const int bits = codec.bits;
  if (!((bits >= 1 && bits <= 4) || bits == 8)) {
    return BadInput(StrCat("bits ", bits, ": must be 1, 2, 3, 4 or 8"));
  }
  if (codec.symmetric && bits < 2) return BadInput("symmetric codes need 2 bits at least, not 1");
  KVG_TRY(CheckGroup(codec));
  if (codec.exact_scale && (codec.symmetric || codec.axis != CodeAxis::kToken)) {
    return BadInput("exact_scale goes with groups along an entry that have a zero");
  }
  if (codec.clip != 1 && (codec.symmetric || codec.axis != CodeAxis::kToken)) {
    return BadInput(
        StrCat("clip ", codec.clip, ": goes with groups along an entry that have a zero"));
  }
  if (!(codec.clip > 0 && codec.clip <= 1)) {
    return BadInput(StrCat("clip ", codec.clip, ": must be above 0 and at most 1"));
  }
  if (codec.range_pages == 1) return {};
  const bool channels = codec.axis == CodeAxis::kChannel && codec.group == kKvPageEntries;
  if (channels && codec.range_pages >= 0 && codec.range_pages <= kMostRangePages) return {};
  return BadInput(StrCat("range_pages ", codec.range_pages, ": must be 1, or 0 to ",
                         kMostRangePages, " for groups of ", kKvPageEntries, " entries"));
}

Status CheckEdges(const Tensor& edges, int64_t count) {
  if (edges.empty()) return {};
  if (!IsHostVector(edges, count)) {
    return BadInput(StrCat("edges ", edges.DebugString(), ": must be f32[", count, "]"));
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* edge = edges.f32() + i;
    if (std::isfinite(*edge) && (i == 0 || edge[-1] <= *edge)) continue;
    return BadInput(StrCat("edge ", i, " is ", *edge, ": edges must not descend"));
  }
  return {};
}

Status CheckCodebook(const KvCodec& codec) {
  if (codec.bits < 1 || codec.bits > 4) {
    return BadInput(StrCat("bits ", codec.bits, " of a codebook: must be 1 to 4"));
  }
  const int64_t count = int64_t{1} << codec.bits;
  if (!IsHostVector(codec.levels, count)) {
    return BadInput(StrCat("levels ", codec.levels.DebugString(), ": must be f32[", count, "]"));
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* level = codec.levels.f32() + i;
    if (!std::isfinite(*level) || (i > 0 && !(level[-1] < *level))) {
      return BadInput(StrCat("level ", i, " is ", *level, ": levels must ascend"));
    }
  }
  KVG_TRY(CheckEdges(codec.table, count - 1));
  if (codec.axis == CodeAxis::kToken) return CheckGroup(codec);
  if (codec.range != CodeRange::kExtremes) {
    return BadInput("channel ranges are extremes; rms goes with groups along an entry");
  }
  for (const Tensor* t : {&codec.channel_low, &codec.channel_high}) {
    if (!IsHostVector(*t, codec.dim)) {
      return BadInput(StrCat("channel range ", t->DebugString(), ": must be f32[", codec.dim, "]"));
    }
  }
  for (int64_t c = 0; c < codec.dim; ++c) {
    const float low = codec.channel_low.f32()[c], high = codec.channel_high.f32()[c];
    if (!(std::isfinite(low) && std::isfinite(high) && low <= high)) {
      return BadInput(StrCat("range of channel ", c, " is ", low, " to ", high,
                             ": both must be finite and the first not above the second"));
    }
  }
  return {};
}

Status CheckFixedScale(const KvCodec& codec) {
  const Tensor& scale = codec.fixed_scale;
  if (scale.empty()) return {};
  const bool nv = codec.kind == KvCodecKind::kNvFp4;
  if (!nv && !(IsFloat8(codec.kind) && codec.group == 0)) {
    return BadInput("a fixed scale goes with nvfp4 blocks and with float8 without groups");
  }
  const int64_t count = scale.Numel();
  if (!IsHostVector(scale, count) || (count != 1 && (nv || count != codec.dim))) {
    return BadInput(StrCat("fixed scale ", scale.DebugString(), ": must be f32[1]",
                           nv ? std::string() : StrCat(" or f32[", codec.dim, "]")));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (scale.f32()[i] >= 0x1p-100f && scale.f32()[i] <= 0x1p100f) continue;
    return BadInput(StrCat("fixed scale ", i, " is ", scale.f32()[i], ": must be 2^-100 to 2^100"));
  }
  return {};
}

void CheckCall(const char* op, const KvCodec& codec, const Tensor& rows, int64_t first_entry,
               const KvPages& pages) {
  const Status status = CheckCodec(codec);
  KVG_CHECK(status.ok(), StrCat(op, ": ", status.error().message));
  KVG_CHECK(codec.coded(), StrCat(op, ": float pages are attention's to read and write"));
  KVG_OP_CHECK(IsMatrix(rows, DType::kF32) && rows.shape[1] == codec.dim, op, rows);
  KVG_CHECK(first_entry >= 0, StrCat(op, ": first entry ", first_entry));
  const int64_t end_page = CeilDiv(first_entry + rows.shape[0], kKvPageEntries);
  for (int64_t p = first_entry / kKvPageEntries; rows.shape[0] > 0 && p < end_page; ++p) {
    KVG_CHECK(pages.codes != nullptr && pages.codes[p] != nullptr,
              StrCat(op, ": page ", p, " has no codes"));
  }
}

}  // namespace

Status CheckCodec(const KvCodec& codec) {
  if (codec.dim < 1) return BadInput(StrCat("dim ", codec.dim, ": must be positive"));
  if (codec.kind == KvCodecKind::kFloat && !IsFloat(codec.dtype)) {
    return BadInput(StrCat("dtype ", NameOf(codec.dtype), ": must be f32, f16 or bf16"));
  }
  if (codec.kind == KvCodecKind::kAffine) KVG_TRY(CheckAffine(codec));
  if (codec.kind == KvCodecKind::kCodebook) KVG_TRY(CheckCodebook(codec));
  if (IsFloat8(codec.kind) && codec.group != 0) {
    if (codec.axis != CodeAxis::kToken) {
      return BadInput("float8 finds scales along an entry only; those of channels are fixed ahead");
    }
    KVG_TRY(CheckGroup(codec));
  }
  if (IsRecord(codec.kind)) KVG_TRY(CheckRecord(codec));
  KVG_TRY(CheckFixedScale(codec));
  if (SizeOf(FormOf(codec).scale) == 1 && codec.dim > kMostByteScaleDims) {
    return BadInput(StrCat("dim ", codec.dim, " with scales of one byte: must be at most ",
                           kMostByteScaleDims));
  }
  if (!(codec.outlier_share >= 0 && codec.outlier_share <= 1)) {
    return BadInput(StrCat("outlier_share ", codec.outlier_share, ": must be 0 to 1"));
  }
  const bool ranged = codec.kind == KvCodecKind::kAffine ||
                      (codec.kind == KvCodecKind::kCodebook && codec.axis == CodeAxis::kToken);
  if (codec.outlier_share > 0 && !ranged) {
    return BadInput(
        StrCat("outlier_share ", codec.outlier_share,
               ": goes with affine codes and with codebooks whose range comes from the entry"));
  }
  if (codec.has_outliers() && codec.dim > kMostOutlierDims) {
    return BadInput(StrCat("dim ", codec.dim, " with outliers: must be at most ", kMostOutlierDims,
                           ", so that a place in a page has 16 bits"));
  }
  if (codec.rank > 0 && IsRecord(codec.kind)) {
    return BadInput(StrCat("rank ", codec.rank, ": records have no correction"));
  }
  if (codec.rank < 0 || codec.rank > codec.dim || (codec.rank > 0 && !codec.coded())) {
    return BadInput(StrCat("rank ", codec.rank, ": must be 0 to ", codec.coded() ? codec.dim : 0));
  }
  return {};
}

int64_t SealUnit(const KvCodec& codec) {
  const bool over_entries =
      codec.kind == KvCodecKind::kPolarPairs || codec.kind == KvCodecKind::kMeanSizes ||
      (codec.kind == KvCodecKind::kAffine && codec.axis == CodeAxis::kChannel);
  const int64_t ranged = over_entries ? codec.group * std::max<int64_t>(codec.range_pages, 1) : 1;
  const bool side_cars = codec.has_outliers() || codec.rank > 0;
  return side_cars ? std::max(ranged, kKvPageEntries) : ranged;
}

KvBytes& KvBytes::operator+=(const KvBytes& other) {
  payload += other.payload;
  scales += other.scales;
  indices += other.indices;
  outliers += other.outliers;
  low_rank += other.low_rank;
  biases += other.biases;
  codebooks += other.codebooks;
  projections += other.projections;
  slack += other.slack;
  return *this;
}

int64_t CodeBits(const KvCodec& codec) {
  return codec.coded() ? FormOf(codec).bits : 8 * SizeOf(codec.dtype);
}

int64_t EntryCodeBits(const KvCodec& codec) {
  if (IsRecord(codec.kind)) return RecordBits(codec);
  return codec.dim * CodeBits(codec);
}

CodeForm FormOf(const KvCodec& codec) {
  using Kind = KvCodecKind;
  using Scale = ScaleType;
  const auto block = [](int bits, Scale scale, bool zeros, int offset, int64_t group = kBlock) {
    CodeForm form;
    form.bits = bits;
    form.scale = scale;
    form.zeros = zeros;
    form.group = group;
    form.offset = offset;
    return form;
  };
  const auto leveled = [](CodeForm form, std::span<const float> levels) {
    form.levels = levels;
    return form;
  };
  CodeForm form;
  switch (codec.kind) {
    case Kind::kFloat:
      return form;
    case Kind::kAffine:
      form = block(codec.bits, Scale::kF16, !codec.symmetric, 0, codec.group);
      if (codec.symmetric) form.offset = 1 << (codec.bits - 1);
      form.by_token = codec.axis == CodeAxis::kToken;
      return form;
    case Kind::kCodebook: {
      form = block(codec.bits, Scale::kF16, codec.range == CodeRange::kExtremes, 0, codec.group);
      if (!codec.levels.empty()) {
        form.levels = {codec.levels.f32(), size_t{1} << codec.bits};
      }
      if (codec.axis == CodeAxis::kToken) return form;
      form.by_token = form.zeros = false;  // ranges are fixed ahead
      form.scale = Scale::kNone;
      form.group = 0;
      return form;
    }
    case Kind::kQ8_0:
      return block(8, Scale::kF16, false, 128);
    case Kind::kQ4_0:
      return block(4, Scale::kF16, false, 8);
    case Kind::kQ4_1:
      return block(4, Scale::kF16, true, 0);
    case Kind::kQ5_0:
      return block(5, Scale::kF16, false, 16);
    case Kind::kQ5_1:
      return block(5, Scale::kF16, true, 0);
    case Kind::kIq4Nl:
      return leveled(block(4, Scale::kF16, false, 0), kIq4Levels);
    case Kind::kMxFp4:
      return leveled(block(4, Scale::kE8M0, false, 0), kE2M1Levels);
    case Kind::kNvFp4:
      return leveled(block(4, Scale::kE4M3, false, 0, kNvBlock), kE2M1Levels);
    case Kind::kFp8E4M3:
    case Kind::kFp8E5M2:
      form = block(8, codec.group > 0 ? Scale::kF32 : Scale::kNone, false, 0, codec.group);
      form.float8 = true;
      return form;
    case Kind::kClusters:
    case Kind::kPolarPairs:
    case Kind::kPolarTree:
    case Kind::kVectors:
    case Kind::kSketched:
    case Kind::kMeanSizes:
      return form;  // records have bytes of their own
  }
  return form;
}

KvBytes CodedBytes(const KvCodec& codec, int64_t entries) {
  KvBytes bytes;
  if (IsRecord(codec.kind)) {
    bytes.payload = entries * CeilDiv(RecordBits(codec), 8);
    const RecordView view = RecordOf(codec);
    bytes.scales = entries * ScaleBytesOf(view) + view.header_bytes * entries / kKvPageEntries;
    return bytes;
  }
  bytes.payload = CeilDiv(entries * codec.dim * CodeBits(codec), 8);
  if (const CodeForm form = FormOf(codec); form.scale != ScaleType::kNone) {
    const int64_t groups = form.by_token ? entries * CeilDiv(codec.dim, form.group)
                                         : CeilDiv(entries, form.group) * codec.dim;
    bytes.scales = groups * (SizeOf(form.scale) + (form.zeros ? kF16Bytes : 0));
  }
  if (entries > 0) bytes.low_rank = (entries + codec.dim) * codec.rank * kF16Bytes;
  return bytes;
}

void CodecOps::Encode(const KvCodec& codec, const Tensor& rows, int64_t first_entry,
                      const KvPages& pages, const AllocateBlock& allocate) {
  CheckCall("Encode", codec, rows, first_entry, pages);
  const int64_t unit = SealUnit(codec);
  KVG_CHECK(first_entry % unit == 0 && rows.shape[0] % unit == 0,
            StrCat("Encode: entries from ", first_entry, ", ", rows.shape[0],
                   " of them: must be multiples of ", unit));
  KVG_CHECK(allocate || (codec.rank == 0 && !codec.has_outliers()),
            "Encode: side blocks need memory");
  if (rows.shape[0] > 0) DoEncode(codec, rows, first_entry, pages, allocate);
}

void CodecOps::Decode(const KvCodec& codec, const KvPages& pages, int64_t first_entry,
                      Tensor rows) {
  CheckCall("Decode", codec, rows, first_entry, pages);
  KVG_CHECK(codec.rank == 0 || (pages.latents != nullptr && pages.bases != nullptr),
            "Decode: the correction is missing");
  KVG_CHECK(!codec.has_outliers() || pages.outliers != nullptr,
            "Decode: the list of outlier blocks is missing");
  if (rows.shape[0] > 0) DoDecode(codec, pages, first_entry, rows);
}

}  // namespace kvgauge
