// SPDX-License-Identifier: Apache-2.0
// Spreads the coding of pages over threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "cpu/codec/codec_kernels.h"
#include "cpu/codec/codec_records.h"
#include "cpu/codec/codec_side.h"
#include "cpu/cpu.h"
#include "cpu/split_work.h"

namespace kvgauge {

const CodecKernels& CodecKernelsOf([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return Avx512CodecKernels();
  if (isa >= Isa::kAvx2) return Avx2CodecKernels();
#endif
  return PortableCodecKernels();
}

namespace {

constexpr double kEncode_ns = 0.5;  // a number
constexpr double kDecode_ns = 0.2;
constexpr double kRange_ns = 0.1;

// The part of one page that a call is about.
struct PagePart {
  int64_t page;
  int begin, end;  // entries of the page
  int64_t row;     // of the call's tensor, for entry `begin`
};

std::vector<PagePart> PartsOf(int64_t first_entry, int64_t n) {
  std::vector<PagePart> parts;
  for (int64_t row = 0; row < n;) {
    const int64_t entry = first_entry + row, page = entry / kCodePageEntries;
    const int64_t begin = entry % kCodePageEntries;
    const int64_t end = std::min<int64_t>(kCodePageEntries, begin + n - row);
    parts.push_back({page, static_cast<int>(begin), static_cast<int>(end), row});
    row += end - begin;
  }
  return parts;
}

const void* At(void* const* list, int64_t page) { return list == nullptr ? nullptr : list[page]; }

class CpuCodec final : public CodecOps {
 public:
  CpuCodec(Isa isa, ThreadSettings threads) : k_(CodecKernelsOf(isa)), threads_(threads) {}

  int64_t PageBytes(const KvCodec& codec) const override { return CodedLayout(codec).bytes; }
  int64_t OutlierCount(const void* block) const override { return CountOutliers(block); }

 private:
  struct Scratch {
    std::vector<uint8_t> codes;  // [64][width]
    std::vector<float> tile;
  };

  void DoEncode(const KvCodec& codec, const Tensor& rows, int64_t first_entry, const KvPages& pages,
                const AllocateBlock& allocate) override {
    const CodecPlan plan(codec);
    const std::vector<PagePart> parts = PartsOf(first_entry, rows.shape[0]);
    std::vector<Outliers> outliers(codec.has_outliers() ? parts.size() : 0);
    std::vector<float> kept;  // the rows without them
    Tensor coded = rows;
    if (!outliers.empty()) {
      kept.resize(static_cast<size_t>(rows.Numel()));
      coded = Tensor(kept.data(), DType::kF32, {rows.shape[0], codec.dim});
      ForPages(plan, parts, kEncode_ns, [&](int64_t i, Scratch&) {
        float* to = kept.data() + parts[i].row * codec.dim;
        for (int64_t e = 0; e < kCodePageEntries; ++e) {
          const float* from = rows.As<float>() + (parts[i].row + e) * rows.stride[0];
          std::copy_n(from, codec.dim, to + e * codec.dim);
        }
        outliers[i] = TakeOutliers(codec, to);
      });
    }
    const PageRanges ranges = RangesOf(codec, coded);
    ForPages(plan, parts, kEncode_ns, [&](int64_t i, Scratch& scratch) {
      EncodePage(codec, plan, parts[i], coded, ranges, pages, scratch);
    });

    void* basis = nullptr;
    if (codec.rank > 0) {
      const int64_t basis_bytes = codec.rank * codec.dim * SizeOf(DType::kF16);
      basis = Allocated(allocate, Block::kBasis, parts[0].page, basis_bytes);
    }
    std::vector<uint16_t*> latents;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (codec.rank > 0) {
        const int64_t latent_bytes = kCodePageEntries * codec.rank * SizeOf(DType::kF16);
        latents.push_back(static_cast<uint16_t*>(
            Allocated(allocate, Block::kLatents, parts[i].page, latent_bytes)));
      }
      if (!outliers.empty() && !outliers[i].empty()) {
        const auto count = static_cast<int64_t>(outliers[i].size());
        WriteOutliers(outliers[i],
                      Allocated(allocate, Block::kOutliers, parts[i].page, OutlierBytes(count)));
      }
    }
    if (codec.rank > 0) {
      Correct(plan, parts, rows, pages, outliers, latents, static_cast<uint16_t*>(basis));
    }
  }

  // The ranges of channels that several pages share: those of runs of so many rows.
  struct PageRanges {
    int64_t run = 0;            // 0: each group has its own
    std::vector<float> bounds;  // [runs][2][dim]: least and largest
  };

  PageRanges RangesOf(const KvCodec& codec, const Tensor& rows) const {
    PageRanges ranges;
    const int64_t n = rows.shape[0], dim = codec.dim;
    if (codec.range_pages == 1) return ranges;
    ranges.run = codec.range_pages == 0 ? n : codec.range_pages * kCodePageEntries;
    const int64_t runs = n / ranges.run;
    ranges.bounds.resize(static_cast<size_t>(2 * runs * dim));
    SplitWork(threads_, runs, kRange_ns * static_cast<double>(ranges.run * dim), [&](int64_t r) {
      float* const low = ranges.bounds.data() + 2 * r * dim;
      float* const high = low + dim;
      const float* x = rows.As<float>() + r * ranges.run * rows.stride[0];
      std::copy_n(x, dim, low);
      std::copy_n(x, dim, high);
      for (int64_t e = 1; e < ranges.run; ++e) {
        x += rows.stride[0];
        for (int64_t c = 0; c < dim; ++c) {
          low[c] = std::min(low[c], x[c]);
          high[c] = std::max(high[c], x[c]);
        }
      }
    });
    return ranges;
  }

  void EncodePage(const KvCodec& codec, const CodecPlan& plan, const PagePart& part,
                  const Tensor& rows, const PageRanges& ranges, const KvPages& pages,
                  Scratch& scratch) const {
    const CodedLayout& layout = plan.layout;
    auto* page = static_cast<uint8_t*>(pages.codes[part.page]);
    auto* scale = reinterpret_cast<uint16_t*>(page + layout.scale_offset);
    auto* zero = reinterpret_cast<uint16_t*>(page + layout.zero_offset);
    const float* x = rows.As<float>() + part.row * rows.stride[0];
    const int64_t stride = rows.stride[0];
    if (IsRecord(plan.kind)) {
      return EncodeRecords(k_, plan.record, x, stride, part.begin, part.end, page);
    }
    scratch.codes.assign(static_cast<size_t>(kCodePageEntries) * layout.width, 0);
    uint8_t* codes = scratch.codes.data();
    const bool channels = codec.kind == KvCodecKind::kAffine && codec.axis == CodeAxis::kChannel;
    for (int e = part.begin; e < part.end; e += channels ? layout.group : 1) {
      const float* from = x + (e - part.begin) * stride;
      uint8_t* to = codes + int64_t{e} * layout.width;
      if (channels) {
        const int64_t at = int64_t{e} / layout.group * layout.scale_stride;
        RangedRows ranged = {from, stride, layout.group};
        if (ranges.run > 0) {
          ranged = {ranges.bounds.data() + 2 * (part.row / ranges.run) * codec.dim, codec.dim, 2};
        }
        k_.code_channels(plan, from, stride, ranged, to, scale + at, zero + at);
      } else {
        k_.code_entry(plan, from, to, page + layout.scale_offset + e * SizeOf(layout.scale),
                      zero + e);
      }
    }
    k_.pack(plan, codes, part.begin, part.end, page);
  }

  // Fits what codes and outliers leave of the rows.
  void Correct(const CodecPlan& plan, const std::vector<PagePart>& parts, const Tensor& rows,
               const KvPages& pages, const std::vector<Outliers>& outliers,
               const std::vector<uint16_t*>& latents, uint16_t* basis) const {
    const int64_t n = rows.shape[0], dim = plan.layout.dim, rank = plan.rank;
    std::vector<float> error(static_cast<size_t>(n * dim));
    ForPages(plan, parts, kDecode_ns, [&](int64_t i, Scratch& scratch) {
      scratch.tile.resize(static_cast<size_t>(TileFloats(plan.layout)));
      k_.decode(plan, pages.codes[parts[i].page], scratch.tile.data());
      float* to = error.data() + parts[i].row * dim;
      ReadTile(plan.layout, scratch.tile.data(), 0, kCodePageEntries, to, dim);
      for (int64_t e = 0; e < kCodePageEntries; ++e) {
        const float* x = rows.As<float>() + (parts[i].row + e) * rows.stride[0];
        for (int64_t c = 0; c < dim; ++c) to[e * dim + c] = x[c] - to[e * dim + c];
      }
      if (outliers.empty()) return;
      for (const uint32_t outlier : outliers[i]) {
        const uint32_t place = outlier >> 16;
        to[place % kCodePageEntries * dim + place / kCodePageEntries] = 0.0f;
      }
    });
    const LowRank fit = FitLowRank(k_, threads_, error.data(), n, dim, rank);
    for (size_t i = 0; i < parts.size(); ++i) {
      for (int64_t e = 0; e < kCodePageEntries; ++e) {
        for (int64_t r = 0; r < rank; ++r) {
          latents[i][e * rank + r] = ClampedF16(fit.latents[r * n + parts[i].row + e]);
        }
      }
    }
    for (int64_t i = 0; i < rank * dim; ++i) basis[i] = ClampedF16(fit.basis[i]);
  }

  void DoDecode(const KvCodec& codec, const KvPages& pages, int64_t first_entry,
                Tensor rows) override {
    const CodecPlan plan(codec);
    const std::vector<PagePart> parts = PartsOf(first_entry, rows.shape[0]);
    ForPages(plan, parts, kDecode_ns, [&](int64_t i, Scratch& scratch) {
      const PagePart& part = parts[i];
      scratch.tile.resize(static_cast<size_t>(TileFloats(plan.layout)));
      DecodeTile(k_, plan, PageOf(pages, part.page), scratch.tile.data());
      ReadTile(plan.layout, scratch.tile.data(), part.begin, part.end,
               rows.As<float>() + part.row * rows.stride[0], rows.stride[0]);
    });
  }

  static uint16_t ClampedF16(float v) { return F32ToF16(std::clamp(v, -65504.0f, 65504.0f)); }

  static void* Allocated(const AllocateBlock& allocate, Block kind, int64_t page, int64_t bytes) {
    void* block = allocate(kind, page, bytes);
    KVG_CHECK(block != nullptr, "Encode: no memory for a side block");
    return block;
  }

  // Entries [begin, end) of a tile as rows.
  static void ReadTile(const CodedLayout& layout, const float* tile, int begin, int end, float* out,
                       int64_t stride) {
    if (layout.side == KvSide::kValues) {
      for (int e = begin; e < end; ++e, out += stride) {
        std::copy_n(tile + int64_t{e} * layout.width, layout.dim, out);
      }
      return;
    }
    for (int c = 0; c < layout.dim; ++c) {
      const float* lanes = tile + int64_t{c} * kCodePageEntries;
      for (int e = begin; e < end; ++e) out[(e - begin) * stride + c] = lanes[e];
    }
  }

  template <class Body>
  void ForPages(const CodecPlan& plan, const std::vector<PagePart>& parts, double number_ns,
                const Body& body) const {
    std::vector<Scratch> scratch(static_cast<size_t>(std::max(threads_.threads, 1)));
    const double page_ns = number_ns * kCodePageEntries * plan.layout.dim;
    SplitWorkByWorker(threads_, static_cast<int64_t>(parts.size()), page_ns,
                      [&](int64_t i, int worker) { body(i, scratch[worker]); });
  }

  const CodecKernels& k_;
  const ThreadSettings threads_;
};

}  // namespace

CodedPage PageOf(const KvPages& pages, int64_t page) {
  return {At(pages.codes, page), At(pages.outliers, page), At(pages.latents, page),
          At(pages.bases, page)};
}

void DecodeTile(const CodecKernels& kernels, const CodecPlan& plan, const CodedPage& page,
                float* tile) {
  if (IsRecord(plan.kind)) return DecodeRecords(plan.record, plan.layout, page.codes, tile);
  kernels.decode(plan, page.codes, tile);
  if (plan.rank > 0) kernels.correct(plan, page.latents, page.basis, tile);
  if (page.outliers != nullptr) ApplyOutliers(plan.layout, page.outliers, tile);
}

std::unique_ptr<CodecOps> MakeCpuCodec(Isa isa, ThreadSettings threads) {
  return std::make_unique<CpuCodec>(isa, threads);
}

}  // namespace kvgauge
