// SPDX-License-Identifier: Apache-2.0
// Llama whose layers read the keys and values of others: the maps of LCKV's code, those of LCKV
// itself, CLA, the upper half of YOCO, and what the study of cross-layer sharing trained.
#include <string>
#include <vector>

#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostPasses = 1024;

// "0_0_2_2": for each layer the layer whose keys and values it reads; an s behind the number makes
// its attention a sliding window.
void ReadLayerMap(ConfigReader& reader, ModelConfig& config) {
  const std::string text = reader.Text("layer_types", "");
  const int64_t window = ReadWindow(reader, "sliding_window", 4096);
  // Those of training that keep no gradients and those that do: a prompt goes through all of them.
  const int64_t passes = reader.Int("forward_passes", 7, 1, kMostPasses) +
                         reader.Int("backward_passes", 2, 1, kMostPasses);
  if (text.empty() || !reader.ok()) return;
  const auto layers = config.layer_count();
  std::vector<int64_t> reads;
  bool later = false;
  for (std::string part : Split(text, '_')) {
    const bool slides = part.ends_with('s');
    if (slides) part.pop_back();
    int64_t read = part.empty() || part.size() > 4 ? layers : 0;
    for (const char c : part) read = c < '0' || c > '9' ? layers : 10 * read + (c - '0');
    const auto layer = std::ssize(reads);
    if (read >= layers || layer >= layers) {
      return reader.Fail("layer_types",
                         StrCat("a layer's number for each of ", layers,
                                " layers, joined by _, with s behind it for a sliding window"));
    }
    if (read > layer && slides) {
      return reader.Fail(
          "layer_types",
          StrCat("no sliding window of a layer that reads a later one (here layer ", layer,
                 " reads ", read, "): LCKV's code has three windows for it, as attention is made"));
    }
    later |= read > layer;
    if (slides) config.layers[static_cast<size_t>(layer)].window = window;
    reads.push_back(read);
  }
  if (later) {
    config.prompt_passes = passes;
    // It is for tests of LCKV's code, and gives a prompt other numbers than its passes do.
    reader.Neutral("use_sequential", false);
  }
  const Status shared = config.ShareCaches(reads);
  if (!shared.ok())
    reader.Fail("layer_types", StrCat("a map that can be run: ", shared.error().message));
}

void ReadLckvLlama(ConfigReader& reader, ModelConfig& config) {
  ReadLlamaParts(reader, config);
  ReadLayerMap(reader, config);
  // A token would not see itself in any layer.
  reader.Neutral("force_nodiag", false);
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Ignore({"use_sequential"});
}

}  // namespace

KVG_MODEL_FAMILY(lckv_llama, {.title = "Llama of LCKV's code",
                              .notes = "layers read the keys and values of other ones: of later "
                                       "ones, for which a prompt goes through them several times "
                                       "(LCKV), or of earlier ones (CLA, YOCO-like and other maps)",
                              .model_type = "lckv-llama",
                              .read = ReadLckvLlama})

}  // namespace kvgauge
