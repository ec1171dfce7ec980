// SPDX-License-Identifier: Apache-2.0
#include "src/model/model_flags.h"

#include <charconv>

#include "core/json.h"
#include "core/strings.h"
#include "kernels/devices.h"
#include "runner/tokenizer.h"

namespace kvgauge {

Result<ModelOptions> ParseModelOptions(const ModelFlags& flags) {
  ModelOptions options;
  if (flags.dtype != "auto") {
    options.dtype = DTypeFromName(flags.dtype);
    if (!options.dtype || !IsFloat(*options.dtype)) {
      return BadInput(StrCat("--dtype: ", Quoted(flags.dtype),
                             " is not known; expected auto, f32, f16 or bf16"));
    }
  }
  if (flags.weights_memory != "packed" && flags.weights_memory != "unpacked") {
    return BadInput(StrCat("--weights-memory: ", Quoted(flags.weights_memory),
                           " is not known; expected packed or unpacked"));
  }
  options.keep_blocks = flags.weights_memory == "packed";
  if (flags.product_rows == NameOf(ProductRows::kFile)) {
    options.product_rows = ProductRows::kFile;
    if (flags.weights != "file") {
      return BadInput(
          StrCat("--product-rows: ", Quoted(flags.product_rows),
                 " needs weights of a file; expected dtype with --weights random:SEED"));
    }
  } else if (flags.product_rows != "dtype" && flags.product_rows != "int8") {
    return BadInput(StrCat("--product-rows: ", Quoted(flags.product_rows),
                           " is not known; expected dtype, int8 or file"));
  }
  if (flags.product_rows == "int8") {
    options.product_rows = ProductRows::kInt8;
    if (!options.keep_blocks || flags.weights != "file") {
      return BadInput(
          StrCat("--product-rows: ", Quoted(flags.product_rows),
                 " needs weights of a file that stay packed; expected dtype with ",
                 options.keep_blocks ? "--weights random:SEED" : "--weights-memory unpacked"));
    }
  }
  if (flags.weights != "file") {
    constexpr std::string_view kPrefix = "random:";
    uint64_t seed = 0;
    const std::string_view text = flags.weights;
    const char* end = text.data() + text.size();
    const bool prefixed = text.starts_with(kPrefix) && text.size() > kPrefix.size();
    const auto read = std::from_chars(prefixed ? text.data() + kPrefix.size() : end, end, seed);
    if (prefixed && read.ec == std::errc::result_out_of_range) {
      return BadInput(StrCat("--weights: ", Quoted(flags.weights),
                             " has a seed past the range; expected 0 .. ", ~uint64_t{0}));
    }
    if (!prefixed || read.ptr != end) {
      return BadInput(StrCat("--weights: ", Quoted(flags.weights),
                             " is not known; expected file or random:SEED, e.g. random:1"));
    }
    options.random_seed = seed;
  }
  return options;
}

ModelShape ShapeFor(const ModelFlags& flags, const ModelConfig& config,
                    const ModelOptions& options) {
  ModelShape shape = ShapeOf(config, options.dtype.value_or(config.stored_dtype));
  shape.token_classes = HasTokenizer(flags.model);
  return shape;
}

std::string NumbersOf(const ModelFlags& flags, DType dtype) {
  if (flags.product_rows == ModelFlags().product_rows) return std::string(NameOf(dtype));
  return StrCat(NameOf(dtype), ", products by rows of ", flags.product_rows);
}

Result<std::unique_ptr<Ops>> MakeOpsFor(const ModelFlags& flags) {
  const ThreadSettings threads = MakeThreadSettings(flags.threads);
  return flags.divides ? MakeLayeredOps(flags.backend, threads) : MakeOps(flags.backend, threads);
}

Result<LoadedModel> LoadModel(const ModelFlags& flags, const Prepare* prepare) {
  KVG_ASSIGN(ModelOptions options, ParseModelOptions(flags));
  options.prepare = prepare;
  LoadedModel loaded;
  KVG_ASSIGN(loaded.ops, MakeOpsFor(flags));
  KVG_ASSIGN(loaded.model, Model::Load(flags.model, options, *loaded.ops));
  return loaded;
}

Result<std::vector<int32_t>> ReadIdsFile(const std::string& path, int64_t vocab_size) {
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  return IdsFromJson(json, vocab_size, path);
}

Result<std::vector<int32_t>> IdsFromJson(const Json& json, int64_t vocab_size,
                                         const std::string& origin) {
  if (!json.is_array()) return BadInput(StrCat(origin, ": expected one JSON array of token ids"));
  std::vector<int32_t> ids;
  ids.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const Json& value = json[i];
    if (!value.is_number_integer() || value < 0 || value >= vocab_size) {
      return BadInput(StrCat(
          origin, ": element ", i, ": ", value.dump(-1, ' ', false, Json::error_handler_t::replace),
          " is not a token id of this model; expected integers in [0, ", vocab_size, ")"));
    }
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

Result<std::string> FingerprintOf(const ModelFlags& flags) {
  KVG_ASSIGN(const ModelOptions options, ParseModelOptions(flags));
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(flags.model));
  std::unique_ptr<WeightSource> source;
  if (options.random_seed) {
    source = MakeRandomWeights(ExpectedTensors(config), *options.random_seed,
                               options.dtype.value_or(config.stored_dtype));
  } else {
    KVG_ASSIGN(source, OpenWeights(flags.model, options.dtype.value_or(config.stored_dtype)));
  }
  return ModelFingerprint(config, *source);
}

}  // namespace kvgauge
