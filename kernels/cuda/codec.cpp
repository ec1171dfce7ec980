// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "cuda/backend_parts.h"
#include "cuda/call_tables.h"
#include "cuda/codec_kernels.h"
#include "cuda/device/mapped.h"
#include "kernels/attention.h"

namespace kvgauge::cuda {
namespace {

static_assert(kPageEntries == kKvPageEntries);
constexpr int64_t kPage = kKvPageEntries;
constexpr uint64_t kCorrectionSeed = 1;

void* At(void* const* list, int64_t i) { return list == nullptr ? nullptr : list[i]; }

class CudaCodec final : public CodecOps {
 public:
  explicit CudaCodec(Stream stream)
      : stream_(stream),
        tables_(stream),
        pointers_(stream),
        marks_(stream),
        kept_(stream),
        factors_(stream),
        kept_error_(stream),
        fit_(stream) {}

  int64_t PageBytes(const KvCodec& codec) const override { return CodedPageBytes(ViewOf(codec)); }

  int64_t OutlierCount(const void* block) const override {
    uint32_t count = 0;
    if (block != nullptr) CopyToHost(&count, block, sizeof count, stream_);
    return count;
  }

 private:
  // The pages that n rows from an entry on lie in.
  static std::vector<PagePart> PartsOf(const KvPages& pages, int64_t first_entry, int64_t n) {
    std::vector<PagePart> parts;
    for (int64_t row = 0; row < n;) {
      const int64_t p = (first_entry + row) / kPage;
      const int64_t begin = first_entry + row - p * kPage;
      const int64_t end = std::min(kPage, begin + n - row);
      parts.push_back({{static_cast<uint8_t*>(pages.codes[p]),
                        static_cast<const uint8_t*>(At(pages.outliers, p)),
                        static_cast<const uint16_t*>(At(pages.latents, p)),
                        static_cast<const uint16_t*>(At(pages.bases, p))},
                       row,
                       static_cast<int>(begin),
                       static_cast<int>(end)});
      row += end - begin;
    }
    return parts;
  }

  // Where they are a share of each vector: it has an order, so it has as many of them.
  static uint32_t OutliersOfPage(const CodecView& view) {
    const int64_t vectors = view.by_token ? kPage : view.dim;
    const int64_t numbers = view.by_token ? view.dim : kPage;
    return static_cast<uint32_t>(vectors * std::min<int64_t>(numbers, 2 * view.outliers_a_side));
  }

  // Sends the tables of a call, and `pointers` after them.
  CodecCall Prepare(const KvCodec& codec, std::span<const PagePart> parts, const Tensor& rows) {
    const auto count = static_cast<int64_t>(parts.size());
    CodecView view = ViewOf(codec);
    if (view.range_pages == 0) view.range_pages = static_cast<int>(count);
    tables_.Begin(static_cast<int64_t>(sizeof view) +
                  count * static_cast<int64_t>(sizeof(PagePart)) + 12 * codec.dim +
                  RecordTableBytes(codec) + 6 * Tables::kGap);
    PutRanges(codec, tables_, &view);
    const CodecCall call = {.codec = tables_.Put(std::span<const CodecView>(&view, 1)),
                            .parts = tables_.Put(parts),
                            .parts_count = count,
                            .rows = rows.As<float>(),
                            .stride = rows.stride[0]};
    tables_.Send(stream_);
    return call;
  }

  void DoDecode(const KvCodec& codec, const KvPages& pages, int64_t first_entry,
                Tensor rows) override {
    const std::vector<PagePart> parts = PartsOf(pages, first_entry, rows.shape[0]);
    DecodeParts(Prepare(codec, parts, rows), static_cast<int>(codec.dim), stream_);
  }

  void DoEncode(const KvCodec& codec, const Tensor& rows, int64_t first_entry, const KvPages& pages,
                const AllocateBlock& allocate) override {
    if (AnyMapped()) NoteWriteToMapped();
    const std::vector<PagePart> parts = PartsOf(pages, first_entry, rows.shape[0]);
    const auto count = static_cast<int64_t>(parts.size());
    const int64_t n = rows.shape[0], dim = codec.dim, rank = codec.rank;
    const int64_t first_page = first_entry / kPage;
    const int dim32 = static_cast<int>(dim);
    const CodecCall call = Prepare(codec, parts, rows);

    CodecCall coded = call;
    uint32_t* marks = nullptr;
    std::vector<uint32_t> outliers(parts.size());
    if (codec.has_outliers()) {
      marks = marks_.Of<uint32_t>(count * (2 * dim + 1));
      coded.rows = kept_.Of<float>(n * dim);
      coded.stride = dim;
      FindOutliers(call, dim32, coded.rows, marks, stream_);
      const CodecView view = ViewOf(codec);
      if (view.fixed_range) {
        uint32_t* const counts = marks + count * 2 * dim;
        CountMarks(call, dim32, marks, counts, stream_);
        CopyToHost(outliers.data(), counts, 4 * count, stream_);
      } else {
        std::fill(outliers.begin(), outliers.end(), OutliersOfPage(view));
      }
    }
    const int64_t scales = std::max(ViewOf(codec).scales, 1);
    EncodeParts(coded, factors_.Of<float>(2 * count * scales), scales, stream_);

    uint16_t* basis = nullptr;
    std::vector<void*> blocks(parts.size()), latents(parts.size());
    if (rank > 0) {
      basis =
          static_cast<uint16_t*>(Allocated(allocate, Block::kBasis, first_page, rank * dim * 2));
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      if (rank > 0) {
        latents[at] = Allocated(allocate, Block::kLatents, first_page + i, kPage * rank * 2);
      }
      if (outliers[at] == 0) continue;
      blocks[at] =
          Allocated(allocate, Block::kOutliers, first_page + i, OutlierBytes(outliers[at]));
    }
    // A call's tables must stay until its kernels have run, so these are sent to memory of their
    // own.
    pointers_.Begin(count * (2 * 8 + 4) + 3 * Tables::kGap);
    auto* const device_blocks =
        reinterpret_cast<uint8_t* const*>(pointers_.Put(std::span<void* const>(blocks)));
    auto* const device_latents =
        reinterpret_cast<uint16_t* const*>(pointers_.Put(std::span<void* const>(latents)));
    const uint32_t* const device_counts = pointers_.Put(std::span<const uint32_t>(outliers));
    pointers_.Send(stream_);
    if (marks != nullptr) {
      WriteOutliers(call, dim32, marks, device_blocks, device_counts, stream_);
    }
    if (rank > 0) Correct(coded, codec, n, call, marks, basis, device_latents);
  }

  // coded: rows without outliers.
  void Correct(const CodecCall& coded, const KvCodec& codec, int64_t n, const CodecCall& call,
               const uint32_t* marks, uint16_t* basis, uint16_t* const* latents) {
    const int dim = static_cast<int>(codec.dim), rank = static_cast<int>(codec.rank);
    auto* const error = kept_error_.Of<float>(n * dim);
    CodingError(call, dim, marks, error, stream_);
    auto* const factors = fit_.Of<double>(rank * (n + dim));
    double* const device_basis = factors + rank * n;
    std::vector<double> start(static_cast<size_t>(rank) * static_cast<size_t>(dim));
    Rng rng(kCorrectionSeed, 0);
    for (double& v : start) v = rng.NextGaussian();
    CopyToDevice(device_basis, start.data(), static_cast<int64_t>(start.size()) * 8, stream_);
    FitCorrection(error, n, dim, rank, factors, device_basis, stream_);
    StoreCorrection(coded, n, dim, rank, factors, device_basis, latents, basis, stream_);
  }

  static void* Allocated(const AllocateBlock& allocate, Block kind, int64_t page, int64_t bytes) {
    void* block = allocate(kind, page, bytes);
    KVG_CHECK(block != nullptr, "Encode: no memory for a side block");
    return block;
  }

  const Stream stream_;
  Tables tables_, pointers_;
  Scratch marks_, kept_, factors_, kept_error_, fit_;
};

}  // namespace

int64_t RecordTableBytes(const KvCodec& codec) {
  return codec.table.empty() ? 0 : codec.table.SizeBytes();
}

CodecView ViewOf(const KvCodec& codec) {
  CodecView view = {};
  if (IsRecord(codec.kind)) {
    view.kind = codec.kind;
    view.keys = codec.side == KvSide::kKeys;
    view.by_token = true;
    view.dim = static_cast<int>(codec.dim);
    view.width = (view.dim + 15) / 16 * 16;
    view.group = 1;
    view.record = RecordOf(codec);
    return view;
  }
  const CodeForm form = FormOf(codec);
  const bool affine = codec.kind == KvCodecKind::kAffine;
  const bool book = codec.kind == KvCodecKind::kCodebook;
  view.kind = codec.kind;
  view.scale = form.scale;
  view.range = codec.range;
  view.keys = codec.side == KvSide::kKeys;
  view.by_token = form.by_token;
  view.fixed_range = book && codec.axis == CodeAxis::kChannel;
  view.symmetric = affine && codec.symmetric;
  view.exact_scale = affine && codec.exact_scale;
  view.clip = codec.clip;
  view.has_zeros = form.zeros;
  view.dim = static_cast<int>(codec.dim);
  view.width = (view.dim + 15) / 16 * 16;
  view.bits = form.bits;
  view.group = 1;
  view.range_pages = static_cast<int>(codec.range_pages);
  if (form.scale != ScaleType::kNone) {
    view.group = static_cast<int>(form.group);
    view.scales = view.by_token ? (view.dim + view.group - 1) / view.group * kPageEntries
                                : kPageEntries / view.group * view.dim;
  }
  view.shift = form.offset;
  view.rank = static_cast<int>(codec.rank);
  view.has_outliers = codec.has_outliers();
  const double vector = view.by_token ? view.dim : kPageEntries;
  view.outliers_a_side = static_cast<int>(codec.outlier_share * vector / 2 + 0.5);
  view.has_levels = !form.levels.empty();
  std::copy(form.levels.begin(), form.levels.end(), view.levels);
  for (int i = 0; book && i + 1 < 1 << view.bits; ++i) {
    const bool given = !codec.table.empty();
    view.edges[i] = given ? codec.table.f32()[i] : 0.5f * (view.levels[i] + view.levels[i + 1]);
  }
  const bool float8 = codec.kind == KvCodecKind::kFp8E4M3 || codec.kind == KvCodecKind::kFp8E5M2;
  view.range_of_dims = view.fixed_range || (float8 && form.scale == ScaleType::kNone);
  const bool by_entry = view.by_token && !view.range_of_dims;
  const int ranges = view.range_of_dims ? view.dim : view.scales;
  // The 8 numbers of a string have one range, or ranges that follow each other.
  const int run = view.keys ? 16 : by_entry ? 8 : 32;
  const bool in_order = by_entry || view.dim % 2 == 0;
  view.range_table = view.rank == 0 && !view.has_outliers && ranges <= kMostRanges && in_order &&
                     (view.range_of_dims || view.group % run == 0);
  const bool from_below = affine && !view.symmetric && !view.has_levels;
  view.middle = from_below ? 0.5f * static_cast<float>((1 << view.bits) - 1) : 0.0f;
  const bool unit = codec.kind == KvCodecKind::kNvFp4 && !codec.fixed_scale.empty();
  view.scale_unit = unit ? codec.fixed_scale.f32()[0] : 1.0f;
  return view;
}

void PutRanges(const KvCodec& codec, Tables& tables, CodecView* view) {
  const auto dims = static_cast<size_t>(codec.dim);
  if (IsRecord(codec.kind) && !codec.table.empty()) {
    const auto count = static_cast<size_t>(codec.table.Numel());
    view->record.table = tables.Put(std::span<const float>(codec.table.f32(), count));
  }
  if (view->fixed_range) {
    view->low = tables.Put(std::span<const float>(codec.channel_low.f32(), dims));
    view->high = tables.Put(std::span<const float>(codec.channel_high.f32(), dims));
  }
  if (codec.fixed_scale.empty() || codec.kind == KvCodecKind::kNvFp4) return;
  std::vector<float> scales(dims, codec.fixed_scale.f32()[0]);
  if (codec.fixed_scale.Numel() > 1) std::copy_n(codec.fixed_scale.f32(), dims, scales.begin());
  view->fixed_scale = tables.Put(std::span<const float>(scales));
}

std::unique_ptr<CodecOps> MakeCudaCodec(Stream stream) {
  return std::make_unique<CudaCodec>(stream);
}

}  // namespace kvgauge::cuda
