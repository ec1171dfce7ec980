// SPDX-License-Identifier: Apache-2.0
#include "cuda/prefill_choice.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "core/rng.h"
#include "core/strings.h"
#include "cuda/device/switches.h"

namespace kvgauge::cuda {
namespace {

struct Dims {
  int key, value;
};
// One for each kernel of kWarpgroupPrefill.
constexpr Dims kTried[] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};

// Numbers of both signs from 2^-6 to 2^6: nearly every other order of their sums has other bits.
float Noise(Rng& rng) {
  const auto sign = static_cast<float>(rng.NextBelow(2)) * 2 - 1;
  const auto mantissa = 1 + static_cast<float>(rng.NextBelow(1 << 23)) / (1 << 23);
  return std::ldexp(sign * mantissa, static_cast<int>(rng.NextBelow(13)) - 6);
}

// The last rows of a head of two segments, which end within a page and within a span. Three query
// heads share it.
class Trial {
 public:
  Trial(DType dtype, Dims dims, Stream stream)
      : dtype_(dtype), dims_(dims), stream_(stream), layout_{dtype, dims.key, dims.value} {
    queries_ = Room(kRows * kGroup * dims.key * 4);
    bias_ = Room(kSlots[0] * 4);
    pages_ = Room(kPages * (layout_.KeyBytes() + layout_.ValueBytes()));
    lists_ = Room(int64_t{kPages} * 2 * 8);
    segments_ = Room(2 * sizeof(SegmentView));
    tiles_ = Room(kMostTiles * sizeof(RowTile));
    jobs_ = Room(kMostTiles * sizeof(PrefillJob));
    results_ = Room(ResultBytes());
    memory_ = static_cast<std::byte*>(Malloc(size_bytes_, stream));
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() { Free(memory_); }

  bool HasRoom() const { return memory_ != nullptr; }
  bool Agrees() {
    Send();
    return ResultsOf(kPortablePrefill, 0) == ResultsOf(kWarpgroupPrefill, 0xff);
  }

 private:
  static constexpr int kRows = 70, kGroup = 3, kMostTiles = 4;
  static constexpr int kSlots[] = {600, 105}, kSkip = 5;  // of the second segment
  static constexpr int kEntries = 700, kPages = 10 + 2;

  int64_t Room(int64_t size_bytes) {
    constexpr int64_t kAlignment = 256;
    const int64_t at = size_bytes_;
    size_bytes_ += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  int64_t ResultBytes() const { return int64_t{4} * kRows * kGroup * (dims_.value + 1); }
  template <class T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }
  template <class T>
  void Upload(int64_t offset, const std::vector<T>& host) const {
    CopyToDevice(memory_ + offset, host.data(), static_cast<int64_t>(host.size() * sizeof(T)),
                 stream_);
  }

  void Send() {
    Rng rng(0x5eed, 0);
    std::vector<float> queries(size_t{kRows} * kGroup * static_cast<size_t>(dims_.key));
    std::generate(queries.begin(), queries.end(), [&] { return Noise(rng); });
    Upload(queries_, queries);
    std::vector<float> bias(kSlots[0]);
    std::generate(bias.begin(), bias.end(), [&] { return Noise(rng) / 64; });
    Upload(bias_, bias);
    const int64_t key_bytes = layout_.KeyBytes(), value_bytes = layout_.ValueBytes();
    std::vector<uint16_t> numbers(static_cast<size_t>(kPages * (key_bytes + value_bytes) / 2));
    std::generate(numbers.begin(), numbers.end(), [&] {
      const float value = Noise(rng);
      return dtype_ == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
    });
    Upload(pages_, numbers);
    std::vector<void*> lists;
    for (int p = 0; p < kPages; ++p) lists.push_back(At<std::byte>(pages_ + p * key_bytes));
    for (int p = 0; p < kPages; ++p) {
      lists.push_back(At<std::byte>(pages_ + kPages * key_bytes + p * value_bytes));
    }
    Upload(lists_, lists);
    std::vector<SegmentView> segments(2);
    int page = 0;
    for (int s = 0; s < 2; ++s) {
      SegmentView& view = segments[static_cast<size_t>(s)];
      view.keys.pages = At<void*>(lists_) + page;
      view.values.pages = At<void*>(lists_) + kPages + page;
      view.keys.dim = dims_.key;
      view.values.dim = dims_.value;
      view.stored = layout_;
      view.length = kSlots[s];
      page += (view.length + kPageEntries - 1) / kPageEntries;
    }
    segments[0].bias = At<float>(bias_);
    segments[1].skip = kSkip;
    segments[1].first = kSlots[0] - kSkip;
    Upload(segments_, segments);
  }

  // All bits that a kernel wrote over bytes of one value.
  std::vector<uint32_t> ResultsOf(const PrefillWay& way, int byte) const {
    const int step = way.rows(dtype_, dims_.key, dims_.value);
    std::vector<RowTile> tiles;
    std::vector<PrefillJob> jobs;
    for (int r0 = 0; r0 < kRows * kGroup; r0 += step) {
      jobs.push_back({0, 2, static_cast<int>(tiles.size()), 0});
      tiles.push_back({.first_row = 0,
                       .index0 = kEntries - kRows,
                       .token0 = kEntries - kRows,
                       .r0 = r0,
                       .count = std::min(step, kRows * kGroup - r0),
                       .group = kGroup,
                       .head0 = 0,
                       .mask_head0 = 0,
                       .ahead = nullptr});
    }
    Upload(tiles_, tiles);
    Upload(jobs_, jobs);
    Fill(At<float>(results_), byte, ResultBytes(), stream_);
    AttendCall call = {};
    call.q = At<float>(queries_);
    call.q_stride = int64_t{kGroup} * dims_.key;
    call.q_head_stride = dims_.key;
    call.key_dim = dims_.key;
    call.value_dim = dims_.value;
    // Products of noise are about 30 by 30: weights of a row are alike within a few powers of two.
    call.factor = 3.0f / (900.0f * std::sqrt(static_cast<float>(dims_.key)));
    float* const out = At<float>(results_);
    const RowResults results = {.out = out,
                                .stride = int64_t{kGroup} * dims_.value,
                                .head_stride = dims_.value,
                                .log_sum_exp = out + int64_t{kRows} * kGroup * dims_.value,
                                .log_sum_exp_stride = kRows,
                                .entropy = nullptr,
                                .entropy_stride = 0};
    way.attend(call, {At<SegmentView>(segments_), At<RowTile>(tiles_)}, dtype_,
               At<PrefillJob>(jobs_), static_cast<int64_t>(jobs.size()), results, stream_);
    std::vector<uint32_t> bits(static_cast<size_t>(ResultBytes() / 4));
    CopyToHost(bits.data(), out, ResultBytes(), stream_);
    return bits;
  }

  const DType dtype_;
  const Dims dims_;
  const Stream stream_;
  const PageLayout layout_;
  int64_t size_bytes_ = 0;
  // Where they lie in the memory.
  int64_t queries_, bias_, pages_, lists_, segments_, tiles_, jobs_, results_;
  std::byte* memory_;
};

bool Agree(DType dtype, Stream stream, std::string* why) {
  return std::all_of(std::begin(kTried), std::end(kTried), [&](const Dims& dims) {
    Trial trial(dtype, dims, stream);
    if (!trial.HasRoom()) {
      *why = "the device has no room for the test";
      return false;
    }
    if (trial.Agrees()) return true;
    *why = StrCat("warpgroups give other bits for dims of ", dims.key, " and ", dims.value);
    return false;
  });
}

}  // namespace

PrefillChoice::PrefillChoice(const DeviceInfo& info, Stream stream) {
  if (!info.warpgroups) {
    why_not_ = "the device has no warpgroups";
  } else if (SwitchedOff(kWarpgroupsSwitch)) {
    why_not_ = StrCat(kWarpgroupsSwitch, "=off is set");
  } else {
    bf16_ = Agree(DType::kBF16, stream, &why_not_);
    f16_ = Agree(DType::kF16, stream, &why_not_);
  }
}

const PrefillWay& PrefillChoice::For(DType dtype, int key_dim, int value_dim) const {
  const bool warpgroups = (dtype == DType::kBF16 && bf16_) || (dtype == DType::kF16 && f16_);
  return warpgroups && kWarpgroupPrefill.rows(dtype, key_dim, value_dim) > 0 ? kWarpgroupPrefill
                                                                             : kPortablePrefill;
}

std::string PrefillChoice::Describe() const {
  std::vector<std::string> with, without;
  (bf16_ ? with : without).emplace_back("bf16");
  (f16_ ? with : without).emplace_back("f16");
  if (without.empty()) return "prefill attention of bf16, f16 on warpgroups";
  if (with.empty()) return StrCat("prefill attention by the portable kernel (", why_not_, ")");
  return StrCat("prefill attention of ", with[0], " on warpgroups, of ", without[0],
                " by the portable kernel (", why_not_, ")");
}

}  // namespace kvgauge::cuda
