// SPDX-License-Identifier: Apache-2.0
// Chunks of the context become the entries of a few trained tokens behind each.
//
// Paper: Compressed Context Memory, arXiv:2312.03414; after snu-mllab/Context-Memory. The tokens
// have embeddings of their own, and a LoRA acts on their rows alone. With memory `concat` the
// entries of all chunks stay; with `merge` the mean over chunks, of keys as they are turned.
// Weights are packed anew for each prompt.
#include <algorithm>
#include <array>
#include <string_view>

#include "core/strings.h"
#include "methods/condensing_thin.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

constexpr char kCcmEmbeddings[] = "embeddings";

class Ccm final : public CondensingThin {
 public:
  explicit Ccm(const Params& params)
      : tables_(params),
        chunk_(params.Int("chunk")),
        tokens_(params.Int("tokens")),
        sinks_(params.Int("sinks")),
        rank_(params.Int("rank")),
        scale_(static_cast<float>(params.Real("alpha")) / static_cast<float>(rank_)),
        averages_(params.Text("memory") == "merge") {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    tables_.Use(std::move(calibration));
  }

  Status Check(const ModelShape& shape) const override {
    if (chunk_ < tokens_ + sinks_) {
      return BadInput(StrCat("chunk is ", chunk_, ", and ", tokens_, " tokens and ", sinks_,
                             " sinks stay of the first one; expected ", tokens_ + sinks_,
                             " or more"));
    }
    const char* why = shape.latent_dim > 0   ? "projects to latents (latent attention)"
                      : shape.attention_gate ? "has gates among its queries"
                      : shape.distances      ? "counts in its scores how far entries are (ALiBi)"
                                             : nullptr;
    if (why != nullptr) {
      return Unsupported(StrCat("this model ", why,
                                ", and the stage's weights are for plain projections of queries, "
                                "keys and values; expected a model such as Llama or Mistral"));
    }
    return tables_.Check(DimsOf(shape));
  }

  int64_t chunk_tokens() const override { return chunk_; }
  int64_t slots() const override { return tokens_; }
  int64_t sinks() const override { return sinks_; }
  bool averages() const override { return averages_; }

  std::vector<float> Embeddings(const ModelShape& shape) const override {
    std::vector<float> rows = tables_.Read(kCcmEmbeddings, EmbeddingDims(shape));
    rows.resize(static_cast<size_t>(tokens_ * shape.hidden_size));
    return rows;
  }
  std::unique_ptr<RowAdapters> Load(const ModelShape& shape, Ops& ops) const override {
    return std::make_unique<RowAdapters>(tables_, shape, rank_, scale_, ops);
  }
  int64_t WeightBytes(const ModelShape& shape) const override {
    return RowAdapters::WeightBytes(shape, rank_) + 4 * tokens_ * shape.hidden_size;
  }
  int64_t WorkingBytes(const ModelShape& shape) const override {
    return RowAdapters::WorkingBytes(shape, rank_, tokens_);
  }

 private:
  // Models that merge were trained with as many tokens again, whose entries are the means; nothing
  // reads what these tokens are.
  std::vector<int64_t> EmbeddingDims(const ModelShape& shape) const {
    return {averages_ ? 2 * tokens_ : tokens_, shape.hidden_size};
  }
  GateTables::Dims DimsOf(const ModelShape& shape) const {
    GateTables::Dims dims = RowAdapters::DimsOf(shape, rank_);
    dims[kCcmEmbeddings] = EmbeddingDims(shape);
    return dims;
  }

  GateTables tables_;
  int64_t chunk_, tokens_, sinks_, rank_;
  float scale_;
  bool averages_;
};

constexpr char kPeftModel[] = "base_model.model.model.";

// "layers.3.self_attn.q_proj.lora_A.weight", also with the adapter's name "default" in it, as the
// name of a table; "": it is none of the four projections.
std::string AdapterTable(std::string_view name) {
  const std::vector<std::string> parts = Split(name, '.');
  const bool named = parts.size() == 7 && parts[5] == "default";
  if ((parts.size() != 6 && !named) || parts[0] != "layers" || parts[2] != "self_attn" ||
      parts.back() != "weight" || (parts[4] != "lora_A" && parts[4] != "lora_B")) {
    return "";
  }
  constexpr std::array kProjections = {"q_proj", "k_proj", "v_proj", "o_proj"};
  if (std::ranges::find(kProjections, parts[3]) == kProjections.end()) return "";
  const bool number = !parts[1].empty() && parts[1].size() < 6 &&
                      std::ranges::all_of(parts[1], [](char c) { return c >= '0' && c <= '9'; });
  if (!number) return "";
  return StrCat("layers.", parts[1], ".", parts[3].substr(0, 1),
                parts[4] == "lora_A" ? ".down" : ".up");
}

// Tensors that PEFT saves of a LoRA, and the embeddings beside them.
Result<Calibration::Tables> ImportAdapter(const Calibration::Tables& published) {
  Calibration::Tables tables;
  int64_t rank = 0;
  std::string first;
  for (const auto& [name, table] : published) {
    const bool prefixed = name.starts_with(kPeftModel);
    const std::string own = prefixed ? name.substr(std::string_view(kPeftModel).size()) : "";
    // The older name is that of the code it grew from.
    if (own == "embed_tokens.comp_embeddings.weight" ||
        own == "embed_tokens.gist_embeddings.weight") {
      tables[kCcmEmbeddings] = table;
      continue;
    }
    const std::string to = AdapterTable(own);
    if (to.empty()) {
      return BadInput(
          StrCat("tensor '", name,
                 "' acts on what this method leaves as it is; expected LoRA weights of "
                 "q_proj, k_proj, v_proj and o_proj, and embed_tokens.comp_embeddings"));
    }
    const bool up = to.ends_with(".up");
    if (table.shape.size() != 2) {
      return BadInput(
          StrCat("tensor '", name, "' is of rank ", table.shape.size(), "; expected a matrix"));
    }
    const int64_t own_rank = table.shape[up ? 1 : 0];
    if (first.empty()) first = name;
    if (rank == 0) rank = own_rank;
    if (own_rank != rank) {
      return BadInput(StrCat("tensor '", name, "' is of a LoRA of rank ", own_rank, ", and '",
                             first, "' of one of rank ", rank, "; expected one rank"));
    }
    tables[to] = table;
  }
  if (first.empty()) {
    return BadInput(StrCat("has no LoRA weights, such as '", kPeftModel,
                           "layers.0.self_attn.q_proj.lora_A.weight'"));
  }
  if (!tables.contains(kCcmEmbeddings)) {
    return BadInput(StrCat("has no tensor '", kPeftModel,
                           "embed_tokens.comp_embeddings.weight', the embeddings of the tokens "
                           "behind chunks"));
  }
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "ccm",
    .paper = "arXiv:2312.03414",
    .summary = "chunks of the context become the entries of a few trained tokens behind each",
    .departures =
        {("chunks see the memory, the forms concat_recur and merge_recur of the reference; in its "
          "forms concat and merge (MetaICL, LaMP) each chunk is read by itself"),
         ("where no passages are marked, chunks have a fixed length, and what is left behind the "
          "last whole one is the question"),
         "a chunk of fewer tokens than stay of it is read with its neighbour",
         ("adapters of LLaMA-7B belong to a model that its authors fine-tuned first "
          "(`llama-7b-no`): merge that LoRA into the checkpoint before"),
         "weights are float32 whatever the model's type"},
    .bytes = "entries of its tokens for each chunk, or once, with 4 bytes an entry for its "
             "position; 4 bytes a weight of the LoRA and the embeddings, once a model",
    .params = GateTables::Declare(
        {IntParam("chunk", 256, 1, 1 << 20,
                  "the most tokens of a chunk, where the task marks no passages"),
         IntParam("tokens", 2, 1, 1 << 10, "trained tokens behind a chunk"),
         ChoiceParam("memory", "concat", {"concat", "merge"},
                     "concat: entries of all chunks; merge: their mean over chunks"),
         IntParam("sinks", 0, 0, 1 << 10, "first tokens of the prompt that stay as they are"),
         IntParam("rank", 16, 1, 1 << 12, "rank of the LoRA"),
         RealParam("alpha", 16, 0, 1e6, "the LoRA counts by this number over its rank")}),
    .make = Make<Ccm>(),
    .calibrated_params = {"tokens", "memory", "rank"},
    .import = ImportAdapter,
});

}  // namespace
}  // namespace kvgauge
