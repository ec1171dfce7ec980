// SPDX-License-Identifier: Apache-2.0
// bench load: how long a checkpoint takes to become a model, its fingerprint included, beside
// reading its files into memory, in turns; and the most memory that this takes.
#include "src/bench/bench_load.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "core/threads.h"
#include "runner/layer_division.h"
#include "runner/model.h"
#include "src/bench/median.h"
#include "src/cli/print.h"
#include "src/model/model_flags.h"
#include "src/run/run_progress.h"

namespace kvgauge {
namespace {

constexpr int64_t kReadBytes = int64_t{4} << 20;

// The most memory that this process had since it started, or since ForgetPeakMemory, pages of
// mapped files included; 0 where /proc is absent.
int64_t PeakMemoryBytes() {
  constexpr std::string_view kKey = "VmHWM:";
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    int64_t kibibytes = 0;
    std::istringstream(line.substr(kKey.size())) >> kibibytes;
    return kibibytes << 10;
  }
  return 0;
}

// False where the system does not let a process do so.
bool ForgetPeakMemory() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

// The files that hold a checkpoint's tensors.
class WeightFiles {
 public:
  static Result<WeightFiles> Of(const ModelFlags& flags, const ModelConfig& config) {
    KVG_ASSIGN(const ModelOptions options, ParseModelOptions(flags));
    KVG_ASSIGN(const std::unique_ptr<WeightSource> source,
               OpenWeights(flags.model, options.dtype.value_or(config.stored_dtype)));
    std::set<std::string> paths;
    for (const std::string& name : source->Names()) paths.insert(source->OriginOf(name));
    WeightFiles files;
    for (const std::string& path : paths) {
      File file{.path = path, .descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC)};
      if (file.descriptor < 0) return SystemError(path, "open");
      file.bytes = lseek(file.descriptor, 0, SEEK_END);
      files.bytes_ += file.bytes;
      files.files_.push_back(std::move(file));
    }
    return files;
  }
  WeightFiles(WeightFiles&& other) noexcept
      : files_(std::move(other.files_)), bytes_(other.bytes_) {
    other.files_.clear();
  }
  WeightFiles(const WeightFiles&) = delete;
  WeightFiles& operator=(const WeightFiles&) = delete;
  ~WeightFiles() {
    for (const File& file : files_) close(file.descriptor);
  }

  int64_t bytes() const { return bytes_; }

  // Takes them out of the system's cache. False where some of them stays there, as it does when
  // another process has them mapped.
  bool Drop() const {
    int64_t resident = 0;
    for (const File& file : files_) {
      fdatasync(file.descriptor);
      posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED);
      resident += CachedBytes(file);
    }
    return resident * 100 <= bytes_;
  }

  // Seconds until all bytes are in memory of this process's own, each thread reading its share.
  Result<double> Read(int threads) const {
    const double start_s = NowSeconds();
    const Buffer memory = HostBuffer(bytes_);
    auto* to = static_cast<char*>(memory.data());
    bool failed = false;
    for (const File& file : files_) {
      const int64_t pieces = (file.bytes + kReadBytes - 1) / kReadBytes;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(|| : failed)
      for (int64_t i = 0; i < pieces; ++i) {
        const int64_t begin = i * kReadBytes, end = std::min(begin + kReadBytes, file.bytes);
        for (int64_t at = begin; at < end;) {
          const auto size = static_cast<size_t>(end - at);
          const ssize_t got = pread(file.descriptor, to + at, size, at);
          failed = failed || got <= 0;
          if (got <= 0) break;
          at += got;
        }
      }
      if (failed) return SystemError(file.path, "read");
      to += file.bytes;
    }
    return NowSeconds() - start_s;
  }

 private:
  struct File {
    std::string path;
    int descriptor = -1;
    int64_t bytes = 0;
  };
  WeightFiles() = default;

  static int64_t CachedBytes(const File& file) {
    const auto size = static_cast<size_t>(file.bytes);
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
    if (mapped == MAP_FAILED) return 0;
    const int64_t page = sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> there(static_cast<size_t>((file.bytes + page - 1) / page));
    const bool said = mincore(mapped, size, there.data()) == 0;
    munmap(mapped, size);
    const auto is_there = [](unsigned char state) { return (state & 1) != 0; };
    return said ? std::ranges::count_if(there, is_there) * page : 0;
  }

  std::vector<File> files_;
  int64_t bytes_ = 0;
};

struct LoadTimes {
  std::vector<double> read_s, load_s;
};

struct LoadMemory {
  int64_t weights = 0;          // bytes that the model holds
  int64_t layer = 0;            // of the largest layer
  std::optional<int64_t> most;  // that loading took; nothing where the system does not say
};

class LoadBench {
 public:
  LoadBench(const BenchLoadOptions& options, const WeightFiles& files)
      : options_(options),
        files_(files),
        threads_(MakeThreadSettings(options.model.threads).threads) {}

  // In turns. `cold`: from the device. Empty where the files stay in the cache.
  Result<LoadTimes> Measure(bool cold) {
    LoadTimes times;
    if (!cold) {  // both find everything there
      KVG_TRY(files_.Read(threads_));
    }
    for (int i = 0; i < options_.repetitions; ++i) {
      if (cold && !files_.Drop()) return LoadTimes();
      KVG_ASSIGN(const double read_s, files_.Read(threads_));
      if (cold && !files_.Drop()) return LoadTimes();
      KVG_ASSIGN(const double load_s, Load());
      times.read_s.push_back(read_s);
      times.load_s.push_back(load_s);
      std::fprintf(stderr, "%s: read %s s, load %s s\n", cold ? "cold" : "warm",
                   Fixed(read_s, 3).c_str(), Fixed(load_s, 3).c_str());
    }
    return times;
  }

  const LoadMemory& memory() const { return memory_; }

 private:
  Result<double> Load() {
    const int64_t before = ResidentBytes();
    const bool watched = ForgetPeakMemory();
    const double start_s = NowSeconds();
    KVG_ASSIGN(const LoadedModel loaded, LoadModel(options_.model));
    loaded.model->fingerprint();  // a run waits for it before its first result
    const double load_s = NowSeconds() - start_s;
    memory_.weights = loaded.model->weight_bytes();
    if (watched && before > 0) {
      memory_.most = std::max(memory_.most.value_or(0), PeakMemoryBytes() - before);
    }
    return load_s;
  }

  const BenchLoadOptions& options_;
  const WeightFiles& files_;
  int threads_;
  LoadMemory memory_;
};

Result<int64_t> LargestLayer(const ModelFlags& flags, const ModelConfig& config) {
  KVG_ASSIGN(const ModelOptions options, ParseModelOptions(flags));
  const DType dtype = options.dtype.value_or(config.stored_dtype);
  KVG_ASSIGN(const std::unique_ptr<WeightSource> source, OpenWeights(flags.model, dtype));
  KVG_ASSIGN(const std::unique_ptr<Ops> ops, MakeOpsFor(flags));
  const LayerCosts costs =
      CostsOfLayers(config, dtype, source.get(), options.keep_blocks ? ops.get() : nullptr);
  return std::ranges::max(costs.weight_bytes);
}

Json JsonOf(const LoadTimes& times) {
  if (times.load_s.empty()) return Json();
  return {{"read_s", times.read_s},
          {"load_s", times.load_s},
          {"times_read", Median(times.load_s) / Median(times.read_s)}};
}

std::vector<std::string> RowOf(const char* pages, const LoadTimes& times, int64_t file_bytes) {
  if (times.load_s.empty()) return {pages, "-", "-", "-", "-"};
  const auto range = [](const std::vector<double>& values) {
    return StrCat(Fixed(Median(values), 3), " (", Fixed(std::ranges::min(values), 3), " .. ",
                  Fixed(std::ranges::max(values), 3), ")");
  };
  return {pages, range(times.read_s), range(times.load_s),
          Fixed(Median(times.load_s) / Median(times.read_s), 2),
          Fixed(1e-9 * static_cast<double>(file_bytes) / Median(times.load_s), 2)};
}

}  // namespace

Status RunBenchLoad(const BenchLoadOptions& options) {
  if (options.model.weights != "file") {
    return BadInput(StrCat("--weights: ", Quoted(options.model.weights),
                           " is not read from files; bench load needs a checkpoint (file)"));
  }
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(options.model.model));
  KVG_ASSIGN(const WeightFiles files, WeightFiles::Of(options.model, config));
  KVG_ASSIGN(const int64_t largest, LargestLayer(options.model, config));
  LoadBench bench(options, files);
  KVG_ASSIGN(const LoadTimes warm, bench.Measure(/*cold=*/false));
  KVG_ASSIGN(const LoadTimes cold, bench.Measure(/*cold=*/true));
  LoadMemory memory = bench.memory();
  memory.layer = largest;
  if (options.json) {
    PrintJson({{"model", options.model.model},
               {"weight_format", config.weight_format},
               {"threads", MakeThreadSettings(options.model.threads).threads},
               {"file_bytes", files.bytes()},
               {"weight_bytes", memory.weights},
               {"layer_bytes", memory.layer},
               {"most_bytes", memory.most ? Json(*memory.most) : Json()},
               {"warm", JsonOf(warm)},
               {"cold", JsonOf(cold)}});
    return {};
  }
  PrintTable({"file is in", "read, s", "load, s", "load / read", "GB/s"},
             {RowOf("memory", warm, files.bytes()), RowOf("storage", cold, files.bytes())});
  std::printf("files %s, weights %s, largest layer %s, most memory while loading %s\n",
              HumanBytes(files.bytes()).c_str(), HumanBytes(memory.weights).c_str(),
              HumanBytes(memory.layer).c_str(),
              memory.most ? HumanBytes(*memory.most).c_str() : "unknown");
  return {};
}

}  // namespace kvgauge
