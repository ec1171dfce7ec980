// SPDX-License-Identifier: Apache-2.0
#include "runner/calibrate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "runner/capture.h"
#include "src/checkpoint/safetensors.h"
#include "src/compress/view.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostCalibrationBytes = int64_t{8} << 30;

// The "__metadata__" of a header that was parsed before.
Result<Json> Metadata(std::string_view file, const std::string& path) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  KVG_ASSIGN(const Json header, ParseJson(file.substr(sizeof(length), length), path));
  return header.contains("__metadata__") ? header["__metadata__"] : Json::object();
}

Status TakeText(const Json& metadata, const char* key, const std::string& path, std::string* out) {
  if (!metadata.contains(key)) {
    return BadInput(StrCat(path, ": metadata has no '", key,
                           "', so this is no calibration; make one with `kvgauge calibrate`"));
  }
  *out = metadata[key].get<std::string>();
  return {};
}

// `last`: as of SequenceStep, of all rows.
Status Prefill(Model& model, const Prompt& prompt, KvCache& cache, PrefillCapture& capture,
               const Tensor& last) {
  for (int64_t begin = 0; begin < prompt.size(); begin += Model::kChunkRows) {
    const int64_t end = std::min(begin + Model::kChunkRows, prompt.size());
    KVG_TRY(cache.Append(end - begin));
    const SequenceStep step = {.cache = &cache,
                               .prompt = &prompt,
                               .begin = begin,
                               .end = end,
                               .logits = LogitRows::kNone,
                               .hook = &capture,
                               .last = last.empty() ? Tensor() : last.Slice(begin, end)};
    model.Forward({&step, 1});
  }
  return capture.status();
}

// Layers that read each other's caches for a while.
class ReadsForNow {
 public:
  explicit ReadsForNow(Model& model) : model_(model) {}
  ~ReadsForNow() {
    if (!reads_.empty()) (void)model_.ReadCaches({});
  }
  ReadsForNow(const ReadsForNow&) = delete;
  ReadsForNow& operator=(const ReadsForNow&) = delete;
  Status Set(std::vector<int64_t> reads) {
    if (reads == reads_) return {};
    reads_ = std::move(reads);
    return model_.ReadCaches(reads_);
  }

 private:
  Model& model_;
  std::vector<int64_t> reads_;
};

}  // namespace

Result<Calibration::Tables> Calibrate(Model& model, const StageChoice& choice,
                                      std::span<const std::vector<int32_t>> texts,
                                      const std::function<void(int pass, int64_t text)>& on_text) {
  if (!model.config().HasEvenHeads()) {
    return Unsupported(StrCat(model.config().path,
                              ": side-files have tables of heads of one size, and layers of this "
                              "model have several; use a model whose heads are alike"));
  }
  if (model.config().made_keys) {
    return Unsupported(StrCat(model.config().path,
                              ": layers of this model make keys and values anew "
                              "(inv_other_layer_ratio); no method that learns acts on such a "
                              "model"));
  }
  if (const int64_t passes = model.config().prompt_passes; passes > 1) {
    return Unsupported(StrCat(model.config().path, ": a prompt goes through layers of this model ",
                              passes,
                              " times as a whole (layer_types), and calibration reads texts "
                              "in chunks; no method that learns acts on such a model"));
  }
  if (const int64_t tokens = model.config().EntryTokens(); tokens > 1) {
    return Unsupported(StrCat(model.config().path,
                              ": an entry of this model stands for a block of ", tokens,
                              " tokens (block_length); no method that learns acts on such a "
                              "model"));
  }
  std::vector<int64_t> lengths;
  for (const std::vector<int32_t>& text : texts) lengths.push_back(std::ssize(text));
  const std::unique_ptr<Calibrator> calibrator =
      choice.spec->calibrate(choice.params, model.shape(), lengths);
  ReadsForNow reads(model);
  for (int pass = 0; pass < calibrator->passes(); ++pass) {
    KVG_TRY(reads.Set(calibrator->ReadsCaches(pass)));
    const ModelShape shape = model.shape();
    const bool wants_last = calibrator->wants_last(pass);
    const Needs needs = calibrator->needs(pass);
    for (int64_t i = 0; i < std::ssize(texts); ++i) {
      const Prompt prompt = Prompt::FromTokens(calibrator->Reads(texts[static_cast<size_t>(i)]));
      KvCache cache = model.NewCache(prompt.size());
      PrefillCapture capture(model.cache_config(), cache, NeedsOf(needs, prompt), prompt.size());
      Buffer memory;
      Tensor last;
      if (wants_last) {
        memory = model.ops().memory->Allocate(prompt.size() * shape.hidden_size * 4);
        last = memory.As(DType::kF32, {prompt.size(), shape.hidden_size});
      }
      KVG_TRY(Prefill(model, prompt, cache, capture, last));
      const ViewSource source = {.model = &model,
                                 .shape = &shape,
                                 .cache = &cache,
                                 .prompt = &prompt,
                                 .prefill = &capture};
      for (int64_t layer = 0; layer < shape.layers; ++layer) {
        CacheView view(source, layer);
        calibrator->Observe(pass, view);
      }
      if (wants_last) calibrator->ObserveLast(pass, last, model.ops());
      if (on_text != nullptr) on_text(pass, i);
    }
  }
  return calibrator->Finish(model.ops());
}

namespace {

Result<Calibration::Tables> ReadRows(const std::string& text, const std::string& path) {
  Calibration::Table table;
  int64_t rows = 0, columns = 0;
  for (const std::string& line : Split(text, '\n')) {
    int64_t count = 0;
    const char *at = line.data(), *end = line.data() + line.size();
    while (true) {
      while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == ',')) ++at;
      if (at == end) break;
      float value = 0;
      const auto [next, error] = std::from_chars(at, end, value);
      if (error != std::errc()) {
        return BadInput(StrCat(path, ": row ", rows + 1, ", column ", count + 1,
                               " is no number; expected rows of numbers"));
      }
      table.values.push_back(value);
      at = next;
      ++count;
    }
    if (count == 0) continue;
    if (rows > 0 && count != columns) {
      return BadInput(StrCat(path, ": row ", rows + 1, " has ", count, " numbers, row 1 has ",
                             columns, "; expected as many in each"));
    }
    columns = count;
    ++rows;
  }
  if (rows == 0) return BadInput(StrCat(path, ": holds no numbers"));
  table.shape = {rows, columns};
  Calibration::Tables tables;
  tables["values"] = std::move(table);
  return tables;
}

// MInference's best patterns: a list of layers, of each an object of heads, of each a name and some
// numbers. A table for each name, [layers, heads, 2] of the first two, -1 for heads of others.
Result<Calibration::Tables> ReadPatterns(const std::string& text, const std::string& path) {
  KVG_ASSIGN(const Json layers, ParseJson(text, path));
  const auto bad = [&](const std::string& at, const char* expected) {
    return BadInput(StrCat(path, ": ", at, ": expected ", expected));
  };
  if (!layers.is_array() || layers.empty()) return bad("the file", "a list of layers");
  const auto count = std::ssize(layers);
  int64_t heads = 0;
  Calibration::Tables tables;
  for (int64_t layer = 0; layer < count; ++layer) {
    const Json& of_layer = layers[static_cast<size_t>(layer)];
    const std::string at = StrCat("layer ", layer);
    if (!of_layer.is_object() || of_layer.empty()) return bad(at, "an object of heads");
    if (layer == 0) heads = std::ssize(of_layer);
    if (std::ssize(of_layer) != heads) return bad(at, "as many heads as layer 0 has");
    for (int64_t head = 0; head < heads; ++head) {
      const std::string key = StrCat(head), where = StrCat(at, ", head ", head);
      if (!of_layer.contains(key)) return bad(where, "a pattern");
      const Json& pattern = of_layer[key];
      if (!pattern.is_array() || pattern.size() < 3 || !pattern[0].is_string() ||
          !pattern[1].is_number() || !pattern[2].is_number() || pattern[1] < 0 || pattern[2] < 0) {
        return bad(where, "a name and two numbers that are not negative");
      }
      Calibration::Table& table = tables[pattern[0].get<std::string>()];
      if (table.shape.empty()) {
        table.shape = {count, heads, 2};
        table.values.assign(static_cast<size_t>(2 * count * heads), -1.0f);
      }
      const auto first = static_cast<size_t>(2 * (layer * heads + head));
      table.values[first] = pattern[1].get<float>();
      table.values[first + 1] = pattern[2].get<float>();
    }
  }
  return tables;
}

}  // namespace

Result<Calibration::Tables> ReadPublished(const std::string& path) {
  KVG_ASSIGN(const std::string file, ReadFile(path, kMostCalibrationBytes));
  if (path.ends_with(".tsv") || path.ends_with(".csv")) return ReadRows(file, path);
  if (path.ends_with(".json")) return ReadPatterns(file, path);
  if (!path.ends_with(".safetensors")) {
    return BadInput(StrCat(path,
                           ": expected a .safetensors, .tsv or .json file; save tensors of a .pt "
                           "file with safetensors.torch.save_file first"));
  }
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  KVG_ASSIGN(const std::vector<StoredEntry> entries, ParseSafetensorsHeader(bytes, path));
  Calibration::Tables tables;
  for (const StoredEntry& entry : entries) {
    if (entry.dtype != DType::kF32 && entry.dtype != DType::kF16 && entry.dtype != DType::kBF16) {
      return BadInput(StrCat(path, ": tensor '", entry.name, "' is ", entry.dtype_name,
                             "; expected F32, F16 or BF16"));
    }
    Calibration::Table& table = tables[entry.name];
    table.shape = entry.shape;
    const auto count = static_cast<int64_t>(entry.end - entry.begin) / SizeOf(*entry.dtype);
    table.values.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const char* at = file.data() + entry.begin + i * SizeOf(*entry.dtype);
      float& value = table.values[static_cast<size_t>(i)];
      uint16_t bits = 0;
      if (entry.dtype == DType::kF32) {
        std::memcpy(&value, at, sizeof(value));
      } else {
        std::memcpy(&bits, at, sizeof(bits));
        value = entry.dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
      }
      if (!std::isfinite(value)) {
        return BadInput(StrCat(path, ": tensor '", entry.name, "' holds NaN or infinity: number ",
                               i, " is ", value, "; expected finite numbers"));
      }
    }
  }
  return tables;
}

Result<std::shared_ptr<const Calibration>> ReadCalibration(const std::string& path) {
  KVG_ASSIGN(const std::string file, ReadFile(path, kMostCalibrationBytes));
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  KVG_ASSIGN(const std::vector<StoredEntry> entries, ParseSafetensorsHeader(bytes, path));
  KVG_ASSIGN(const Json metadata, Metadata(file, path));
  auto calibration = std::make_shared<Calibration>();
  std::string format, version;
  KVG_TRY(TakeText(metadata, kCalibrationFormat, path, &format));
  if (format != "1") {
    return BadInput(StrCat(path, ": is a calibration of format ", Quoted(format),
                           ", this program reads format 1"));
  }
  KVG_TRY(TakeText(metadata, kCalibrationStage, path, &calibration->stage));
  KVG_TRY(TakeText(metadata, kCalibrationStageVersion, path, &version));
  KVG_TRY(TakeText(metadata, kCalibrationParams, path, &calibration->params));
  KVG_TRY(TakeText(metadata, kCalibrationModel, path, &calibration->model));
  KVG_TRY(TakeText(metadata, kCalibrationModelName, path, &calibration->model_name));
  const char* end = version.data() + version.size();
  if (std::from_chars(version.data(), end, calibration->stage_version).ptr != end) {
    return BadInput(StrCat(path, ": metadata '", kCalibrationStageVersion, "' is ", Quoted(version),
                           ", expected a whole number"));
  }
  for (const StoredEntry& entry : entries) {
    if (entry.dtype != DType::kF32 || entry.shape.empty()) {
      return BadInput(StrCat(path, ": table '", entry.name, "' is ", entry.dtype_name, " of rank ",
                             entry.shape.size(), "; tables are F32 with one dimension or more"));
    }
    Calibration::Table& table = calibration->tables[entry.name];
    table.shape = entry.shape;
    table.values.resize((entry.end - entry.begin) / sizeof(float));
    if (!table.values.empty()) {
      std::memcpy(table.values.data(), file.data() + entry.begin, entry.end - entry.begin);
    }
    const auto wrong = std::find_if(table.values.begin(), table.values.end(),
                                    [](float x) { return !std::isfinite(x); });
    if (wrong != table.values.end()) {
      return BadInput(StrCat(path, ": table '", entry.name, "' holds NaN or infinity: number ",
                             wrong - table.values.begin(), " is ", *wrong,
                             "; expected finite numbers"));
    }
  }
  calibration->path = path;
  calibration->digest = Sha256Hex(file);
  return std::shared_ptr<const Calibration>(std::move(calibration));
}

}  // namespace kvgauge
