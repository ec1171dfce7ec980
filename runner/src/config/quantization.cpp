// SPDX-License-Identifier: Apache-2.0
#include "src/config/quantization.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/config_reader.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostGroup = int64_t{1} << 24;

struct MethodRow {
  std::string_view name;
  QuantizationConfig::Method method;
};
constexpr auto kQuantMethods = std::to_array<MethodRow>({
    {"awq", QuantizationConfig::Method::kAwq},
    {"bitsandbytes", QuantizationConfig::Method::kBitsAndBytes},
    {"compressed-tensors", QuantizationConfig::Method::kCompressedTensors},
    {"fp8", QuantizationConfig::Method::kFp8},
    {"gptq", QuantizationConfig::Method::kGptq},
    {"mxfp4", QuantizationConfig::Method::kMxfp4},
});

// A value out of a few, or the first of them after a fault.
std::string OneOf(ConfigReader& reader, std::string_view key, std::string_view fallback,
                  const std::vector<std::string>& known) {
  std::string value = reader.Text(key, fallback);
  std::ranges::transform(value, value.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (std::ranges::find(known, value) != known.end()) return value;
  reader.Fail(key, StrCat("one of ", Join(known, ", ")));
  return known.front();
}

// Groups of columns, or one scale a row where the size is -1.
void ReadGroupSize(ConfigReader& reader, QuantScheme& scheme) {
  scheme.group_size = reader.Int("group_size", 128, -1, kMostGroup);
  if (scheme.group_size == 0) reader.Fail("group_size", "a size from 1, or -1 for one group");
  scheme.scale = scheme.group_size < 0 ? QuantScheme::Scale::kChannel : QuantScheme::Scale::kGroup;
}

// Columns in groups are those of the blocks of weights. Whatever the weights' floats are, rows are
// rounded to e4m3.
InputScheme InputsOfFp8(const QuantScheme& weights, bool given, bool powers) {
  InputScheme inputs{.floats = true, .powers = powers};
  const bool blocks = weights.scale == QuantScheme::Scale::kBlock;
  inputs.scale = given    ? InputScheme::Scale::kGiven
                 : blocks ? InputScheme::Scale::kGroup
                          : InputScheme::Scale::kRow;
  inputs.group_size = weights.block_columns;
  return inputs;
}

// The scheme of a group of compressed-tensors. Rows are rounded by choice, so one that is not
// understood is a fault only of that choice.
InputScheme InputsOfGroup(const Json& json, const std::string& key) {
  InputScheme inputs;
  const auto refuse = [&](std::string_view expected) {
    inputs.refused =
        StrCat("key '", key, "': ", json.dump(-1, ' ', false, Json::error_handler_t::replace),
               ", expected ", expected);
    return inputs;
  };
  if (!json.is_object()) return refuse("an object");
  const auto value = [&](const char* name) {
    const auto found = json.find(name);
    return found == json.end() ? Json() : *found;
  };
  const Json type = value("type"), bits = value("num_bits"), dynamic = value("dynamic");
  const Json strategy = value("strategy"), group = value("group_size");
  inputs.floats = type == "float";
  if ((!type.is_null() && type != "int" && !inputs.floats) || (!bits.is_null() && bits != 8)) {
    return refuse("'type' int or float, and 'num_bits' 8");
  }
  const Json symmetric = value("symmetric"), scale_type = value("scale_dtype");
  const Json zero_type = value("zp_dtype");
  inputs.symmetric = symmetric.is_null() || symmetric == true;
  const bool zeros =
      symmetric == false && !inputs.floats && (zero_type.is_null() || zero_type == "torch.int8");
  if (!inputs.symmetric && !zeros) {
    return refuse("'symmetric' true, or integers with zero points of int8");
  }
  const std::string scales = scale_type.is_string() ? scale_type.get<std::string>() : "";
  if (scales.find("float8") != std::string::npos) return refuse("scales of 16 or 32 bits");
  const bool grouped = group.is_number_integer() && group > 0;
  const bool unsaid = strategy.is_null();
  if (dynamic == true && strategy == "token") return inputs;
  if (dynamic == true && grouped && (unsaid || strategy == "group")) {
    inputs.scale = InputScheme::Scale::kGroup;
    inputs.group_size = group.get<int64_t>();
    return inputs;
  }
  if ((dynamic.is_null() || dynamic == false) && !grouped && (unsaid || strategy == "tensor")) {
    inputs.scale = InputScheme::Scale::kGiven;
    return inputs;
  }
  return refuse("'dynamic' true with 'strategy' token or group, or false with tensor");
}

void ReadFp8(ConfigReader& reader, QuantizationConfig& config) {
  QuantScheme scheme{.floats = true};
  const std::vector<int64_t> block = reader.IntOrInts("weight_block_size", 1, kMostGroup);
  if (reader.Has("weight_block_size") && block.size() != 2) {
    reader.Fail("weight_block_size", "two sizes, rows and columns");
  } else if (block.size() == 2) {
    scheme.scale = QuantScheme::Scale::kBlock;
    scheme.block_rows = block[0];
    scheme.block_columns = block[1];
  }
  (void)OneOf(reader, "fmt", "e4m3", {"e4m3", "e5m2"});
  const bool given =
      OneOf(reader, "activation_scheme", "dynamic", {"dynamic", "static"}) == "static";
  const bool powers = OneOf(reader, "scale_fmt", "float", {"float", "ue8m0"}) == "ue8m0";
  scheme.inputs = InputsOfFp8(scheme, given, powers);
  reader.Ignore({"dequantize"});
  config.plain_key = "modules_to_not_convert";
  config.plain_modules = reader.Texts(config.plain_key);
  for (std::string& name : reader.Texts("ignored_layers")) config.plain_modules.push_back(name);
  config.schemes.push_back(std::move(scheme));
}

bool ReadActOrder(ConfigReader& reader) {
  const Json* value = reader.Take("actorder");
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  const std::string order =
      OneOf(reader, "actorder", "weight", {"weight", "static", "group", "dynamic"});
  return order == "group" || order == "dynamic";
}

void ReadStrategy(ConfigReader& reader, QuantScheme& scheme) {
  using Scale = QuantScheme::Scale;
  scheme.group_size = reader.Int("group_size", 0, -1, kMostGroup);
  const char* inferred = scheme.group_size > 0   ? "group"
                         : scheme.group_size < 0 ? "channel"
                                                 : "tensor";
  const std::string strategy =
      OneOf(reader, "strategy", inferred, {"tensor", "channel", "group", "block"});
  scheme.scale = strategy == "tensor"    ? Scale::kTensor
                 : strategy == "channel" ? Scale::kChannel
                 : strategy == "group"   ? Scale::kGroup
                                         : Scale::kBlock;
  if (scheme.scale == Scale::kGroup && scheme.group_size <= 0) {
    reader.Fail("group_size", "a size from 1, which strategy 'group' needs");
  }
  const std::vector<int64_t> block = reader.IntOrInts("block_structure", 1, kMostGroup);
  if (scheme.scale != Scale::kBlock) return;
  if (block.size() != 2) {
    reader.Fail("block_structure", "two sizes, rows and columns, which strategy 'block' needs");
    return;
  }
  scheme.block_rows = block[0];
  scheme.block_columns = block[1];
}

const std::vector<std::string>& PackFormats() {
  static const std::vector<std::string> formats = {"pack-quantized", "int-quantized",
                                                   "float-quantized", "naive-quantized", "dense"};
  return formats;
}

Status ReadGroup(const Json& json, const std::string& origin, const std::string& scope,
                 const std::string& format, QuantScheme& scheme) {
  if (!json.is_object()) {
    return BadInput(StrCat(origin, ": key '", scope, "': expected an object with 'targets' and ",
                           "'weights'; names of presets are not read"));
  }
  ConfigReader group(json, origin, scope + ".");
  scheme.targets = group.Texts("targets");
  scheme.format = format;
  if (group.Has("format") || format == "mixed-precision") {
    scheme.format = OneOf(group, "format", "", PackFormats());
  }
  if (const Json* inputs = group.Take("input_activations"); inputs != nullptr) {
    scheme.inputs = InputsOfGroup(*inputs, StrCat(scope, ".input_activations"));
  }
  group.Ignore({"output_activations"});
  const Json* weights = group.Take("weights");
  if (weights == nullptr || !weights->is_object()) group.Fail("weights", "an object");
  KVG_TRY(group.Finish());

  ConfigReader reader(*weights, origin, scope + ".weights.");
  scheme.floats = OneOf(reader, "type", "int", {"int", "float"}) == "float";
  scheme.bits = reader.Int("num_bits", 8, 1, 16);
  scheme.symmetric = reader.Bool("symmetric", true);
  ReadStrategy(reader, scheme);
  scheme.ordered = ReadActOrder(reader);
  reader.Neutral("dynamic", false);
  reader.Ignore({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  const bool packed = scheme.format == "pack-quantized";
  if (scheme.floats && (scheme.bits != 8 || packed)) {
    reader.Fail("num_bits", StrCat("8-bit floats without packing; other floats (", scheme.format,
                                   ") are not read"));
  } else if (packed && scheme.bits != 2 && scheme.bits != 4 && scheme.bits != 8) {
    reader.Fail("num_bits", "2, 4 or 8: writers pack other widths in different ways");
  } else if (scheme.bits > 8) {
    reader.Fail("num_bits", "an integer from 1 to 8");
  }
  return reader.Finish();
}

Status ReadCompressedTensors(ConfigReader& reader, QuantizationConfig& config) {
  std::vector<std::string> known = PackFormats();
  known.push_back("mixed-precision");
  const std::string format = OneOf(reader, "format", "dense", known);
  config.plain_key = "ignore";
  config.plain_modules = reader.Texts(config.plain_key);
  reader.Refuse(
      "kv_cache_scheme",
      "a cache that the checkpoint quantises is not read; methods decide about the cache");
  reader.Refuse("moe_sparsity_config", "pruned experts are not read");
  for (const char* key : {"transform_config", "sparsity_config"}) {
    const Json* value = reader.Take(key);
    if (value == nullptr || value->empty()) continue;
    const auto inner = value->is_object() ? value->find("format") : value->end();
    const bool dense = value->is_object() && inner != value->end() && *inner == "dense";
    if (!dense) reader.Refuse(key, "it changes the weights in a way that is not read");
  }
  reader.Ignore({"quantization_status", "global_compression_ratio", "version"});
  const Json* groups = reader.Take("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    reader.Fail("config_groups", "an object with a group of modules at least");
  }
  if (!reader.ok()) return reader.fault();
  for (const auto& [name, group] : groups->items()) {
    QuantScheme scheme;
    KVG_TRY(ReadGroup(group, reader.origin(), reader.NameOfKey(StrCat("config_groups.", name)),
                      format, scheme));
    config.schemes.push_back(std::move(scheme));
  }
  return {};
}

// Keys about how the weights were found, or which kernel runs them.
void IgnoreGptqHistory(ConfigReader& reader) {
  reader.Ignore({"true_sequential",
                 "static_groups",
                 "damp_percent",
                 "damp_auto_increment",
                 "model_name_or_path",
                 "model_file_base_name",
                 "meta",
                 "backend",
                 "tokenizer",
                 "dataset",
                 "model_seqlen",
                 "block_name_to_quantize",
                 "batch_size",
                 "module_name_preceding_first_block",
                 "pad_token_id",
                 "max_input_length",
                 "cache_block_outputs",
                 "modules_in_block_to_quantize",
                 "use_cuda_fp16",
                 "use_exllama",
                 "disable_exllama",
                 "exllama_config",
                 "lm_head",
                 "act_group_aware",
                 "hyb_act",
                 "mse",
                 "offload_to_disk",
                 "true_sequential",
                 "use_exllama_v2",
                 "quantizer",
                 "desc_act_group_aware",
                 "bits_average"});
  reader.Neutral("is_marlin_format", false);
  reader.Neutral("pack_dtype", std::string_view("int32"));
}

void ReadGptq(ConfigReader& reader, QuantizationConfig& config) {
  QuantScheme scheme;
  scheme.bits = reader.Int("bits", std::nullopt, 2, 8);
  if (scheme.bits != 2 && scheme.bits != 3 && scheme.bits != 4 && scheme.bits != 8) {
    reader.Fail("bits", "2, 3, 4 or 8");
  }
  ReadGroupSize(reader, scheme);
  scheme.symmetric = reader.Bool("sym", true);
  scheme.ordered = reader.Bool("desc_act", false);
  const std::vector<std::string> formats = {"gptq", "gptq_v2"};
  const std::string format = OneOf(reader, "format", "gptq", formats);
  config.zero_less_one = OneOf(reader, "checkpoint_format", format, formats) == "gptq";
  if (reader.Has("format") && reader.Has("checkpoint_format") &&
      (format == "gptq") != config.zero_less_one) {
    reader.Fail("checkpoint_format", StrCat("the same as key 'format' (", format, ")"));
  }
  if (config.zero_less_one && scheme.bits == 3 && !scheme.symmetric) {
    reader.Fail("sym",
                "true with 3 bits in checkpoint_format 'gptq': writers of such files "
                "disagree about how zero points are stored; gptq_v2 is read");
  }
  // Rules "-:pattern" leave modules out, which then are stored plainly; others change their bits.
  if (const Json* dynamic = reader.Take("dynamic"); dynamic != nullptr) {
    bool out = dynamic->is_object();
    if (out) {
      for (const auto& [rule, value] : dynamic->items()) out = out && rule.starts_with("-:");
    }
    if (!out) reader.Fail("dynamic", "rules '-:pattern' alone: one width for all modules");
  }
  IgnoreGptqHistory(reader);
  config.schemes.push_back(std::move(scheme));
}

void ReadAwq(ConfigReader& reader, QuantizationConfig& config) {
  QuantScheme scheme{.bits = 4, .symmetric = false};
  if (reader.Int("bits", 4, 1, 16) != 4) reader.Fail("bits", "4");
  ReadGroupSize(reader, scheme);
  if (!reader.Bool("zero_point", true)) {
    reader.Fail("zero_point", "true: files of the gemm layout have zero points");
  }
  (void)OneOf(reader, "version", "gemm", {"gemm"});
  (void)OneOf(reader, "format", "gemm", {"gemm"});
  if (reader.Has("backend") && reader.Text("backend", "") == "llm-awq") {
    reader.Fail("backend", "autoawq: llm-awq packs in another way");
  }
  reader.Neutral("desc_act", false);
  reader.Ignore({"sym", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "checkpoint_format"});
  IgnoreGptqHistory(reader);
  config.plain_key = "modules_to_not_convert";
  config.plain_modules = reader.Texts(config.plain_key);
  config.schemes.push_back(std::move(scheme));
}

void ReadBitsAndBytes(ConfigReader& reader, QuantizationConfig& config) {
  const bool four = reader.Bool("load_in_4bit", reader.Bool("_load_in_4bit", false));
  const bool eight = reader.Bool("load_in_8bit", reader.Bool("_load_in_8bit", false));
  if (four == eight) {
    reader.Fail("load_in_4bit", "true, or key 'load_in_8bit' true, and not both");
  }
  const std::string code = OneOf(reader, "bnb_4bit_quant_type", "fp4", {"nf4", "fp4"});
  config.code = four ? code : "int8";
  config.nested = reader.Bool("bnb_4bit_use_double_quant", false) && four;
  reader.Neutral("llm_int8_has_fp16_weight", false);
  // What a kernel computes in, and which inputs it takes out of the 8-bit product.
  reader.Ignore({"bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "llm_int8_threshold",
                 "llm_int8_enable_fp32_cpu_offload"});
  config.plain_key = "llm_int8_skip_modules";
  config.plain_modules = reader.Texts(config.plain_key);
  config.schemes.push_back({.bits = four ? 4 : 8, .floats = four, .symmetric = true});
}

// Experts alone: blocks of 32 columns of 4-bit floats, each with a power of two.
void ReadMxfp4(ConfigReader& reader, QuantizationConfig& config) {
  config.plain_key = "modules_to_not_convert";
  config.plain_modules = reader.Texts(config.plain_key);
  reader.Neutral("dequantize", false);
  config.schemes.push_back(
      {.bits = 4, .floats = true, .scale = QuantScheme::Scale::kGroup, .group_size = 32});
}

}  // namespace

std::string QuantScheme::Title() const {
  std::string out = floats ? StrCat("float", bits) : StrCat("int", bits);
  if (scale == Scale::kGroup) out += StrCat(" in groups of ", group_size);
  if (scale == Scale::kChannel) out += " by rows";
  if (scale == Scale::kBlock) out += StrCat(" in blocks of ", block_rows, " x ", block_columns);
  if (!symmetric) out += ", asymmetric";
  if (ordered) out += ", act order";
  return out;
}

std::string_view QuantizationConfig::name() const {
  for (const MethodRow& row : kQuantMethods) {
    if (row.method == method) return row.name;
  }
  return "";
}

std::string QuantizationConfig::Title() const {
  if (method == Method::kBitsAndBytes) {
    return StrCat(name(), ": ", code, nested ? ", scales quantised too" : "");
  }
  if (method == Method::kMxfp4) return StrCat(name(), ": experts");
  std::vector<std::string> titles;
  for (const QuantScheme& scheme : schemes) {
    const std::string title = scheme.format.empty() || scheme.format == "dense"
                                  ? scheme.Title()
                                  : StrCat(scheme.format, " ", scheme.Title());
    if (std::ranges::find(titles, title) == titles.end()) titles.push_back(title);
  }
  return StrCat(name(), ": ", Join(titles, "; "));
}

Result<std::optional<QuantizationConfig>> ReadQuantization(const Json& config,
                                                           const std::string& origin) {
  constexpr std::string_view kKey = "quantization_config";
  const auto found = config.is_object() ? config.find(kKey) : config.end();
  if (!config.is_object() || found == config.end() || found->is_null()) {
    return std::optional<QuantizationConfig>();
  }
  if (!found->is_object()) {
    return BadInput(StrCat(origin, ": key '", kKey, "': expected an object"));
  }
  ConfigReader reader(*found, origin, StrCat(kKey, "."));
  QuantizationConfig out;
  out.path = origin;
  std::vector<std::string> known;
  const MethodRow* method = nullptr;
  // Files of bitsandbytes that are older than the key.
  const bool old = !reader.Has("quant_method") &&
                   (found->contains("load_in_4bit") || found->contains("load_in_8bit"));
  const std::string name = reader.Text("quant_method", old ? "bitsandbytes" : "");
  for (const MethodRow& row : kQuantMethods) {
    known.emplace_back(row.name);
    if (row.name == name) method = &row;
  }
  if (!reader.ok()) return reader.fault();
  if (method == nullptr) {
    return Unsupported(StrCat(origin, ": key '", reader.NameOfKey("quant_method"),
                              "': ", Quoted(name), " is not read", DidYouMean(name, known),
                              "; read are ", Join(known, ", ")));
  }
  out.method = method->method;
  switch (out.method) {
    case QuantizationConfig::Method::kFp8:
      ReadFp8(reader, out);
      break;
    case QuantizationConfig::Method::kCompressedTensors:
      KVG_TRY(ReadCompressedTensors(reader, out));
      break;
    case QuantizationConfig::Method::kGptq:
      ReadGptq(reader, out);
      break;
    case QuantizationConfig::Method::kAwq:
      ReadAwq(reader, out);
      break;
    case QuantizationConfig::Method::kBitsAndBytes:
      ReadBitsAndBytes(reader, out);
      break;
    case QuantizationConfig::Method::kMxfp4:
      ReadMxfp4(reader, out);
      break;
  }
  KVG_TRY(reader.Finish());
  return std::optional<QuantizationConfig>(std::move(out));
}

}  // namespace kvgauge
