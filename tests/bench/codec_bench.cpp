// SPDX-License-Identifier: Apache-2.0
// Times the coding of cache pages and the tile decoders of the cpu backend, on one thread.
//
//   codec_bench [isa [filter]]
//
// Rates are in GB/s of the f16 numbers that a page stands for. Time is that of the processor, so
// that waiting for it does not count; every codec takes its turn within a repetition, and medians
// are printed. Decoding is checked against Decode first. filter: part of a line's name.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/strings.h"
#include "cpu/codec/codec_kernels.h"
#include "cpu/cpu.h"

namespace kvgauge {
namespace {

constexpr int64_t kDim = 128;
constexpr int64_t kPages = 16;  // 256 kB of f16: near, as in the middle of a prefill
constexpr int64_t kEntries = kPages * kCodePageEntries;
constexpr int kRepetitions = 15;
constexpr double kRepetitionSeconds = 0.004;

double ProcessorSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double SecondsPerCall(const std::function<void()>& call) {
  int calls = 0;
  const double start = ProcessorSeconds();
  double spent = 0;
  do {
    call();
    ++calls;
    spent = ProcessorSeconds() - start;
  } while (spent < kRepetitionSeconds);
  return spent / calls;
}

const CodecKernels& KernelsOf(Isa isa) {
  if (isa >= Isa::kAvx512) return Avx512CodecKernels();
  return isa == Isa::kAvx2 ? Avx2CodecKernels() : PortableCodecKernels();
}

class Stream {
 public:
  Stream(std::string name, const KvCodec& codec, Isa isa, const std::vector<float>& rows)
      : name_(std::move(name)),
        codec_(codec),
        plan_(codec_),
        kernels_(KernelsOf(isa)),
        ops_(MakeCpuCodec(isa, ThreadSettings{1})),
        rows_(View(rows, {kEntries, kDim})) {
    const int64_t page_bytes = ops_->PageBytes(codec_);
    memory_ = HostBuffer(kPages * page_bytes);
    for (int64_t p = 0; p < kPages; ++p) {
      codes_.push_back(static_cast<char*>(memory_.data()) + p * page_bytes);
    }
    outliers_.resize(kPages);
    latents_.resize(kPages);
    bases_.resize(kPages);
    tile_.resize(static_cast<size_t>(TileFloats(plan_.layout)));
    Encode();
    Check();
  }

  void Encode() {
    blocks_.clear();
    ops_->Encode(codec_, rows_, 0, pages(), [&](CodecOps::Block kind, int64_t page, int64_t size) {
      blocks_.push_back(HostBuffer(size));
      void* block = blocks_.back().data();
      if (kind == CodecOps::Block::kOutliers) outliers_[page] = block;
      if (kind == CodecOps::Block::kLatents) latents_[page] = block;
      if (kind == CodecOps::Block::kBasis) std::fill(bases_.begin(), bases_.end(), block);
      return block;
    });
  }
  void DecodeTiles() {
    for (int64_t p = 0; p < kPages; ++p) {
      DecodeTile(kernels_, plan_, PageOf(pages(), p), tile_.data());
    }
  }

  void Measure() {
    encode_s_.push_back(SecondsPerCall([&] { Encode(); }));
    decode_s_.push_back(SecondsPerCall([&] { DecodeTiles(); }));
  }
  void Print() {
    constexpr double kBytes = 2.0 * kEntries * kDim;
    std::printf("%-34s %6.2f bits %8.2f GB/s encode %8.2f GB/s decode\n", name_.c_str(),
                8.0 * static_cast<double>(memory_.size_bytes()) / (kEntries * kDim),
                1e-9 * kBytes / Median(encode_s_), 1e-9 * kBytes / Median(decode_s_));
  }
  const std::string& name() const { return name_; }

 private:
  KvPages pages() const {
    return {codes_.data(), outliers_.data(), latents_.data(), bases_.data()};
  }
  static double Median(std::vector<double>& seconds) {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
  // The last page's tile holds what Decode gives.
  void Check() {
    std::vector<float> rows(static_cast<size_t>(kCodePageEntries * kDim));
    const int64_t first = kEntries - kCodePageEntries;
    ops_->Decode(codec_, pages(), first, View(rows, {kCodePageEntries, kDim}));
    DecodeTiles();
    for (int64_t e = 0; e < kCodePageEntries; ++e) {
      for (int64_t c = 0; c < kDim; ++c) {
        const int64_t at = codec_.side == KvSide::kKeys ? c * kCodePageEntries + e : e * kDim + c;
        KVG_CHECK(tile_[at] == rows[e * kDim + c], "a tile differs from its rows");
      }
    }
  }

  const std::string name_;
  const KvCodec codec_;
  const CodecPlan plan_;
  const CodecKernels& kernels_;
  std::unique_ptr<CodecOps> ops_;
  const Tensor rows_;
  Buffer memory_;
  std::vector<Buffer> blocks_;
  std::vector<void*> codes_, outliers_, latents_, bases_;
  std::vector<float> tile_;
  std::vector<double> encode_s_, decode_s_;
};

KvCodec Affine(int bits, CodeAxis axis, int64_t group) {
  KvCodec codec;
  codec.kind = KvCodecKind::kAffine;
  codec.dim = kDim;
  codec.bits = bits;
  codec.axis = axis;
  codec.group = group;
  return codec;
}

int Main(int argc, char** argv) {
  const Result<Isa> isa = ChooseIsa(argc > 1 ? argv[1] : "");
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  const std::string filter = argc > 2 ? argv[2] : "";
  Rng rng(1, 1);
  std::vector<float> rows(static_cast<size_t>(kEntries * kDim));
  for (float& v : rows) v = static_cast<float>(rng.NextGaussian());
  const std::vector<float> levels = {-2.1519f, -1.3439f, -.7560f, -.2451f,
                                     .2451f,   .7560f,   1.3439f, 2.1519f};
  std::vector<std::pair<std::string, KvCodec>> codecs;
  for (const int bits : {1, 2, 3, 4, 8}) {
    codecs.emplace_back(StrCat("affine ", bits, " bits, 32 dims"),
                        Affine(bits, CodeAxis::kToken, 32));
    codecs.emplace_back(StrCat("affine ", bits, " bits, 32 entries"),
                        Affine(bits, CodeAxis::kChannel, 32));
  }
  KvCodec codec;
  codec.dim = kDim;
  codec.kind = KvCodecKind::kQ8_0;
  codecs.emplace_back("q8_0", codec);
  codec.kind = KvCodecKind::kQ4_0;
  codecs.emplace_back("q4_0", codec);
  codec.kind = KvCodecKind::kFp8E4M3;
  codecs.emplace_back("fp8 e4m3", codec);
  codec.kind = KvCodecKind::kCodebook;
  codec.bits = 3;
  codec.group = kDim;
  codec.range = CodeRange::kRms;
  codec.levels = View(levels, {8});
  codecs.emplace_back("codebook 3 bits, rms", codec);
  KvCodec gear = Affine(2, CodeAxis::kChannel, 64);
  gear.outlier_share = 0.02;
  codecs.emplace_back("affine 2 bits, 2% outliers", gear);
  gear.rank = 4;
  codecs.emplace_back("affine 2 bits, outliers, rank 4", gear);

  std::vector<std::unique_ptr<Stream>> streams;
  for (const auto& [name, made] : codecs) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      KvCodec sided = made;
      sided.side = side;
      const std::string full = StrCat(side == KvSide::kKeys ? "K " : "V ", name);
      if (full.find(filter) == std::string::npos) continue;
      streams.push_back(std::make_unique<Stream>(full, sided, *isa, rows));
    }
  }
  std::printf("%s, one thread, dim %d\n", NameOf(*isa).data(), static_cast<int>(kDim));
  for (int i = 0; i < kRepetitions; ++i) {
    for (const auto& stream : streams) stream->Measure();
  }
  for (const auto& stream : streams) stream->Print();
  return 0;
}

}  // namespace
}  // namespace kvgauge

int main(int argc, char** argv) { return kvgauge::Main(argc, argv); }
