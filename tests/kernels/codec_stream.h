// SPDX-License-Identifier: Apache-2.0
// A coded stream with its own pages, and the codecs that tables of tests run over.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/strings.h"
#include "kernels/attention.h"
#include "kernels/kv_codec.h"

namespace kvgauge {

// Pages of one stream behind one backend. Every block is as large as was asked for, with a guard
// behind it.
class CodecStream {
 public:
  CodecStream(CodecOps& ops, const KvCodec& codec, int64_t entries)
      : ops_(ops), codec_(codec), entries_(entries) {
    const int64_t count = (entries + kKvPageEntries - 1) / kKvPageEntries;
    for (int64_t p = 0; p < count; ++p) codes_.push_back(NewBlock(ops.PageBytes(codec)));
    outliers_.resize(static_cast<size_t>(count));
    latents_.resize(static_cast<size_t>(count));
    bases_.resize(static_cast<size_t>(count));
  }

  KvPages pages() const {
    return {codes_.data(), outliers_.data(), latents_.data(), bases_.data()};
  }

  // rows [n, dim], `padding` floats between rows.
  void Encode(const std::vector<float>& rows, int64_t first_entry = 0, int64_t padding = 0) {
    Tensor view = View(
        rows, {static_cast<int64_t>(rows.size()) / (codec_.dim + padding), codec_.dim + padding});
    view.shape[1] = codec_.dim;
    const int64_t end = (first_entry + view.shape[0] + kKvPageEntries - 1) / kKvPageEntries;
    const auto allocate = [&](CodecOps::Block kind, int64_t page, int64_t size_bytes) {
      void* block = NewBlock(size_bytes);
      requested_[kind] += size_bytes;
      if (kind == CodecOps::Block::kOutliers) outliers_[page] = block;
      if (kind == CodecOps::Block::kLatents) latents_[page] = block;
      for (int64_t p = page; kind == CodecOps::Block::kBasis && p < end; ++p) bases_[p] = block;
      return block;
    };
    ops_.Encode(codec_, view, first_entry, pages(), allocate);
  }

  std::vector<float> Decode(int64_t first_entry, int64_t count) const {
    std::vector<float> rows(static_cast<size_t>(count * codec_.dim), -1.0f);
    ops_.Decode(codec_, pages(), first_entry, View(rows, {count, codec_.dim}));
    return rows;
  }
  std::vector<float> Decode() const { return Decode(0, entries_); }

  int64_t requested(CodecOps::Block kind) const {
    const auto found = requested_.find(kind);
    return found == requested_.end() ? 0 : found->second;
  }
  std::vector<uint8_t> PageMemory(int64_t page) const {
    const auto* bytes = static_cast<const uint8_t*>(codes_[page]);
    return {bytes, bytes + ops_.PageBytes(codec_)};
  }
  // Nothing was written behind a block.
  bool Intact() const {
    for (const std::vector<uint8_t>& block : blocks_) {
      for (size_t i = block.size() - kGuard; i < block.size(); ++i) {
        if (block[i] != kFill) return false;
      }
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kFill = 0xa5;

  void* NewBlock(int64_t size_bytes) {
    std::vector<uint8_t> block(static_cast<size_t>(size_bytes), 0);
    block.insert(block.end(), kGuard, kFill);
    blocks_.push_back(std::move(block));
    return blocks_.back().data();
  }

  CodecOps& ops_;
  const KvCodec codec_;
  const int64_t entries_;
  std::vector<std::vector<uint8_t>> blocks_;
  std::vector<void*> codes_, outliers_, latents_, bases_;
  std::map<CodecOps::Block, int64_t> requested_;
};

inline KvCodec AffineCodec(int bits, CodeAxis axis, int64_t group, int64_t dim) {
  KvCodec codec;
  codec.kind = KvCodecKind::kAffine;
  codec.bits = bits;
  codec.axis = axis;
  codec.group = group;
  codec.dim = dim;
  return codec;
}

inline KvCodec PlainCodec(KvCodecKind kind, int64_t dim) {
  KvCodec codec;
  codec.kind = kind;
  codec.dim = dim;
  return codec;
}

// Lloyd-Max levels of the normal distribution, unit variance, 1 to 4 bits.
inline std::vector<float> NormalLevels(int bits) {
  static const std::vector<std::vector<float>> kPositive = {
      {.7979f},
      {.4528f, 1.5104f},
      {.2451f, .7560f, 1.3439f, 2.1519f},
      {.1284f, .3880f, .6568f, .9423f, 1.2562f, 1.6180f, 2.0690f, 2.7326f}};
  const std::vector<float>& positive = kPositive[bits - 1];
  std::vector<float> levels;
  for (auto v = positive.rbegin(); v != positive.rend(); ++v) levels.push_back(-*v);
  levels.insert(levels.end(), positive.begin(), positive.end());
  return levels;
}

// `levels` must outlive the codec.
inline KvCodec CodebookCodec(int bits, CodeRange range, int64_t group, int64_t dim,
                             const std::vector<float>& levels) {
  KvCodec codec;
  codec.kind = KvCodecKind::kCodebook;
  codec.bits = bits;
  codec.group = group;
  codec.dim = dim;
  codec.range = range;
  codec.levels = View(levels, {static_cast<int64_t>(levels.size())});
  return codec;
}

// Every format of blocks and of floats, float8 with each kind of scales. `scales`, `dim` of them at
// least, must outlive the codecs.
inline std::vector<KvCodec> FormatCodecs(int64_t dim, const std::vector<float>& scales) {
  using Kind = KvCodecKind;
  std::vector<KvCodec> codecs;
  for (const Kind kind : {Kind::kQ8_0, Kind::kQ4_0, Kind::kQ4_1, Kind::kQ5_0, Kind::kQ5_1,
                          Kind::kIq4Nl, Kind::kMxFp4, Kind::kNvFp4}) {
    codecs.push_back(PlainCodec(kind, dim));
  }
  codecs.push_back(PlainCodec(Kind::kNvFp4, dim));
  const Tensor fixed_scales = View(scales, {std::ssize(scales)});
  codecs.back().fixed_scale = fixed_scales.Slice(0, 1);
  for (const Kind kind : {Kind::kFp8E4M3, Kind::kFp8E5M2}) {
    for (const int64_t fixed : {int64_t{0}, int64_t{1}, dim}) {
      codecs.push_back(PlainCodec(kind, dim));
      if (fixed > 0) codecs.back().fixed_scale = fixed_scales.Slice(0, fixed);
    }
    for (const int64_t group : {dim, std::min<int64_t>(dim, 32), std::min<int64_t>(dim, 10)}) {
      codecs.push_back(PlainCodec(kind, dim));
      codecs.back().group = group;
    }
  }
  return codecs;
}

// Every form of records. `numbers` of them, at least 12 dim^2, must outlive the codecs.
inline std::vector<KvCodec> RecordCodecs(int64_t dim, const std::vector<float>& numbers,
                                         const std::vector<float>& levels,
                                         const std::vector<float>& groups) {
  using Kind = KvCodecKind;
  std::vector<KvCodec> codecs;
  const auto add = [&](Kind kind, int bits, int64_t group) -> KvCodec& {
    codecs.push_back(PlainCodec(kind, dim));
    codecs.back().bits = bits;
    codecs.back().group = group;
    return codecs.back();
  };
  const auto table = [&](int64_t count) {
    return View(numbers, {std::ssize(numbers)}).Slice(0, count);
  };
  KvCodec& clusters = add(Kind::kClusters, 2, 0);
  clusters.stages = 3;
  clusters.clip = 0.96f;
  clusters.table = View(groups, {std::ssize(groups)}).Slice(0, dim);
  if (dim % 2 == 0) {
    add(Kind::kPolarPairs, 4, 32).apart = dim / 2;
    add(Kind::kPolarPairs, 3, 64).apart = 1;
    KvCodec& turning = add(Kind::kVectors, 4, dim);
    turning.stages = 3;
    turning.commuting = true;
    turning.apart = dim / 2;
    turning.range = CodeRange::kRms;
    turning.table = table(3 * 4 * dim);
    KvCodec& runs = add(Kind::kVectors, 4, 2);
    runs.stages = 2;
    runs.table = table(2 * 16 * dim);
  }
  if (dim % 16 == 0) add(Kind::kPolarTree, 0, 0);
  add(Kind::kMeanSizes, 2, 32).stages = dim / 2;
  add(Kind::kMeanSizes, 3, 16).stages = 0;
  add(Kind::kMeanSizes, 0, 64).stages = dim / 3;
  add(Kind::kSketched, 3, 0).levels = View(levels, {std::ssize(levels)});
  return codecs;
}

inline std::string NameOf(const KvCodec& codec) {
  static const char* const kKinds[] = {
      "float",       "affine",     "q8_0",    "q4_0",     "fp8",       "codebook", "q4_1",
      "q5_0",        "q5_1",       "iq4_nl",  "fp8_e5m2", "mxfp4",     "nvfp4",    "clusters",
      "polar pairs", "polar tree", "vectors", "sketched", "mean sizes"};
  return StrCat(
      codec.side == KvSide::kKeys ? "keys " : "values ", kKinds[static_cast<int>(codec.kind)],
      " bits ", codec.bits, codec.axis == CodeAxis::kToken ? " token" : " channel", " group ",
      codec.group, codec.symmetric ? " symmetric" : "", codec.exact_scale ? " exact" : "", " clip ",
      codec.clip, " range ", static_cast<int>(codec.range), " fixed ",
      codec.fixed_scale.empty() ? 0 : codec.fixed_scale.Numel(), " share ", codec.outlier_share,
      " rank ", codec.rank, " dim ", codec.dim, " stages ", codec.stages, " apart ", codec.apart);
}

}  // namespace kvgauge
