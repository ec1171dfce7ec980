// SPDX-License-Identifier: Apache-2.0
// Executes a method on the cache of one sequence: the stages decide, the compressor acts and
// records what it did.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "methods/method.h"
#include "runner/capture.h"
#include "runner/model.h"

namespace kvgauge {

// Where the time of one sequence went, in seconds. `prefill` and `score` of a prompt may be shared
// by several rows; each row carries what it would have cost alone.
struct PhaseSeconds {
  double prefill = 0;
  double score = 0;     // importance, its ageing, a reader's choice
  double select = 0;    // allocation and plans
  double compact = 0;   // plans executed
  double quantise = 0;  // stored anew, sealed
  double attend = 0;    // of decode steps; shared by the whole pool when there is company
  double other = 0;     // of decode steps

  double compressing() const { return score + select + compact + quantise; }
  PhaseSeconds& operator+=(const PhaseSeconds& more);
};

enum class Engagement {
  kEngaged,     // the method changed what is held or read
  kNotEngaged,  // it should have and did not; such a row is not ranked
  kIdentity,    // there was nothing for it to do: the full cache
};
std::string_view NameOf(Engagement engagement);

// What the KV heads of one layer hold of one modality.
struct ModalityRecord {
  int64_t entries_before = 0, entries_after = 0;  // around compression
  int64_t bytes = 0;          // the layer's afterwards, by this modality's share of its entries
  double attention = 0;       // of the last prompt row, mean over query heads
  double attention_kept = 0;  // what of it goes to entries that are still held
};

// What a method did to one sequence.
struct CompressionRecord {
  Engagement engagement = Engagement::kNotEngaged;
  std::string reason;         // why not, or which stage did nothing
  int64_t prompt_tokens = 0;  // seen when it was last compressed
  std::vector<std::vector<int64_t>> entries_before, entries_after;  // [layers][kv_heads]
  std::vector<int64_t> merged;  // [layers] entries folded into others, over all compressions
  // [layers] of the numbers in the cache after compression: payload bits each.
  std::vector<double> bits;
  // [layers], by Modality; empty for a prompt without pictures.
  std::vector<std::array<ModalityRecord, kModalities>> modalities;
  // [layers] The share of ordinary attention that the prompt's rows computed, where a stage says
  // what they attend to; otherwise empty.
  std::vector<double> prefill_density;
  int64_t compressions = 0;  // reductions after prefill, after turns and while decoding
  // Entries a head attended over, mean over decode steps, layers and query heads; and the share of
  // those it held. Zero without steps.
  double reads_per_step = 0;
  double read_share = 0;
  int64_t steps = 0;
  int64_t nominal_bytes = 0;  // what the budget, or the codec's name, promises
  // The same number of tokens uncompressed, with the checkpoint's own heads.
  int64_t full_bytes = 0;
  KvBytes bytes;        // after compression; logical() and resident()
  KvBytes final_bytes;  // now
  // After compression, of the reader's index, and of queries that a score looks back from.
  int64_t reader_bytes = 0;
  // What of bytes and reader_bytes lies on the host, where the method places entries there; now;
  // and what a decode step fetches of entries, mean over steps. Counted entry by entry on every
  // backend; devices move whole pages (KvCache::Place).
  int64_t host_bytes = 0, final_host_bytes = 0;
  double fetched_bytes_per_step = 0;
  PhaseSeconds seconds;

  Json ToJson() const;
};

// The snapshot of a finished prefill, from which any number of rows start.
struct PromptState {
  const KvCache* cache = nullptr;
  const PrefillCapture* capture = nullptr;
  uint64_t seed = 0;  // of this sample
  // The tokens that the cache has seen. It grows with the decoded tokens and must outlive decoding.
  const Prompt* prompt = nullptr;
  bool counts_modalities = true;  // in the record, for prompts with pictures; takes time
  // A chunk of a prompt: the same with the rows behind it that its scores look back from.
  const PromptState* asked = nullptr;
  // For scorers that draft: the token that is most likely behind the prompt, and how many tokens of
  // the vocabulary count; 0: all.
  int32_t next = -1;
  int64_t valid_vocab = 0;
};

// The scores of one prompt: rows that differ only after scoring share them. Layers are processed
// one by one, so that scorers share captured signals and at most one layer of them is held.
class PromptScores {
 public:
  // Runs the model for scorers that probe: what its last pass gave is then gone.
  static PromptScores Compute(Model& model, const PromptState& state,
                              std::span<const Method* const> methods);

  // [layers] of [kv_heads, width]. An error of the scorer is an error of every row that uses it.
  Result<std::span<const Tensor>> Of(const Method& method) const;
  double seconds(const Method& method) const;
  int64_t bytes() const;

 private:
  struct Scored {
    Status status;
    std::vector<Buffer> memory;
    std::vector<Tensor> layers;
    double seconds = 0;
  };
  std::map<std::string, Scored> scored_;  // by score stage
};

// One method on one sequence, from compression to the last decode step. Not thread-safe. It creates
// and destroys its stages, so no state passes from one sample to the next.
class Compressor {
 public:
  // Precondition: CheckMethod holds. The model and the method outlive the compressor.
  Compressor(const Model& model, const Method& method, const Budget& budget);
  ~Compressor();

  // Compresses `cache`: a fork of the state's cache, or the state's cache itself. The first call
  // starts the sequence; later ones compress again after a turn. `scores` may be null.
  Status Compress(const PromptState& state, const PromptScores* scores, KvCache& cache);

  // A prompt that is read in chunks, each of which is compressed before the next one is read: the
  // capture of a chunk, before its first row, and then its compression. The cache may hold as many
  // entries as a budget of the whole prompt allows, of `prompt_tokens`. After the last chunk it is
  // as Compress leaves it: what is coded is coded then.
  void BeginChunk(PrefillCapture& capture);
  Status CompressChunk(const PromptState& state, int64_t prompt_tokens, KvCache& cache);

  // From now on the sequence's tokens are there: as PromptState::prompt.
  void ReadFrom(const Prompt& prompt);

  // Continues from the state of `other`, on a fork of its cache; same model, method and budget.
  // False if a stage holds state that cannot be copied; then compress again.
  bool ContinueFrom(const Compressor& other, KvCache& cache);
  // The same for sequences that take turns, each step of one done before another's begins: they
  // share what a reader indexed, where that can be cut back. May be called again and again.
  bool ContinueInTurns(const Compressor& other, KvCache& cache);

  // Pass this hook to every decode step, that is, to every pass that appends one row.
  LayerHook* hook();
  // Call after such a pass.
  Status AfterStep();
  // For the rows of a question: the hook of their passes, null if no score ages; the number of rows
  // that a pass may have; and the call after each pass.
  LayerHook* question_hook();
  int64_t most_question_rows() const;
  Status AfterRows();

  // Errors that a device recorded while executing plans during decode. Query once, after the last
  // step: on error, every result since the failing step is invalid.
  Status CheckSteps() const;
  // The record up to now.
  CompressionRecord Record() const;
  // As CompressionRecord::reader_bytes, but now.
  int64_t reader_bytes() const;

  // What the stages know between two decode steps beside the cache, behind `out`. Precondition:
  // CheckSavable, and the sequence has begun.
  Status SaveState(std::string& out);
  // Begins with that, in the place of Compress, on a cache that holds what the saved one held.
  // `prompt`, `state`: of the sequence then; what comes next decodes. Bytes may come from anywhere;
  // after an error this is not to be used.
  Status GoOn(const Prompt& prompt, std::string_view state, KvCache& cache);
  PhaseSeconds& seconds();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether some stage acts in decode steps: what goes on with a cache needs the method then.
bool ActsInDecode(const Method& method);
// True if the method's scores come from PromptScores alone, since its scorer runs the model.
bool ProbesPrompt(const Method& method);
// True if it runs from PromptState::next.
bool DraftsAnswers(const Method& method);
// True if the method's entries are the model's own latents. A model that was loaded for them then
// makes the cache before the prefill.
bool KeepsModelLatents(const Method& method, const ModelShape& shape);
// Bytes of `tokens` uncompressed entries, all layers and heads.
int64_t FullCacheBytes(const ModelShape& shape, int64_t tokens);
// The bytes that a budget allows for a prompt of that length, or that the codecs of a method
// without a budget promise.
int64_t NominalBytes(const Method& method, const ModelShape& shape, const Budget& budget,
                     int64_t tokens);

}  // namespace kvgauge
