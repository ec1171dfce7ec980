// SPDX-License-Identifier: Apache-2.0
// A prefill that puts a prompt's cache together from caches of texts that were read before
// (methods/reuse.h), and reads what is left.
//
// Texts that the store lacks are read by themselves first. That time is not the prefill's: a server
// has read them when a prompt asks for them. Rows have the bits of an ordinary prefill as long as
// no entry before them comes from another place. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "methods/historic_reuse.h"
#include "methods/method.h"
#include "runner/model.h"
#include "runner/reuse_store.h"

namespace kvgauge {

class EarlierReads;

// What came of a prefill.
struct ReuseFacts {
  int64_t prompt_tokens = 0;
  int64_t link_tokens = 0;    // of these, put there by the stage: no full cache has them
  int64_t reused_tokens = 0;  // whose entries of the last layer were stored before
  int64_t chunks = 0;         // that the prompt was put together of, its beginning included
  // Rows that passed a layer, of all rows of all layers: the share of the products' work that was
  // done.
  double rows_share = 1;
  int64_t made_tokens = 0;  // read before the prefill, since the store lacked them
  double made_s = 0;
  int64_t store_bytes = 0;
};

class ReusePrefill {
 public:
  // Reads `prompt` into `cache`, which is empty. Where texts stand beside each other its tokens are
  // placed anew, and where the stage has tokens of its own (methods/linked_reuse.h) it gets these.
  // `context` tokens stand before the question; 0: nobody says, and the last chunk is the question.
  // `passages`: where a chunk begins, ascending; empty: chunks of as many tokens as the stage says.
  // All outlive the prefill.
  ReusePrefill(Model& model, const StageChoice& reuse, Prompt& prompt, int64_t context,
               std::span<const int64_t> passages, KvCache& cache, ReuseStore& store);
  ~ReusePrefill();

  bool done() const { return step_ == Step::kDone; }
  // Whether texts that the store lacks are still being read.
  bool makes() const { return step_ == Step::kMake; }
  // The next pass over the weights. Logits of the last row when it is done, [1, vocab], valid until
  // the model runs again; otherwise empty. After an error the prefill is not to be used.
  Result<Tensor> Next();
  // Complete when it is done.
  const ReuseFacts& facts() const { return facts_; }

  // Bytes beside cache and store, for the plan of a run. `passages` are marked; 0: none.
  static int64_t PlannedBytes(const StageChoice& reuse, const ModelConfig& config, int64_t rows,
                              int64_t passages);

 private:
  enum class Step { kMake, kBegin, kPrefix, kBelow, kChoose, kAbove, kDone };
  struct Text {
    int64_t begin = 0, end = 0;  // in the prompt
  };

  bool prefixes() const { return stage().texts() == ReusedTexts::kPrefixes; }
  const Reuse& stage() const { return static_cast<const Reuse&>(*stage_); }
  void FindTexts(int64_t context, std::span<const int64_t> passages);
  void PlaceTexts();
  // Its tokens as they are read by themselves: behind `lead` of the prompt's first.
  std::vector<int32_t> IdsOf(const Text& text, int64_t lead) const;
  int64_t LeadOf(const Text& text) const { return text.begin == 0 ? 0 : lead_; }
  const KvCache* Find(const Text& text);
  void Hold(const KvCache& cache, int64_t first);
  Status MakeSome();
  Status ReadEarlier(const HistoricReuse& stage);
  Status Begin();
  Result<Tensor> ReadBehindPrefix();
  Status PassBelow();
  Status ChooseRows();
  Result<Tensor> PassAbove();
  // The entries of all texts but the first in one layer, keys turned to their places.
  void Join(int64_t layer, const Tensor& keys, const Tensor& values);
  Result<Tensor> PassLayer(int64_t layer, const JoinedEntries& entries);
  Tensor Turns(int64_t layer);

  Model& model_;
  std::unique_ptr<Stage> stage_;
  Prompt& prompt_;
  KvCache& cache_;
  ReuseStore& store_;
  const ModelShape shape_;
  int64_t lead_ = 0;
  int64_t layer_ = 0;        // that is checked, and then the one that comes
  std::vector<Text> texts_;  // the first one begins the prompt; the question is none
  // A cache of each text, so that the store may let it go, and the first entry of the text there.
  std::vector<KvCache> held_;
  std::vector<int64_t> firsts_;
  Step step_ = Step::kMake;
  // The text that is being read by itself.
  std::unique_ptr<KvCache> made_;
  std::unique_ptr<Prompt> made_prompt_;
  std::unique_ptr<EarlierReads> earlier_;  // while they are read
  std::vector<int32_t> again_;             // what was chosen by them
  std::vector<int32_t> rows_;              // that pass the layers, as places
  int64_t next_row_ = 0;
  Buffer hidden_memory_, entry_memory_, turn_memory_[2];
  Tensor hidden_;                // [rows, hidden_size]
  Tensor joined_[2], fresh_[2];  // keys and values, [tokens, kv_heads, dim]
  Tensor turns_[2];              // of all tokens, [2, tokens, pairs]: of most layers, of local ones
  int64_t passed_ = 0;           // rows of layers
  ReuseFacts facts_;
};

}  // namespace kvgauge
