// SPDX-License-Identifier: Apache-2.0
#include "src/encoder/spec.h"

#include <algorithm>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/config_reader.h"
#include "src/model/weight_loader.h"

namespace kvgauge {
namespace {

struct EncoderFamily {
  std::string_view architecture;
  std::string_view prefix;
  WordSpelling word_spelling;
  bool behind_padding;  // positions begin behind the padding token's id
};
constexpr EncoderFamily kEncoderFamilies[] = {
    {"BertForTokenClassification", "bert.", WordSpelling::kContinued, false},
    {"XLMRobertaForTokenClassification", "roberta.", WordSpelling::kBegun, true}};

// Bounds that no published encoder comes near.
constexpr int64_t kMostEncoderWidth = int64_t{1} << 15;
constexpr int64_t kMostEncoderLayers = int64_t{1} << 10;
constexpr int64_t kMostEncoderTokens = int64_t{1} << 20;

Result<const EncoderFamily*> FamilyOf(const Json& json, const std::string& path) {
  const auto architectures = json.find("architectures");
  if (architectures != json.end() && architectures->is_array()) {
    for (const EncoderFamily& family : kEncoderFamilies) {
      if (std::ranges::find(*architectures, Json(family.architecture)) != architectures->end()) {
        return &family;
      }
    }
  }
  const std::string found =
      architectures == json.end() ? "is missing" : "is " + CanonicalJson(*architectures);
  return BadInput(StrCat(path, ": key 'architectures' ", found.substr(0, 100),
                         "; expected a token classifier: BertForTokenClassification or "
                         "XLMRobertaForTokenClassification"));
}

int64_t CountLabels(ConfigReader& reader) {
  const int64_t labels = reader.Int("num_labels", 2, 1, 1 << 20);
  const Json* names = reader.Take("id2label");
  return names != nullptr && names->is_object() ? std::ssize(*names) : labels;
}

TensorSpec MatrixAt(const std::string& name, int64_t rows, int64_t columns) {
  return {name + ".weight", {rows, columns}};
}

LinearSpec LinearAt(const std::vector<std::string>& names, int64_t rows, int64_t columns) {
  LinearSpec spec;
  for (const std::string& name : names) {
    spec.parts.push_back(MatrixAt(name, rows, columns));
    spec.biases.push_back({name + ".bias", {rows}});
  }
  return spec;
}

NormSpec NormAt(const std::string& name, int64_t width) {
  return {{name + ".weight", {width}}, {name + ".bias", {width}}};
}

std::vector<TensorSpec> ListEncoderTensors(const EncoderTensors& tensors) {
  std::vector<TensorSpec> list = {tensors.words, tensors.positions, tensors.types};
  const auto add_norm = [&](const NormSpec& norm) {
    list.push_back(norm.weight);
    list.push_back(norm.bias);
  };
  const auto add_linear = [&](const LinearSpec& linear) {
    list.insert(list.end(), linear.parts.begin(), linear.parts.end());
    list.insert(list.end(), linear.biases.begin(), linear.biases.end());
  };
  add_norm(tensors.norm);
  for (const EncoderLayerTensors& layer : tensors.layers) {
    for (const LinearSpec* linear : {&layer.qkv, &layer.output, &layer.up, &layer.down}) {
      add_linear(*linear);
    }
    add_norm(layer.attention_norm);
    add_norm(layer.mlp_norm);
  }
  add_linear(tensors.classifier);
  return list;
}

}  // namespace

Result<EncoderSpec> ReadEncoderConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  if (!FileExists(path)) {
    return BadInput(StrCat(directory,
                           ": has no config.json; expected the directory of a token classifier "
                           "with config.json, tokenizer.json and model.safetensors"));
  }
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  if (!json.is_object()) return BadInput(path + ": expected a JSON object");
  KVG_ASSIGN(const EncoderFamily* family, FamilyOf(json, path));
  ConfigReader reader(json, path);
  EncoderSpec spec;
  spec.path = path;
  spec.prefix = family->prefix;
  spec.word_spelling = family->word_spelling;
  if (const int64_t labels = CountLabels(reader); labels != 2) {
    return BadInput(StrCat(path, ": ", labels, labels == 1 ? " class" : " classes",
                           " of tokens (id2label); expected "
                           "2: tokens that leave, and tokens that stay"));
  }
  spec.vocab_size = reader.Int("vocab_size", 30522, 1, INT32_MAX - TokenTagger::kMarks);
  spec.width = reader.Int("hidden_size", 768, 1, kMostEncoderWidth);
  spec.ffn = reader.Int("intermediate_size", 3072, 1, 8 * kMostEncoderWidth);
  spec.layers = reader.Int("num_hidden_layers", 12, 1, kMostEncoderLayers);
  spec.heads = reader.Int("num_attention_heads", 12, 1, kMostEncoderWidth);
  if (spec.width % spec.heads != 0) {
    reader.Fail("num_attention_heads", StrCat("a divisor of hidden_size (", spec.width, ")"));
  }
  const int64_t padding =
      reader.Int("pad_token_id", family->behind_padding ? 1 : 0, 0, spec.vocab_size - 1);
  spec.first_position = family->behind_padding ? padding + 1 : 0;
  // A pass has the two tokens around a text and one of it.
  spec.positions =
      reader.Int("max_position_embeddings", 512, spec.first_position + 3, kMostEncoderTokens);
  spec.types = reader.Int("type_vocab_size", 2, 1, kMostEncoderTokens);
  spec.norm_eps = static_cast<float>(reader.Real("layer_norm_eps", 1e-12, 0, 0.5));
  const std::optional<Activation> known = ActivationFromName(reader.Text("hidden_act", "gelu"));
  if (known) {
    spec.activation = *known;
  } else {
    reader.Fail("hidden_act", "one of gelu, gelu_pytorch_tanh, silu, relu");
  }
  reader.Neutral("position_embedding_type", std::string_view("absolute"));
  reader.Neutral("is_decoder", false);
  reader.Ignore({"architectures", "dtype", "torch_dtype", "attention_probs_dropout_prob",
                 "hidden_dropout_prob", "classifier_dropout", "directionality", "output_past",
                 "bos_token_id", "eos_token_id", "tie_word_embeddings", "pooler_fc_size",
                 "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
                 "pooler_type"});
  IgnoreGeneralKeys(reader);
  KVG_TRY(reader.Finish());
  return spec;
}

EncoderTensors DescribeEncoder(const EncoderSpec& spec) {
  EncoderTensors tensors;
  const std::string embeddings = spec.prefix + "embeddings.";
  tensors.words = MatrixAt(embeddings + "word_embeddings", spec.vocab_size, spec.width);
  tensors.positions = MatrixAt(embeddings + "position_embeddings", spec.positions, spec.width);
  tensors.types = MatrixAt(embeddings + "token_type_embeddings", spec.types, spec.width);
  tensors.norm = NormAt(embeddings + "LayerNorm", spec.width);
  for (int64_t i = 0; i < spec.layers; ++i) {
    const std::string scope = StrCat(spec.prefix, "encoder.layer.", i, ".");
    const std::string attention = scope + "attention.self.";
    EncoderLayerTensors& layer = tensors.layers.emplace_back();
    layer.qkv = LinearAt({attention + "query", attention + "key", attention + "value"}, spec.width,
                         spec.width);
    layer.output = LinearAt({scope + "attention.output.dense"}, spec.width, spec.width);
    layer.attention_norm = NormAt(scope + "attention.output.LayerNorm", spec.width);
    layer.up = LinearAt({scope + "intermediate.dense"}, spec.ffn, spec.width);
    layer.down = LinearAt({scope + "output.dense"}, spec.width, spec.ffn);
    layer.mlp_norm = NormAt(scope + "output.LayerNorm", spec.width);
  }
  tensors.classifier = LinearAt({"classifier"}, 2, spec.width);
  return tensors;
}

Status CheckEncoderWeights(const EncoderTensors& tensors, const EncoderSpec& spec,
                           const WeightSource& source) {
  std::set<std::string> known;
  for (const TensorSpec& tensor : ListEncoderTensors(tensors)) {
    KVG_TRY(CheckStoredTensor(tensor, source));
    known.insert(tensor.name);
  }
  for (const std::string& name : source.Names()) {
    // A list of numbers from 0 on, and what makes one vector of a text.
    if (name == spec.prefix + "embeddings.position_ids") continue;
    if (known.contains(name) || name.starts_with(spec.prefix + "pooler.")) continue;
    return BadInput(StrCat(source.OriginOf(name), ": tensor '", name,
                           "' is not used by this config; an encoder that ignores weights gives "
                           "wrong logits, so check architectures and num_hidden_layers"));
  }
  return {};
}

}  // namespace kvgauge
