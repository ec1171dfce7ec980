// SPDX-License-Identifier: Apache-2.0
// Reads events of the prompt for all heads together: stretches that begin where a token surprised
// the model.
//
// Paper: EM-LLM, arXiv:2407.09450; after em-llm/EM-LLM-model. Needs how little each token of the
// prompt was expected, the attention that the prompt's rows give to each entry, keys before
// rotation, and the query of each decode step. An event begins at a row whose next token's surprise
// is more than `gamma` standard deviations above the mean of those before it, as far as `local`
// tokens reach back; it has `least` to `most` entries. Events stand and are chosen as InfLLM's
// blocks do, the best ones as long as there is room for `tokens` of their entries and `chunk` more.
// What is far is to count as being at one distance: store.plain, position clipped, position_limit =
// local - 1.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "methods/entry_blocks.h"
#include "methods/far_reader.h"
#include "methods/joining_reader.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

struct EventRule {
  int64_t chunk, least, most, sinks, local;
  double gamma;
};

// Where events end, counted from the first entry behind the sinks, as the reference finds them:
// while the prompt comes in chunks, the last token alone, entries leave the window of the last
// `local` ones, and are divided when enough have left it. surprise: of each row's next token.
class EventDivider {
 public:
  EventDivider(const EventRule& rule, std::span<const float> surprise)
      : rule_(rule), surprise_(surprise), begins_(surprise.size()) {}

  std::vector<int64_t> Divide() {
    const auto last = static_cast<int64_t>(surprise_.size()) - 1;
    for (int64_t at = 0; at < last; at += rule_.chunk) {
      const int64_t end = std::min(last, at + rule_.chunk);
      FindBegins(at, end);
      Take(end);
    }
    if (last >= 0) Take(last + 1);
    return ends_;
  }

 private:
  void FindBegins(int64_t begin, int64_t end) {
    // Counted from the first entry that is in no event yet, as the reference does.
    const int64_t from = std::max<int64_t>(0, end - waiting_ - rule_.local);
    const int64_t to = std::min(end - waiting_, std::max(begin - waiting_, rule_.sinks));
    const double count = static_cast<double>(to - from);
    if (count < 2) return;
    const auto* values = surprise_.data() + waiting_;
    const double mean = std::accumulate(values + from, values + to, 0.0) / count;
    double squares = 0;
    for (int64_t i = from; i < to; ++i) squares += (values[i] - mean) * (values[i] - mean);
    const double bound = mean + rule_.gamma * std::sqrt(squares / (count - 1));
    for (int64_t i = begin; i < end; ++i) {
      begins_[static_cast<size_t>(i)] = surprise_[static_cast<size_t>(i)] > bound;
    }
  }

  // Entries before `end` have come.
  void Take(int64_t end) {
    int64_t held = end - waiting_;
    if (sinks_ < rule_.sinks && held > rule_.local) {
      const int64_t more = std::min(rule_.sinks - sinks_, held - rule_.local);
      sinks_ += more;
      waiting_ += more;
      held -= more;
    }
    if (held < rule_.local + rule_.least) return;
    const int64_t open = held - rule_.local;
    std::vector<int64_t> cuts = {0};
    for (int64_t i = 0; i < open; ++i) {
      if (begins_[static_cast<size_t>(waiting_ + i)]) cuts.push_back(i);
    }
    if (cuts.size() == 1) {
      for (int64_t i = 0; open > rule_.most && i < open; i += rule_.most) cuts.push_back(i);
    }
    cuts.push_back(open);
    std::vector<int64_t> sizes;
    for (size_t i = 1; i < cuts.size(); ++i) {
      if (cuts[i] > cuts[i - 1]) sizes.push_back(cuts[i] - cuts[i - 1]);
    }
    int64_t gathered = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      gathered += sizes[i];
      for (; gathered >= rule_.most; gathered -= rule_.most) Add(rule_.most);
      if (gathered < std::min(rule_.least, open)) continue;
      // What the last cut leaves waits for more.
      if (gathered > 0 && i + 1 < sizes.size()) Add(gathered);
      gathered = 0;
    }
  }

  void Add(int64_t size) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + size);
    waiting_ += size;
  }

  const EventRule rule_;
  std::span<const float> surprise_;
  std::vector<bool> begins_;
  std::vector<int64_t> ends_;
  int64_t sinks_ = 0, waiting_ = 0;  // waiting_: the first entry that is in no event and no sink
};

class EmLlm final : public FarReader {
 public:
  explicit EmLlm(const Params& params)
      : tokens_(params.Int("tokens")),
        representatives_(params.Int("representatives")),
        rule_{.chunk = params.Int("chunk"),
              .least = params.Int("least"),
              .most = params.Int("most"),
              .sinks = params.Int("sinks"),
              .local = params.Int("local"),
              .gamma = params.Real("gamma")} {}

  Needs needs() const override { return {.column_sums = true, .surprise = true, .raw_keys = true}; }

  Status Check(const ModelShape& shape) const override {
    KVG_TRY(CheckEntryBlocks(shape));
    if (rule_.least <= rule_.most) return {};
    return BadInput(StrCat("least ", rule_.least, ": an event has at most ", rule_.most,
                           " entries; lower least or raise most"));
  }
  int64_t far_distance() const override { return rule_.local - 1; }
  // All heads of a layer read the same entries, by their places in the prompt.
  bool shares_choices() const override { return true; }

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t among = std::max<int64_t>(0, entries - rule_.sinks - rule_.local);
    // Surprises may end every event as soon as they may.
    return EntryBlocks::KeyBytes(own, own.query_heads, among / rule_.least) +
           EntryBlocks::PlaceBytes(own, among);
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<EntryBlocks>();
    if (view.decoding()) return index;
    const std::vector<float> of_rows = Fetch(view.ops(), view.Surprise());
    // Nothing is known of what came before a turn.
    std::vector<float> surprise(static_cast<size_t>(view.width()));
    std::copy(of_rows.begin(), of_rows.end(), surprise.end() - std::ssize(of_rows));
    index->first = rule_.sinks;
    index->ends = EventDivider(rule_, surprise).Divide();
    index->Stand(view, view.ColumnSums(), representatives_, rule_.local - 1);
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    return static_cast<EntryBlocks&>(state).Fields(view, view.shape().query_heads, rule_.local - 1,
                                                   fields);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const EntryBlocks&>(state);
    const int64_t outside = view.width() - rule_.sinks - index.entries() - rule_.local;
    const int64_t room = rule_.chunk + tokens_ - std::max<int64_t>(0, outside);
    if (index.entries() <= room) return false;
    const std::vector<int32_t> read = Best(index, Fetch(view.ops(), index.Scores(view, q)), room);
    if (read.empty()) {
      MarkEnds(view, index.first, index.first + index.entries(), view.width(), words);
    } else {
      index.Mark(view, Upload(view, read), words);
    }
    return true;
  }

 private:
  // The events with the best scores, ascending; the last one if that comes nearer to the room.
  static std::vector<int32_t> Best(const EntryBlocks& index, const std::vector<float>& scores,
                                   int64_t room) {
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    int64_t held = 0;
    size_t count = 0;
    while (count < order.size() && held < room) {
      const int64_t with = held + index.size(order[count]);
      if (with >= room && room - held <= with - room) break;
      held = with;
      ++count;
    }
    order.resize(count);
    std::sort(order.begin(), order.end());
    return order;
  }

  int64_t tokens_, representatives_;
  EventRule rule_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "emllm",
    .paper = "arXiv:2407.09450",
    .summary = "reads events of the prompt, which begin with a surprise, by keys that stand for "
               "them",
    .departures =
        {"the prompt is read with full attention; the reference looks events up for each chunk",
         "representatives are chosen by the attention of all later rows, not of a local window",
         "what is decoded is read, where the reference makes events of it, too",
         "no boundaries are refined and no neighbours read, as in the reference's configurations",
         "no window of positions hides what is far: layers with sliding windows are left alone",
         "a turn knows no surprise of the tokens before it"},
    .bytes = "4 * query_heads * key_dim an event and layer and 4 an entry of the prompt and layer, "
             "beside the cache",
    .params = {IntParam("tokens", 2048, 1, 1 << 24, "entries of events that are read, about"),
               IntParam("chunk", 512, 1, 1 << 20,
                        "tokens in which the prompt comes, and entries "
                        "that may be read besides"),
               IntParam("least", 8, 1, 4096, "entries of an event, at least"),
               IntParam("most", 128, 1, 4096, "entries of an event, at most"),
               RealParam("gamma", 1, -100, 100, "standard deviations that make a surprise"),
               IntParam("sinks", 128, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 4096, 1, 1 << 24, "last entries of the prompt, always read"),
               IntParam("representatives", 4, 1, 4096, "entries of an event that stand for it")},
    .make = Make<EmLlm>(),
});

}  // namespace
}  // namespace kvgauge
