// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "core/guarded.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "runner/encoder.h"
#include "src/encoder/spec.h"
#include "src/model/weight_loader.h"
#include "src/text/tokenizer/pipeline.h"
#include "src/vision/attention.h"
#include "src/vision/pass.h"

namespace kvgauge {

struct EncoderLayer {
  Linear qkv, output, up, down;
  Norm attention_norm, mlp_norm;
};

struct EncoderWeights {
  Table words;
  Buffer place_memory, mean_memory;
  Tensor places;     // [most tokens, width]: of the position and of the one type
  Tensor mean_word;  // [1, width]: of the whole table
  Norm norm;
  std::vector<EncoderLayer> layers;
  Linear classifier;
};

namespace {

// The mean of the rows of a stored table, [columns].
std::vector<float> MeanRow(const Tensor& table) {
  const int64_t rows = table.shape[0], columns = table.shape[1];
  const auto row_bytes = static_cast<size_t>(columns * SizeOf(table.dtype));
  std::vector<double> sums(static_cast<size_t>(columns));
  std::vector<float> whole(sums.size());
  std::vector<uint16_t> half(sums.size());
  for (int64_t row = 0; row < rows; ++row) {
    const char* bytes =
        static_cast<const char*>(table.data) + row * table.stride[0] * SizeOf(table.dtype);
    if (table.dtype == DType::kF32) {
      std::memcpy(whole.data(), bytes, row_bytes);
    } else {
      std::memcpy(half.data(), bytes, row_bytes);
      const auto widen = table.dtype == DType::kF16 ? F16ToF32 : Bf16ToF32;
      std::ranges::transform(half, whole.begin(), widen);
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += double{whole[i]};
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    whole[i] = static_cast<float>(sums[i] / static_cast<double>(rows));
  }
  return whole;
}

// The two tokens that the tokenizer puts around a text.
Result<std::pair<int32_t, int32_t>> TokensAround(const Tokenizer& tokenizer,
                                                 const std::string& directory) {
  KVG_ASSIGN(const std::vector<int32_t> around, tokenizer.Encode(""));
  if (around.size() == 2) return std::pair(around[0], around[1]);
  return BadInput(StrCat(directory, ": its tokenizer puts ", around.size(),
                         " tokens around a text; expected 2, as a BERT or XLM-RoBERTa has"));
}

Result<std::unique_ptr<Tokenizer>> LoadOwnTokenizer(const std::string& directory,
                                                    const EncoderSpec& spec) {
  KVG_ASSIGN(std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(directory));
  const std::string_view kind =
      spec.word_spelling == WordSpelling::kContinued ? "WordPiece" : "Unigram";
  if (dynamic_cast<const PipelineTokenizer*>(tokenizer.get()) == nullptr ||
      !tokenizer->Kind().starts_with(kind)) {
    return BadInput(StrCat(directory, ": its tokenizer is ", tokenizer->Kind(),
                           "; an encoder of this kind has a ", kind, " tokenizer"));
  }
  if (tokenizer->VocabSize() > spec.vocab_size) {
    return BadInput(StrCat(spec.path, ": vocab_size is ", spec.vocab_size,
                           ", and the tokenizer has ", tokenizer->VocabSize(),
                           " tokens; expected at least as many"));
  }
  KVG_TRY(TokensAround(*tokenizer, directory));
  return tokenizer;
}

// Bytes of a pass over so many tokens.
int64_t PassBytes(const EncoderSpec& spec, int64_t tokens) {
  // What the next layer reads, the projections, the keys and values again in pages, what was
  // attended to, and the widened rows.
  return 4 * tokens * (spec.width * 7 + spec.ffn + 2);
}

// Bytes of what LoadWeights holds. The table of words stays as its file has it.
int64_t HeldBytes(const EncoderSpec& spec, DType words) {
  const int64_t layer =
      4 * spec.width * (spec.width + 1) + 2 * spec.width * spec.ffn + spec.ffn + 5 * spec.width;
  // Places, the mean word, the first norm, and the classifier.
  const int64_t others = spec.width * (spec.most_tokens() + 1 + 2 + 2) + 2;
  return spec.vocab_size * spec.width * SizeOf(words) + 4 * (spec.layers * layer + others);
}

// "[NEW7]" at the front of a text: 7, and how long it is. -1: none.
std::pair<int64_t, size_t> MarkAt(std::string_view text) {
  constexpr std::string_view kBegin = "[NEW";
  if (!text.starts_with(kBegin)) return {-1, 0};
  int64_t index = -1;
  const char* digits = text.data() + kBegin.size();
  const auto [end, error] = std::from_chars(digits, text.data() + text.size(), index);
  const auto size = static_cast<size_t>(end - text.data()) + 1;
  if (error != std::errc() || index < 0 || index >= TokenTagger::kMarks) return {-1, 0};
  if (text.substr(0, size) != TokenTagger::Mark(index)) return {-1, 0};
  return {index, size};
}

}  // namespace

Result<std::shared_ptr<const TaggerModel>> LookAtTagger(const std::string& directory) {
  KVG_ASSIGN(const EncoderSpec spec, ReadEncoderConfig(directory));
  KVG_ASSIGN(const std::unique_ptr<WeightSource> source, OpenWeights(directory, DType::kF32));
  const EncoderTensors tensors = DescribeEncoder(spec);
  KVG_TRY(CheckEncoderWeights(tensors, spec, *source));
  KVG_ASSIGN(const WeightInfo words, source->Describe(tensors.words.name));
  KVG_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, LoadOwnTokenizer(directory, spec));
  auto model = std::make_shared<TaggerModel>();
  model->directory = directory;
  KVG_ASSIGN(const Json config, ReadJsonFile(spec.path));
  Sha256 hash;
  for (const std::string& part :
       {CanonicalJson(config), tokenizer->fingerprint(), source->Fingerprint()}) {
    hash.Update(part.data(), part.size());
  }
  model->fingerprint = hash.Finish();
  model->weight_bytes = HeldBytes(spec, words.dtype);
  model->working_bytes = PassBytes(spec, spec.most_tokens());
  return std::shared_ptr<const TaggerModel>(std::move(model));
}

TokenClassifier::TokenClassifier(std::unique_ptr<EncoderSpec> spec,
                                 std::unique_ptr<Tokenizer> tokenizer, Ops& ops)
    : spec_(std::move(spec)),
      owner_(std::move(tokenizer)),
      tokenizer_(static_cast<const PipelineTokenizer*>(owner_.get())),
      ops_(&ops),
      weights_(std::make_unique<EncoderWeights>()) {}

TokenClassifier::~TokenClassifier() = default;

Result<std::unique_ptr<TokenClassifier>> TokenClassifier::Load(const std::string& directory,
                                                               Ops& ops) {
  KVG_ASSIGN(EncoderSpec spec, ReadEncoderConfig(directory));
  KVG_ASSIGN(std::unique_ptr<Tokenizer> tokenizer, LoadOwnTokenizer(directory, spec));
  KVG_ASSIGN(const auto around, TokensAround(*tokenizer, directory));
  std::unique_ptr<TokenClassifier> made(new TokenClassifier(
      std::make_unique<EncoderSpec>(std::move(spec)), std::move(tokenizer), ops));
  made->around_ = around;
  KVG_TRY(Guarded([&] { return made->LoadWeights(directory); }));
  return made;
}

Status TokenClassifier::LoadWeights(const std::string& directory) {
  EncoderWeights& w = *weights_;
  KVG_ASSIGN(const std::unique_ptr<WeightSource> source, OpenWeights(directory, DType::kF32));
  const EncoderTensors tensors = DescribeEncoder(*spec_);
  KVG_TRY(CheckEncoderWeights(tensors, *spec_, *source));
  WeightLoader loader(*source, DType::kF32, *ops_);
  KVG_TRY(loader.LoadTable(tensors.words, w.words));
  KVG_ASSIGN(const WeightTensor words, source->Get(tensors.words.name));
  const int64_t width = spec_->width, most = spec_->most_tokens();
  const std::vector<float> mean = MeanRow(words.view);
  w.mean_memory = ops_->memory->Allocate(width * SizeOf(DType::kF32));
  w.mean_word = w.mean_memory.As(DType::kF32, {1, width});
  ops_->memory->Copy(View(mean, {1, width}), w.mean_word);
  std::vector<float> positions, types;
  KVG_TRY(loader.LoadNumbers(tensors.positions, positions));
  KVG_TRY(loader.LoadNumbers(tensors.types, types));
  std::vector<float> places(positions.begin() + spec_->first_position * width, positions.end());
  for (size_t i = 0; i < places.size(); ++i) places[i] += types[i % static_cast<size_t>(width)];
  w.place_memory = ops_->memory->Allocate(most * width * SizeOf(DType::kF32));
  w.places = w.place_memory.As(DType::kF32, {most, width});
  ops_->memory->Copy(View(places, {most, width}), w.places);
  KVG_TRY(loader.Load(tensors.norm, w.norm));
  w.layers.resize(tensors.layers.size());
  for (size_t i = 0; i < w.layers.size(); ++i) {
    const EncoderLayerTensors& from = tensors.layers[i];
    EncoderLayer& to = w.layers[i];
    KVG_TRY(loader.Load(from.qkv, to.qkv));
    KVG_TRY(loader.Load(from.output, to.output));
    KVG_TRY(loader.Load(from.attention_norm, to.attention_norm));
    KVG_TRY(loader.Load(from.up, to.up));
    KVG_TRY(loader.Load(from.down, to.down));
    KVG_TRY(loader.Load(from.mlp_norm, to.mlp_norm));
  }
  KVG_TRY(loader.Load(tensors.classifier, w.classifier));
  weight_bytes_ = loader.bytes() + w.mean_memory.size_bytes() + w.place_memory.size_bytes();
  return {};
}

WordSpelling TokenClassifier::word_spelling() const { return spec_->word_spelling; }
int64_t TokenClassifier::most_tokens() const { return spec_->most_tokens(); }

Result<std::vector<TaggerToken>> TokenClassifier::Cut(std::string_view text) const {
  std::vector<TaggerToken> tokens;
  const auto cut = [&](std::string_view part) -> Status {
    if (part.empty()) return {};
    std::vector<int32_t> ids;
    std::vector<std::string> spellings;
    KVG_TRY(tokenizer_->Cut(part, ids, spellings));
    for (size_t i = 0; i < ids.size(); ++i) {
      tokens.push_back({ids[i], std::move(spellings[i]), tokenizer_->IsSpecial(ids[i])});
    }
    return {};
  };
  size_t begin = 0;
  for (size_t at = text.find("[NEW"); at != std::string_view::npos; at = text.find("[NEW", at)) {
    const auto [index, size] = MarkAt(text.substr(at));
    if (index < 0) {
      ++at;
      continue;
    }
    KVG_TRY(cut(text.substr(begin, at - begin)));
    tokens.push_back({static_cast<int32_t>(spec_->vocab_size + index), Mark(index), false});
    begin = at += size;
  }
  KVG_TRY(cut(text.substr(begin)));
  return tokens;
}

std::string TokenClassifier::Join(std::span<const std::string> spellings) const {
  return tokenizer_->Join(spellings);
}

Result<std::vector<float>> TokenClassifier::Chances(std::span<const int32_t> ids, TextEdges edges) {
  KVG_ASSIGN(const std::vector<float> logits, Logits(ids, edges));
  const size_t rows = std::min(ids.size(), logits.size() / 2 - 1);
  std::vector<float> chances(rows);
  for (size_t i = 0; i < rows; ++i) {
    const float no = logits[2 * (i + 1)], yes = logits[2 * (i + 1) + 1];
    const float largest = std::max(no, yes);
    const float own = std::exp(yes - largest);
    chances[i] = own / (std::exp(no - largest) + own);
    if (!std::isfinite(chances[i])) {
      return Unsupported(StrCat(spec_->path, ": token ", i, " of ", rows,
                                " gets logits that are not finite (", no, ", ", yes, ")"));
    }
  }
  return chances;
}

Result<std::vector<float>> TokenClassifier::Logits(std::span<const int32_t> ids, TextEdges edges) {
  auto [before, behind] = around_;
  if (edges == TextEdges::kBerts) {
    const int32_t unknown = tokenizer_->IdOf("<unk>").value_or(before);
    before = tokenizer_->IdOf("[CLS]").value_or(unknown);
    behind = tokenizer_->IdOf("[SEP]").value_or(unknown);
  }
  std::vector<int32_t> all = {before};
  all.insert(all.end(), ids.begin(), ids.end());
  all.push_back(behind);
  all.resize(std::min(all.size(), static_cast<size_t>(most_tokens())));
  for (const int32_t id : all) {
    KVG_CHECK(id >= 0 && id < spec_->vocab_size + kMarks, "tokens are those of Cut");
  }
  std::vector<float> logits;
  KVG_TRY(Guarded([&]() -> Status {
    logits = Run(all);
    return {};
  }));
  return logits;
}

Tensor TokenClassifier::Embed(std::span<const int32_t> ids, Tensor x) {
  const int64_t rows = std::ssize(ids);
  std::vector<int32_t> known(ids.begin(), ids.end());
  for (int32_t& id : known) {
    if (id >= spec_->vocab_size) id = 0;
  }
  const Buffer memory = ops_->memory->Allocate(rows * SizeOf(DType::kI32));
  const Tensor index = memory.As(DType::kI32, {rows});
  ops_->memory->Copy(View(known, {rows}), index);
  ops_->linear->Embed(weights_->words.rows, index, 1.0f, x);
  for (int64_t row = 0; row < rows; ++row) {
    if (ids[static_cast<size_t>(row)] < spec_->vocab_size) continue;
    ops_->memory->Copy(weights_->mean_word, x.Slice(row, row + 1));
  }
  ops_->rows->Combine(x, weights_->places.Slice(0, rows), Binary::kAdd, x);
  ops_->rows->LayerNorm(x, weights_->norm.weight, weights_->norm.bias, spec_->norm_eps, x);
  return x;
}

std::vector<float> TokenClassifier::Run(std::span<const int32_t> ids) {
  const int64_t rows = std::ssize(ids), width = spec_->width, heads = spec_->heads;
  const int64_t dim = width / heads;
  Buffer memory = ops_->memory->Allocate(4 * rows * (5 * width + spec_->ffn + 2));
  int64_t taken = 0;
  const auto take = [&](int64_t columns) {
    Tensor part = memory.As(DType::kF32, {memory.size_bytes() / 4});
    part = part.Slice(taken, taken + rows * columns).Reshape({rows, columns});
    taken += rows * columns;
    return part;
  };
  const Tensor x = Embed(ids, take(width)), qkv = take(3 * width), attended = take(width);
  const Tensor up = take(spec_->ffn), logits = take(2);
  AttentionShape shape;
  shape.format = {DType::kF32, dim, dim};
  shape.query_heads = shape.kv_heads = heads;
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const RowRange all = {0, rows};
  SegmentAttention attention({&all, 1}, shape, *ops_);
  const auto multiply = [&](const Tensor& from, const Linear& linear, MatMulMode mode, Tensor to) {
    ops_->linear->MatMul(from, *linear.matrix, linear.bias, mode, to);
  };
  const auto norm = [&](const Norm& by) {
    ops_->rows->LayerNorm(x, by.weight, by.bias, spec_->norm_eps, x);
  };
  for (const EncoderLayer& layer : weights_->layers) {
    multiply(x, layer.qkv, MatMulMode::kSet, qkv);
    attention.Run(HeadsAt(qkv, 0, heads, dim), HeadsAt(qkv, width, heads, dim),
                  HeadsAt(qkv, 2 * width, heads, dim), attended.Reshape({rows, heads, dim}));
    multiply(attended, layer.output, MatMulMode::kAdd, x);
    norm(layer.attention_norm);
    multiply(x, layer.up, MatMulMode::kSet, up);
    ops_->rows->Activate(up, spec_->activation, up);
    multiply(up, layer.down, MatMulMode::kAdd, x);
    norm(layer.mlp_norm);
  }
  multiply(x, weights_->classifier, MatMulMode::kSet, logits);
  std::vector<float> out(static_cast<size_t>(2 * rows));
  ops_->memory->Copy(logits, View(out, {rows, 2}));
  return out;
}

}  // namespace kvgauge
