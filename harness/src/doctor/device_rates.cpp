// SPDX-License-Identifier: Apache-2.0
// How fast a backend is, as shares of what the device itself reaches.
#include <algorithm>
#include <bit>
#include <functional>
#include <memory>

#include "core/clock.h"
#include "core/strings.h"
#include "kernels/library.h"
#include "src/doctor/device_case.h"
#include "src/doctor/device_check.h"

namespace kvgauge {
namespace {

// Seconds of one call: the median of several timed runs, each long enough to be measured.
double SecondsOf(Ops& ops, const std::function<void()>& call) {
  constexpr double kLeastSeconds = 0.02;
  constexpr int kRuns = 5;
  call();
  ops.memory->Synchronize();
  int64_t repeats = 1;
  std::vector<double> seconds;
  while (static_cast<int>(seconds.size()) < kRuns) {
    const double start = NowSeconds();
    for (int64_t i = 0; i < repeats; ++i) call();
    ops.memory->Synchronize();
    const double elapsed = NowSeconds() - start;
    if (seconds.empty() && elapsed < kLeastSeconds) {
      repeats *= 2;
    } else {
      seconds.push_back(elapsed / static_cast<double>(repeats));
    }
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRuns / 2];
}

}  // namespace

double MeasureCopy(Ops& device, int64_t size_bytes) {
  CaseTensors s(device);
  const Tensor from = s.New({size_bytes}, DType::kU8), to = s.New({size_bytes}, DType::kU8);
  const double seconds = SecondsOf(device, [&] { device.memory->Copy(from, to); });
  return 2.0 * static_cast<double>(size_bytes) / seconds * 1e-9;
}

void MeasureRates(Ops& device, int64_t entries, DeviceCheck* check) {
  const int64_t scale = std::max<int64_t>(entries / 1024, 1);
  check->copy_gbs = MeasureCopy(device, scale << 23);
  const auto add_flops = [&](const std::string& op, const std::string& shape, double aim,
                             double flops, const std::function<void()>& call) {
    const double seconds = SecondsOf(device, call), rate = flops / seconds * 1e-12;
    if (check->product_tflops == 0) check->product_tflops = rate;
    const double share = rate / check->product_tflops;
    check->rates.push_back({op, shape, seconds * 1e3, rate, share, aim, true});
  };
  const auto add_bytes = [&](const std::string& op, const std::string& shape, double aim,
                             double bytes, const std::function<void()>& call) {
    const double seconds = SecondsOf(device, call), rate = bytes / seconds * 1e-9;
    const double share = rate / check->copy_gbs;
    check->rates.push_back({op, shape, seconds * 1e3, rate, share, aim, false});
  };

  // A device's cache holds a smaller matrix.
  const int64_t widest = device.device == Device::kHost ? 4096 : 8192;
  const int64_t width = std::min(128 * scale, widest);
  check->product_by = "our kernel";
  if (const auto library = MakeLibraryProduct(device); library.ok()) {
    CaseTensors s(device);
    check->product_by = (*library)->name();
    const auto random = [&](uint64_t seed) {
      const Tensor narrow = s.New({width, width}, DType::kBF16);
      device.rows->Convert(s.Random({width, width}, seed), narrow);
      return narrow;
    };
    const Tensor x = random(2), w = random(1), out = s.New({width, width}, DType::kBF16);
    const auto side = static_cast<double>(width);
    add_flops(StrCat("MatMul bf16, ", check->product_by), StrCat(width, " x ", width, " x ", width),
              0, 2 * side * side * side, [&] { (*library)->Multiply(x, w, out); });
  }
  {
    CaseTensors s(device);
    const auto w = s.Weights(width, width, DType::kBF16, 1);
    for (const int64_t m : {width, int64_t{1}, int64_t{16}, int64_t{64}}) {
      const Tensor x = s.Random({m, width}, 2), out = s.New({m, width});
      const auto call = [&] { device.linear->MatMul(x, *w, {}, MatMulMode::kSet, out); };
      const std::string shape = StrCat(m, " x ", width, " x ", width);
      if (m == width) {
        const auto side = static_cast<double>(width);
        add_flops("MatMul bf16", shape, 0, 2 * side * side * side, call);
      } else {
        add_bytes("MatMul bf16", shape, 0, static_cast<double>(w->bytes()), call);
      }
    }
  }

  struct KeptAs {
    const char* name;
    KvCodec codec;
    double aim;  // at kLongCache entries a head and more
  };
  constexpr int64_t kLongCache = 32768;
  const KeptAs stores[] = {{"f16", {}, 0.8},
                           {"int4", AffineCodec(4, CodeAxis::kChannel, 64), 0.6},
                           {"int2", AffineCodec(2, CodeAxis::kChannel, 64), 0.6},
                           {"q8_0", CodecOfKind(KvCodecKind::kQ8_0), 0}};
  for (const KeptAs& store : stores) {
    CaseTensors s(device);
    CacheCase cached(s, {DType::kF16, 128, 128}, 32, 8, entries, 1, store.codec);
    add_bytes(StrCat("decode attention ", store.name), StrCat("32/8 heads, ", entries),
              entries >= kLongCache ? store.aim : 0, cached.bytes(), [&] { cached.Attend(); });
  }
  // A step whose entries lie on the host takes the longer of its own time and that of the fetch, as
  // far as both go on at once.
  const bool fetches = device.device != Device::kHost;
  if (fetches) {
    CaseTensors s(device);
    const int64_t size_bytes = scale << 21;
    const Buffer memory = device.memory->AllocateOnHost(size_bytes);
    const Tensor from = memory.As(DType::kU8, {size_bytes}), to = s.New({size_bytes}, DType::kU8);
    add_bytes("copy from the host", HumanBytes(size_bytes), 0, static_cast<double>(size_bytes),
              [&] { device.memory->Copy(from, to); });
    CacheCase cached(s, {DType::kF16, 128, 128}, 32, 8, entries, 1, {}, Lies::kOnHost);
    add_bytes("decode attention f16, on the host", StrCat("32/8 heads, ", entries), 0,
              cached.bytes(), [&] { cached.Attend(); });
  }
  {
    CaseTensors s(device);
    constexpr int64_t kLayers = 32;
    const auto heads = std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(scale, 32)));
    StepCase step(s, static_cast<int64_t>(heads), 128, kLayers, entries);
    const std::vector<float> input = CaseNoise(step.width(), 1);
    const std::string shape = StrCat(kLayers, " layers of ", step.width(), ", ", entries);
    // Each is waited for, as the next needs its token.
    add_bytes("decode step", shape, 0, step.bytes(), [&] {
      step.Submit(input);
      device.memory->Synchronize();
    });
    if (fetches) {
      StepCase fetched(s, static_cast<int64_t>(heads), 128, kLayers, entries, Lies::kOnHost);
      add_bytes("decode step, on the host", shape, 0, fetched.bytes(), [&] {
        fetched.Submit(input);
        device.memory->Synchronize();
      });
    }
    // The host takes nothing at once.
    if (device.device != Device::kHost) {
      const std::unique_ptr<RepeatedWork> work = device.memory->MakeRepeatedWork();
      add_bytes("decode step at once", shape, 0, step.bytes(), [&] {
        work->Run([&] { step.Submit(input); });
        device.memory->Synchronize();
      });
    }
  }
  std::vector<int64_t> prompts = {std::min<int64_t>(entries, 8192)};
  if (device.device != Device::kHost && entries >= kLongCache) prompts.push_back(kLongCache);
  for (const int64_t rows : prompts) {
    CaseTensors s(device);
    CacheCase cached(s, {DType::kBF16, 128, 128}, 32, 8, rows, rows);
    const auto n = static_cast<double>(rows);
    const std::string shape = StrCat("32/8 heads, ", rows, " rows");
    add_flops("prefill attention bf16", shape, 0.6, 2 * n * n * 128 * 32, [&] { cached.Attend(); });
    if (rows == kLongCache) continue;  // as fast as over fewer, and slow
    add_flops("column sums bf16", shape, 0, n * n * 128 * 32, [&] { cached.ColumnSums(); });
  }
}

}  // namespace kvgauge
