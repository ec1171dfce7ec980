// SPDX-License-Identifier: Apache-2.0
// What GGUF files call the parts of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvgauge {

// A tensor of a layer ("blk.3.attn_q.weight") and its name in a checkpoint, both without ".weight"
// or ".bias". Where `file` has its ending, `checkpoint` is the whole name. `checkpoint` with
// "experts.#." before the last part is one tensor for each expert, whom the file stacks.
struct GgufName {
  std::string_view file, checkpoint;
  // What the lower half of each expert's rows is: the file has two matrices in one.
  std::string_view second = "";
};

struct GgufArchitecture {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // of config.json
  bool mixture = false;         // the model has experts
  // Rows of queries and keys stand in pairs that turn together, and not in halves.
  bool paired = false;
  bool norms_plus_one = false;  // stored norms are one more than the checkpoint's
  // Looked for in `layer` first.
  std::span<const GgufName> layer, more = {};
};

// Null when it is not read. Some architectures are two families, one with experts.
const GgufArchitecture* FindGgufArchitecture(std::string_view name, bool mixture);
std::vector<std::string> GgufArchitectureNames();

// What a checkpoint calls a tensor of the file.
struct GgufPlace {
  std::string name;        // with '#' for the expert where `stacked`
  std::string second;      // that of the lower half of an expert's rows; empty: `name` has all
  bool stacked = false;    // by expert
  bool paired = false;     // rows of queries or keys, in pairs
  bool plus_one = false;   // a norm that is stored one larger
  bool unrounded = false;  // decides which experts run
};
// Nothing for a tensor that this architecture does not have.
std::optional<GgufPlace> PlaceOfGgufTensor(const GgufArchitecture& architecture,
                                           std::string_view name);

// Tensors that the configuration is made from, and no checkpoint has.
bool IsGgufRopeTensor(std::string_view name);

}  // namespace kvgauge
