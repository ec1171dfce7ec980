// SPDX-License-Identifier: Apache-2.0
// What GGUF files call the parts of a model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/gguf/header.h"

namespace kvgauge {

// How a tensor of the file is that of the checkpoint, where the numbers are not just the same.
enum class GgufForm {
  kSame,
  kConvolution,  // [columns, width] is [columns, 1, width]
  kFlat,         // any shape is one dimension
  kRow,          // one dimension is a matrix of one row
  kLogarithm,    // x is log(-x), and a last dimension of one number goes
};

// A tensor of a layer ("blk.3.attn_q.weight") and its name in a checkpoint, both without ".weight"
// or ".bias". Where `file` has its ending, or is `whole`, `checkpoint` is the whole name.
// `checkpoint` with '#' is one tensor for each expert, or for each head, whom the file stacks;
// '@' at its begin is the architecture's `state`.
struct GgufName {
  std::string_view file, checkpoint;
  // What the lower half of each expert's rows is: the file has two matrices in one.
  std::string_view second = "";
  GgufForm form = GgufForm::kSame;
  bool whole = false;  // the file's name has no ending
};

// How a tensor of the checkpoint takes its rows from those of the file.
enum class GgufOrder {
  kStacked,  // those of one part behind those of another
  kByGroup,  // for each KV head its queries, its key and its value: of three parts, or of one that
             // has all queries, all keys and all values
  kLatent,   // for each head its keys' part, stored transposed, and its values'
  kDelta,    // for each key head its query, its key, its values and what they are gated by: of one
             // part that has all of the first three, and of one with the gates
};

// A tensor of the checkpoint that is made of one or more of the file. Empty parts are none.
struct GgufMade {
  std::string_view checkpoint;
  std::array<std::string_view, 3> parts;
  GgufOrder order;
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
  std::span<const GgufMade> made = {};
  std::span<const GgufName> top = {};  // outside layers, where Llama has other names
  std::string_view layers = "model.layers.";
  std::string_view state = "";  // what '@' is in the names of a layer's state
  // Where one name stands for several families: whether a file is of this one. Null: any is.
  bool (*fits)(const GgufHeader& header) = nullptr;
};

// Null when it is not read. The first that fits, as some architectures are several families.
const GgufArchitecture* FindGgufArchitecture(std::string_view name, bool mixture,
                                             const GgufHeader& header);
std::vector<std::string> GgufArchitectureNames();

// "blk.12.attn_q.weight": 12 and "attn_q.weight". Nothing outside of layers.
struct NumberedName {
  int64_t layer;
  std::string_view rest;
};
std::optional<NumberedName> SplitGgufLayer(std::string_view name);

// What a checkpoint calls a tensor of the file.
struct GgufPlace {
  std::string name;        // with '#' for the expert where `stacked`
  std::string second;      // that of the lower half of an expert's rows; empty: `name` has all
  bool stacked = false;    // by expert, or by head
  bool paired = false;     // rows of queries or keys, in pairs
  bool plus_one = false;   // a norm that is stored one larger
  bool unrounded = false;  // decides which experts run
  GgufForm form = GgufForm::kSame;
  const GgufMade* made = nullptr;  // `name` is made of this tensor and its other parts
  bool fused = false;              // of three tensors: `name` has attn_qkv where each is named
};
// Nothing for a tensor that this architecture does not have.
std::optional<GgufPlace> PlaceOfGgufTensor(const GgufArchitecture& architecture,
                                           std::string_view name);

// Tensors that the configuration is made from, and no checkpoint has.
bool IsGgufRopeTensor(std::string_view name);

}  // namespace kvgauge
