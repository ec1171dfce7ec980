// SPDX-License-Identifier: Apache-2.0
#include "src/model/shapes_table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/model.h"
#include "src/cli/markdown.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/model/method_flags.h"
#include "src/model/shipped_files.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kShapeLengths[] = {8192, 32768, 131072};
// Shapes of about as many parameters as each other, one for each architecture; one is larger.
constexpr std::string_view kBenchPrefix = "bench-", kLargeBench = "bench-l";

std::string_view StateName(StateConfig::Kind kind) {
  using Kind = StateConfig::Kind;
  switch (kind) {
    case Kind::kQwen3Next:
    case Kind::kQwen35:
      return "gated delta rule";
    case Kind::kMamba2:
      return "Mamba-2";
    case Kind::kMamba1:
      return "Mamba";
    case Kind::kRetention:
      return "retention";
    case Kind::kGatedRetention:
      return "gated retention";
    case Kind::kRwkv4:
      return "RWKV-4";
    case Kind::kRwkv6:
      return "RWKV-6";
    case Kind::kFinchC2:
      return "RWKV-6 (Finch-C2)";
    case Kind::kRwkv7:
      return "RWKV-7";
  }
  return "";
}

// How many query heads share a KV head, of each kind of layers with a cache.
std::string SharingText(const ModelConfig& config) {
  if (config.mla) return "MLA";
  std::vector<std::string> kinds;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    if (!config.HasCache(layer)) continue;
    const int64_t kv_heads = config.HeadsOf(layer).kv_heads;
    std::string kind = kv_heads == config.query_heads ? "MHA"
                       : kv_heads == 1                ? "MQA"
                                       : StrCat("GQA ", config.query_heads / kv_heads, ":1");
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(std::move(kind));
  }
  return Join(kinds, " and ");
}

// A row of the table: a shape as one method holds it.
struct ShapeRow {
  std::string shape, architecture;
  std::string method = "full";
  int64_t parameters = 0, caches = 0, layers = 0;
  int64_t token_bytes = 0, state_bytes = 0;
  std::vector<int64_t> sequence_bytes = {};  // at kShapeLengths, states included
};

ShapeRow FullRow(const std::string& shape, const ModelConfig& config, DType dtype) {
  ShapeRow row = {.shape = shape,
                  .architecture = ArchitectureText(config),
                  .parameters = ParameterCount(config),
                  .caches = config.cache_count(),
                  .layers = config.layer_count(),
                  .token_bytes = config.KvBytesPerToken(dtype),
                  .state_bytes = config.StateBytes()};
  for (const int64_t tokens : kShapeLengths) {
    row.sequence_bytes.push_back(config.KvReachBytes(tokens, dtype) + row.state_bytes);
  }
  return row;
}

ShapeRow LatentRow(const ShapeRow& full, const ModelConfig& config, DType dtype) {
  ShapeRow row = full;
  row.architecture += ", latents held";
  row.method = "mla_latent";
  row.token_bytes = LatentBytesPerToken(config, dtype);
  row.sequence_bytes.clear();
  for (const int64_t tokens : kShapeLengths) {
    row.sequence_bytes.push_back(tokens * row.token_bytes + row.state_bytes);
  }
  return row;
}

// The decoder reads the end of a prompt; of what comes before it the encoder's rows are held.
Result<ShapeRow> EncodedRow(const ShapeRow& full, const ModelConfig& config, DType dtype) {
  KVG_ASSIGN(const ChosenMethod cepe, ChooseMethod({.method = "cepe"}));
  const int64_t decoded = cepe.method.thin->params.Int("decoder");
  ShapeRow row = full;
  row.architecture += StrCat(" in the last ", WithCommas(decoded), " tokens");
  row.method = "cepe";
  row.token_bytes = config.encoder->hidden_size * SizeOf(dtype);
  row.sequence_bytes.clear();
  for (const int64_t tokens : kShapeLengths) {
    const int64_t read = std::min(tokens, decoded);
    row.sequence_bytes.push_back(config.KvReachBytes(read, dtype) +
                                 (tokens - read) * row.token_bytes + row.state_bytes);
  }
  return row;
}

Result<std::vector<ShapeRow>> ReadShapes(const InspectOptions& options) {
  DType dtype = DType::kBF16;
  KVG_ASSIGN(const ModelOptions model, ParseModelOptions(options.model));
  if (model.dtype) dtype = *model.dtype;
  std::string directory = options.model.model;
  if (directory.empty()) {
    KVG_ASSIGN(const std::string shipped, FindConfigFile("models/bench-s.json"));
    directory = fs::path(shipped).parent_path().string();
  }
  if (!DirectoryExists(directory)) {
    return BadInput(StrCat("inspect --shapes: ", Quoted(directory),
                           " is no directory, expected one of config files, or none"));
  }
  std::error_code failed;
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(directory, failed)) {
    if (file.path().extension() == ".json") files.push_back(file.path());
  }
  if (failed || files.empty()) {
    return BadInput(StrCat("inspect --shapes: ", directory,
                           " has no config files, expected one NAME.json for each shape"));
  }
  std::ranges::sort(files);
  std::vector<ShapeRow> rows;
  for (const fs::path& file : files) {
    KVG_ASSIGN(const ModelConfig config, ReadModelConfig(file.string()));
    const ShapeRow full = FullRow(ShapeNameOf(file.string()), config, dtype);
    rows.push_back(full);
    if (config.mla) rows.push_back(LatentRow(full, config, dtype));
    if (config.encoder != nullptr) {
      KVG_ASSIGN(const ShapeRow encoded, EncodedRow(full, config, dtype));
      rows.push_back(encoded);
    }
  }
  return rows;
}

// What `bench latency --json` measured.
struct ShapeTimes {
  using Key = std::pair<std::string, std::string>;  // shape, method
  struct Cell {
    double ttft_s = 0, tpot_s = 0, resident_bytes = 0;
  };
  std::vector<Key> order = {};                        // as they were measured
  std::map<Key, std::map<int64_t, Cell>> cells = {};  // by prompt length
  std::vector<int64_t> contexts = {};
  std::string machine = {};
};

Result<double> PositiveOf(const Json& cell, const char* key, const std::string& where) {
  const auto found = cell.find(key);
  if (found == cell.end() || !found->is_number() || !(found->get<double>() >= 0)) {
    return BadInput(StrCat(where, ": key '", key,
                           "': ", found == cell.end() ? "missing" : found->dump(),
                           ", expected a number, as `kvgauge bench latency --json` writes it"));
  }
  return found->get<double>();
}

Result<std::string> TextOf(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return BadInput(StrCat(where, ": key '", key,
                           "' is no text, expected the output of `kvgauge bench latency --json`"));
  }
  return found->get<std::string>();
}

Result<ShapeTimes> ReadTimes(const std::string& path) {
  KVG_ASSIGN(const Json file, ReadJsonFile(path));
  if (!file.is_object() || !file.contains("cells") || !file["cells"].is_array() ||
      !file.contains("machine") || !file["machine"].is_object()) {
    return BadInput(StrCat(path, ": expected an object with 'cells' and 'machine', the output of ",
                           "`kvgauge bench latency --json`"));
  }
  ShapeTimes times;
  const Json& machine = file["machine"];
  KVG_ASSIGN(const std::string processor, TextOf(machine, "processor", path));
  KVG_ASSIGN(const std::string isa, TextOf(machine, "isa", path));
  KVG_ASSIGN(const double threads, PositiveOf(machine, "threads", path));
  KVG_ASSIGN(const std::string dtype, TextOf(file, "dtype", path));
  times.machine =
      StrCat(processor, ", ", std::llround(threads), " threads, ", isa, ", weights in ", dtype);
  for (const Json& cell : file["cells"]) {
    if (!cell.is_object()) return BadInput(StrCat(path, ": key 'cells': expected objects"));
    const Json& named = cell.contains("model") ? cell : file;
    KVG_ASSIGN(const std::string model, TextOf(named, "model", path));
    KVG_ASSIGN(const std::string method, TextOf(cell, "method", path));
    KVG_ASSIGN(const double tokens, PositiveOf(cell, "context_tokens", path));
    ShapeTimes::Cell measured;
    KVG_ASSIGN(measured.ttft_s, PositiveOf(cell, "ttft_s", path));
    KVG_ASSIGN(measured.tpot_s, PositiveOf(cell, "tpot_p50_s", path));
    KVG_ASSIGN(measured.resident_bytes, PositiveOf(cell, "resident_bytes", path));
    const ShapeTimes::Key key = {ShapeNameOf(model), method};
    const int64_t context = std::llround(tokens);
    if (!times.cells.contains(key)) times.order.push_back(key);
    times.cells[key][context] = measured;
    if (std::ranges::find(times.contexts, context) == times.contexts.end()) {
      times.contexts.push_back(context);
    }
  }
  std::ranges::sort(times.contexts);
  return times;
}

std::string CountText(int64_t parameters) {
  const double millions = static_cast<double>(parameters) / 1e6;
  return millions < 1000 ? Fixed(millions, 1) + " M" : Fixed(millions / 1000, 2) + " B";
}

TextTable BytesTable(const std::vector<ShapeRow>& rows, bool markdown) {
  TextTable table{.columns = {{"shape"},
                              {"architecture"},
                              {"method"},
                              {"parameters", true},
                              {"caches / layers", true},
                              {"bytes a token", true},
                              {"state", true}},
                  .rows = {}};
  for (const int64_t tokens : kShapeLengths) {
    table.columns.push_back({StrCat(WithCommas(tokens), " tokens"), true});
  }
  for (const ShapeRow& row : rows) {
    std::vector<TableCell> cells = {{markdown ? MarkdownCode(row.shape) : row.shape},
                                    {row.architecture},
                                    {markdown ? MarkdownCode(row.method) : row.method},
                                    {CountText(row.parameters)},
                                    {StrCat(row.caches, " / ", row.layers)},
                                    {WithCommas(row.token_bytes)},
                                    {HumanBytes(row.state_bytes)}};
    for (const int64_t bytes : row.sequence_bytes) cells.push_back({HumanBytes(bytes)});
    table.rows.push_back(std::move(cells));
  }
  return table;
}

TextTable TimesTable(const std::vector<ShapeRow>& rows, const ShapeTimes& times, bool markdown) {
  TextTable table{.columns = {{"shape"}, {"architecture"}, {"method"}}, .rows = {}};
  for (const int64_t tokens : times.contexts) {
    const std::string of = WithCommas(tokens);
    table.columns.push_back({StrCat("first token of ", of, ", ms"), true});
    table.columns.push_back({StrCat("a token at ", of, ", ms"), true});
    table.columns.push_back({StrCat("held at ", of), true});
  }
  for (const ShapeRow& row : rows) {
    std::vector<TableCell> cells = {{markdown ? MarkdownCode(row.shape) : row.shape},
                                    {row.architecture},
                                    {markdown ? MarkdownCode(row.method) : row.method}};
    const auto& measured = times.cells.at({row.shape, row.method});
    for (const int64_t tokens : times.contexts) {
      const auto cell = measured.find(tokens);
      if (cell == measured.end()) {
        cells.resize(cells.size() + 3, TableCell{"-"});
        continue;
      }
      cells.push_back({Fixed(1e3 * cell->second.ttft_s, 0)});
      cells.push_back({Fixed(1e3 * cell->second.tpot_s, 2)});
      cells.push_back({HumanBytes(std::llround(cell->second.resident_bytes))});
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// The rows of what was measured, in its order; a shape or method that is not listed is an error.
Result<std::vector<ShapeRow>> MeasuredRows(const std::vector<ShapeRow>& rows,
                                           const ShapeTimes& times, const std::string& path) {
  std::vector<ShapeRow> measured;
  for (const auto& [shape, method] : times.order) {
    const std::string &name = shape, &id = method;
    const auto row = std::ranges::find_if(
        rows, [&](const ShapeRow& r) { return r.shape == name && r.method == id; });
    if (row == rows.end()) {
      return BadInput(StrCat(path, ": key 'cells': model ", Quoted(shape), " with method ",
                             Quoted(method), " is none of the listed rows"));
    }
    measured.push_back(*row);
  }
  return measured;
}

std::string ColumnsText() {
  return "- **Bytes a token** are what a token adds to all caches, as 16-bit numbers. With method\n"
         "  `cepe` they are those of a token that the encoder reads.\n"
         "- **State** is what a sequence keeps whatever its length: states of Mamba, RWKV, "
         "retention\n"
         "  and their kin (f32), or the rows of a block.\n"
         "- **Bytes at a length** are what the next token can see, and the state. Layers with a\n"
         "  window count what it reaches.\n";
}

std::string ShapesPage(const std::vector<ShapeRow>& rows, const std::vector<ShapeRow>& measured,
                       const ShapeTimes* times) {
  const auto is_bench = [](const ShapeRow& row) { return row.shape.starts_with(kBenchPrefix); };
  std::vector<ShapeRow> bench = measured, published;
  for (const ShapeRow& row : rows) {
    if (!is_bench(row)) published.push_back(row);
    if (is_bench(row) && row.shape != kLargeBench && times == nullptr) bench.push_back(row);
  }
  std::string page = StrCat(
      "# Architectures side by side\n\n"
      "This page is the output of\n"
      "`kvgauge inspect --shapes",
      times != nullptr ? " --times docs/architectures.json" : "",
      " --format markdown`.\n`scripts/approve` renews it.\n\n"
      "An architecture decides how much a model holds of what it has read, before any method\n"
      "compresses it. The tables need no weights: they are made of the shapes in "
      "`configs/models`,\n"
      "and so is any other: `kvgauge inspect --shapes DIRECTORY` lists config files of your "
      "own.\n\n"
      "## At one size\n\n"
      "One shape for each architecture, of about 125 million parameters each: 768 columns,\n"
      "32,000 tokens, as many layers as make up the size. They are made for this table and have\n"
      "no published weights.\n\n",
      BytesTable(bench, true).ToMarkdown(), "\n", ColumnsText());
  if (times != nullptr) {
    std::vector<std::string> contexts;
    for (const int64_t tokens : times->contexts) contexts.push_back(StrCat(tokens));
    page += StrCat(
        "\n## What that does to time\n\n"
        "    kvgauge bench latency bench-mha --weights random:1 --dtype bf16 --methods full \\\n"
        "      --beside bench-s,bench-mqa,bench-mla,bench-mla:mla_latent,.. \\\n"
        "      --contexts ",
        Join(contexts, ","),
        " --repetitions 3 --json\n\n"
        "All shapes take turns in one run, and each number is the median of its rounds. *Held* is\n"
        "what the allocator holds behind the answer, counted by page. "
        "`docs/architectures.json` has\nwhat the table needs of the output.\n\n"
        "Machine: ",
        times->machine, ".\n\n", TimesTable(measured, *times, true).ToMarkdown(),
        "\nHow to read it:\n\n"
        "- **Fewer KV heads** (GQA, MQA) hardly change the prefill and make a token behind a long\n"
        "  context cheaper: it reads less.\n"
        "- **Latents** (MLA) that are held and read as they are take a twelfth of what expanded\n"
        "  keys and values take, and a token behind 4,096 others two thirds of the time. Queries\n"
        "  are brought to their width, so the prefill takes twice as long.\n"
        "- **Windows** spare a part of the prefill that grows with it. *Held* shows that the full\n"
        "  cache keeps entries behind a window; the column of bytes counts what is in reach.\n"
        "- **Caches that layers share** (CLA, MLKV, YOCO) save bytes and leave most products\n"
        "  where they were. LCKV saves most of them and pays with its prompt, which goes through\n"
        "  the layers several times: seven times the prefill.\n"
        "- **States** (Mamba, RWKV, retention) take as long for a token behind 4,096 others as\n"
        "  behind 512. A prompt of 4,096 takes RWKV-4 half of the time of MHA, RWKV-6 and 7 less\n"
        "  than MHA and Mamba-2 as long; Mamba's scan takes 1.7 times as long and retention, as\n"
        "  it is computed here, 2.9 times.\n"
        "- **Hybrids** (Jamba, Nemotron-H, the gated delta rule, Falcon-H1) lie between the two,\n"
        "  as many layers as attend. GoldFinch is another case: it makes keys and values of all\n"
        "  tokens anew in every step, so it holds least and its tokens take longest.\n"
        "- **Block Transformer** runs half of its layers once in four tokens: with 4,096 tokens\n"
        "  less than half of the time of MHA.\n"
        "- **CEPE** keeps one row for all layers of what its encoder reads; in place of the whole\n"
        "  prompt the decoder reads its end.\n\n"
        "Weights are random, so nothing here says how well an architecture answers.\n");
  }
  return StrCat(page, "\n## Published models\n\n", BytesTable(published, true).ToMarkdown());
}

Json RowsJson(const std::vector<ShapeRow>& rows, const ShapeTimes* times) {
  Json list = Json::array();
  for (const ShapeRow& row : rows) {
    Json bytes = Json::object();
    for (size_t i = 0; i < std::size(kShapeLengths); ++i) {
      bytes[std::to_string(kShapeLengths[i])] = row.sequence_bytes[i];
    }
    Json json = {{"shape", row.shape},
                 {"architecture", row.architecture},
                 {"method", row.method},
                 {"parameters", row.parameters},
                 {"kv_layers", row.caches},
                 {"layers", row.layers},
                 {"kv_bytes_per_token", row.token_bytes},
                 {"state_bytes", row.state_bytes},
                 {"sequence_bytes", bytes}};
    if (times != nullptr && times->cells.contains({row.shape, row.method})) {
      Json measured = Json::object();
      for (const auto& [tokens, cell] : times->cells.at({row.shape, row.method})) {
        measured[std::to_string(tokens)] = {{"ttft_s", cell.ttft_s},
                                            {"tpot_p50_s", cell.tpot_s},
                                            {"resident_bytes", cell.resident_bytes}};
      }
      json["measured"] = measured;
    }
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

std::string ArchitectureText(const ModelConfig& config) {
  std::vector<std::string> parts;
  const std::string of_layers = StrCat(" of ", config.layer_count(), " layers");
  if (config.made_keys) {
    parts.push_back("keys and values made anew of one row");
  } else if (config.cache_count() > 0) {
    parts.push_back(SharingText(config));
    if (config.blocks) parts.back() += StrCat(" over blocks of ", config.blocks->tokens, " tokens");
  }
  int64_t windowed = 0, window = 0, readers = 0, states = 0;
  bool chunked = false;
  for (const LayerConfig& layer : config.layers) {
    readers += layer.reads >= 0;
    states += layer.state && !layer.rows_alone;
    if (layer.window == 0 || layer.window >= config.max_position) continue;
    ++windowed;
    window = layer.window;
    chunked = layer.chunked;
  }
  if (windowed > 0) {
    parts.push_back(StrCat(chunked ? "chunks of " : "windows of ", WithCommas(window), " in ",
                           windowed, of_layers));
  }
  if (readers > 0 && !config.made_keys) {
    parts.push_back(StrCat("caches ", config.prompt_passes > 1 ? "of later layers " : "",
                           "read by ", readers, " more"));
  }
  if (config.state) {
    const std::string name(StateName(config.state->kind));
    parts.push_back(states == config.layer_count() && config.cache_count() == 0
                        ? name
                        : StrCat(name, " in ", states, of_layers));
  }
  if (config.encoder != nullptr) parts.push_back("an encoder beside it");
  return Join(parts, ", ");
}

std::string ShapeNameOf(const std::string& model) {
  const fs::path path(model);
  return (path.extension() == ".json" ? path.stem() : path.filename()).string();
}

int64_t LatentBytesPerToken(const ModelConfig& config, DType dtype) {
  if (!config.mla) return 0;
  return config.cache_count() * (config.mla->kv_lora_rank + config.mla->rope_dim) * SizeOf(dtype);
}

Status ListShapes(const InspectOptions& options) {
  if (options.json && options.format == "markdown") {
    return BadInput("inspect --shapes: --json and --format markdown exclude each other");
  }
  KVG_ASSIGN(const std::vector<ShapeRow> rows, ReadShapes(options));
  ShapeTimes times;
  std::vector<ShapeRow> measured;
  const bool timed = !options.times.empty();
  if (timed) {
    KVG_ASSIGN(times, ReadTimes(options.times));
    KVG_ASSIGN(measured, MeasuredRows(rows, times, options.times));
  }
  if (options.json) {
    PrintJson(RowsJson(rows, timed ? &times : nullptr));
  } else if (options.format == "markdown") {
    Print(ShapesPage(rows, measured, timed ? &times : nullptr));
  } else {
    Print(BytesTable(rows, false).ToText(false));
    if (timed) {
      Print(StrCat("\nMeasured: ", times.machine, "\n\n"));
      Print(TimesTable(measured, times, false).ToText(false));
    }
  }
  return {};
}

}  // namespace kvgauge
