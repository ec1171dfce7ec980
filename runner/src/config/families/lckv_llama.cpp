// SPDX-License-Identifier: Apache-2.0
// Llama whose layers read the keys and values of earlier layers: the maps of LCKV's code (CLA, the
// upper half of YOCO, and what the study of cross-layer sharing trained), as long as no layer reads
// a later one.
#include <string>
#include <vector>

#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// "0_0_2_2": for each layer the layer whose keys and values it reads; an s behind the number makes
// its attention a sliding window.
void ReadLayerMap(ConfigReader& reader, ModelConfig& config) {
  const std::string text = reader.Text("layer_types", "");
  const int64_t window = ReadWindow(reader, "sliding_window", 4096);
  if (text.empty() || !reader.ok()) return;
  const auto layers = config.layer_count();
  std::vector<int64_t> reads;
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
    if (read > layer) {
      return reader.Fail("layer_types",
                         StrCat("no layer that reads a later one (here layer ", layer, " reads ",
                                read, "): such a prompt needs several passes, which are not run"));
    }
    if (slides) config.layers[static_cast<size_t>(layer)].window = window;
    reads.push_back(read);
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
  // How layers that read later ones are run and trained.
  reader.Ignore({"forward_passes", "backward_passes", "use_sequential"});
}

}  // namespace

KVG_MODEL_FAMILY(lckv_llama, {.title = "Llama of LCKV's code",
                              .notes = "layers read the keys and values of earlier ones (CLA, "
                                       "YOCO-like and other maps); not of later ones",
                              .model_type = "lckv-llama",
                              .read = ReadLckvLlama})

}  // namespace kvgauge
