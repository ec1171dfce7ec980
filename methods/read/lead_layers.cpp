// SPDX-License-Identifier: Apache-2.0
// Some layers read everything and choose entries; the layers between them read what the last of
// these chose, and keep no index of their own.
//
// Papers: TidalDecode, arXiv:2410.05076, and OmniKV (ICLR 2025), which call such layers
// re-selection and filter layers. Needs the query of each decode step. Each query head chooses the
// `tokens` entries with its largest products for itself (TidalDecode); or a layer chooses them for
// all of its heads, by the most that a query head's softmax gives an entry (OmniKV). With
// `prompt_only` entries of the prompt are chosen among, and what was decoded since is read besides.
#include <algorithm>
#include <charconv>

#include "core/strings.h"
#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"
#include "methods/turn_taking_reader.h"

namespace kvgauge {
namespace {

// The numbers of "2,9"; empty if the text is none such, or they do not ascend.
std::vector<int64_t> LayersOf(std::string_view text) {
  std::vector<int64_t> layers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    int64_t layer = 0;
    const auto [next, error] = std::from_chars(at, end, layer);
    if (error != std::errc() || layer < 0) return {};
    if (!layers.empty() && layer <= layers.back()) return {};
    layers.push_back(layer);
    at = next;
    if (at == end) return layers;
    if (*at != ',') return {};
  }
}

class LeadLayers final : public Reader, public TurnTakingReader, public RepeatingReader {
 public:
  explicit LeadLayers(const Params& params)
      : text_(params.Text("layers")),
        layers_(LayersOf(text_)),
        tokens_(params.Int("tokens")),
        by_layer_(params.Text("heads") == "layer"),
        prompt_only_(params.Bool("prompt_only")) {}

  Status Check(const ModelShape& shape) const override {
    if (layers_.empty()) {
      return BadInput(StrCat("layers is \"", text_,
                             "\"; expected numbers of layers in ascending order, such as \"2,9\""));
    }
    if (layers_[0] >= shape.layers - 1) {
      return BadInput(StrCat("layers is \"", text_, "\", and the model has ", shape.layers,
                             ", so none reads what layer ", layers_[0],
                             " chooses; the first of them must be below the last layer"));
    }
    return {};
  }

  bool shares_choices() const override { return true; }

  int64_t LedBy(int64_t layer) const override {
    const auto above = std::upper_bound(layers_.begin(), layers_.end(), layer);
    return above == layers_.begin() ? layer : above[-1];
  }

  struct Choice final : State {
    int64_t begun = 0;     // entries of a head when the sequence began
    bool partial = false;  // at this step not everything is chosen
    Buffer words;          // [query_heads, words of the longest head] i64 at this step

    int64_t bytes() const override { return words.size_bytes(); }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    if (!Leads(layer) || entries <= tokens_) return 0;
    // The words have room for as many again as were there when it was made.
    return HostBufferBytes(2 * shape.query_heads * ((entries + 63) / 64) * SizeOf(DType::kI64));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto choice = std::make_unique<Choice>();
    choice->begun = view.width();
    return choice;
  }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool saves() const override { return true; }
  // A step sets the rest.
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    return fields.Number("entries of the prompt", 0, view.width(),
                         &static_cast<Choice&>(state).begun);
  }

  bool ReadsFew(int64_t layer, int64_t length) const override {
    return layer > layers_.front() && LedBy(layer) != layer && AreFew(tokens_, length);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& choice = static_cast<Choice&>(state);
    if (!Leads(view.layer())) {
      if (choice.partial) view.ops().memory->Copy(Words(choice, words), words);
      return choice.partial;
    }
    const int64_t open = prompt_only_ ? choice.begun : view.width();
    choice.partial = open > tokens_;
    if (!choice.partial) return false;
    if (choice.words.size_bytes() < words.Numel() * SizeOf(DType::kI64)) {
      choice.words = view.ops().memory->Allocate(2 * words.Numel() * SizeOf(DType::kI64));
    }
    by_layer_ ? ChooseForLayer(view, q, open, words) : ChooseForHeads(view, q, open, words);
    if (open < view.width()) MarkSince(view, open, words);
    view.ops().memory->Copy(words, Words(choice, words));
    return false;  // it reads everything itself
  }

 private:
  bool Leads(int64_t layer) const {
    return std::binary_search(layers_.begin(), layers_.end(), layer);
  }

  // What was chosen at this step, of the shape of `like`.
  static Tensor Words(const Choice& choice, const Tensor& like) {
    return choice.words.As(DType::kI64, {choice.words.size_bytes() / SizeOf(DType::kI64)})
        .Slice(0, like.Numel())
        .Reshape({like.shape[0], like.shape[1]});
  }

  // Products of the head's queries with its first `open` keys: [group, open or more].
  static Tensor Products(LayerView& view, int64_t head, const Tensor& q, int64_t open) {
    Ops& ops = view.ops();
    const int64_t group = view.shape().group(), dim = q.shape[1];
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    Tensor keys = KeysWithRoom(view, head, 0);
    if (Repeating(view) == nullptr) keys = keys.Slice(0, open);
    const int64_t room = keys.shape[0];
    const Tensor products = view.Scratch(DType::kF32, {group, room});
    ops.rows->Convert(q.Slice(head * group, (head + 1) * group), query);
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, room, dim}), 1.0f,
                         products.Reshape({1, group, room}));
    return products;
  }

  void ChooseForHeads(LayerView& view, const Tensor& q, int64_t open, const Tensor& words) const {
    const int64_t group = view.shape().group();
    const Tensor counts = Upload(
        view, std::vector<int32_t>(static_cast<size_t>(group), static_cast<int32_t>(tokens_)));
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Tensor chosen = view.Scratch(DType::kI32, {group, tokens_});
      view.ops().select->TopK(Columns(Products(view, h, q, open), 0, open), counts, chosen);
      view.ops().select->MarkRuns(chosen, 1, view.width(), words.Slice(h * group, (h + 1) * group));
    }
  }

  void ChooseForLayer(LayerView& view, const Tensor& q, int64_t open, const Tensor& words) const {
    RowOps& rows = *view.ops().rows;
    const int64_t heads = view.shape().kv_heads;
    Tensor most;
    for (int64_t h = 0; h < heads; ++h) {
      const Tensor given = Products(view, h, q, open);
      AttentionOfProducts(view, h, 0, QueryRows::Newest(view), open, given);
      if (most.empty()) most = view.Scratch(DType::kF32, {heads, given.shape[1]});
      rows.ReduceColumns(given, Reduction::kMax, most[h]);
    }
    const Tensor best = view.Scratch(DType::kF32, {1, most.shape[1]});
    rows.ReduceColumns(most, Reduction::kMax, best[0]);
    Mark(view, Best(view, Columns(best, 0, open), tokens_), words);
  }

  static void MarkSince(LayerView& view, int64_t first, const Tensor& words) {
    Mark(view, GrowingNumbers(view, view.width() - first, first), words);
  }

  // For all query heads alike. entries: [n] i32
  static void Mark(LayerView& view, const Tensor& entries, const Tensor& words) {
    Tensor all = entries.Reshape({1, entries.shape[0]});
    all.shape[0] = words.shape[0];
    all.stride[0] = 0;
    view.ops().select->MarkRuns(all, 1, view.width(), words);
  }

  std::string text_;
  std::vector<int64_t> layers_;
  int64_t tokens_;
  bool by_layer_, prompt_only_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "lead_layers",
    .paper = "arXiv:2410.05076",
    .summary = "some layers read everything and choose what the layers behind them read",
    .departures =
        {"the newest row chooses, as in OmniKV's default; its forms over a window of rows "
         "are left out",
         "all entries lie in one memory, where OmniKV keeps those of other layers on the "
         "host"},
    .bytes = "16 for each query head and 64 entries of the layers that choose, beside the cache",
    .params = {ChoiceParam("layers", "2,9", {},
                           "layers that choose, ascending; those that the model lacks do not "
                           "count"),
               IntParam("tokens", 512, 1, 1 << 24, "entries that are chosen"),
               ChoiceParam("heads", "query", {"query", "layer"},
                           "whether each query head chooses for itself, or a layer for all heads"),
               BoolParam("prompt_only", false,
                         "entries of the prompt are chosen among, all others are read besides")},
    .make = Make<LeadLayers>(),
});

}  // namespace
}  // namespace kvgauge
