// SPDX-License-Identifier: Apache-2.0
// Block Transformer (arXiv:2406.02657). Its authors publish weights beside the settings of their
// training: scripts/import_block_transformer makes a directory of both, and these keys are its own.
#include <string>

#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostBlockRows = 64;

// The rows that the second decoder has of a block lie in one page of a cache.
BlockConfig ReadBlockConfig(ConfigReader& reader, const ModelConfig& config) {
  BlockConfig blocks;
  blocks.tokens = reader.Int("block_length", std::nullopt, 2, kMostBlockRows);
  blocks.given_rows = reader.Int("expansion_ratio", std::nullopt, 1, kMostBlockRows);
  if (blocks.rows() > kMostBlockRows) {
    reader.Fail("expansion_ratio", StrCat("at most ", kMostBlockRows + 1 - blocks.tokens,
                                          " with a block_length of ", blocks.tokens));
  }
  blocks.embedding_columns = reader.Int("embedder_hidden_size", std::nullopt, 1, kMostHidden);
  const std::string method = reader.Text("projection_method", "concat");
  blocks.projects = method == "projection_layer";
  if (!blocks.projects && method != "concat") {
    reader.Fail("projection_method", "concat or projection_layer");
  }
  if (!blocks.projects && blocks.embedding_columns * blocks.tokens != config.hidden_size) {
    reader.Fail("embedder_hidden_size",
                StrCat("hidden_size (", config.hidden_size, ") divided by block_length (",
                       blocks.tokens, "), as a block's embeddings are its row"));
  }
  return blocks;
}

void ReadBlockTransformer(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = GptNeoxNames();
  config.tensor_names.body = "token_decoder.gpt_neox.";
  config.tensor_names.head = "token_decoder.embed_out";
  ReadSizes(reader, SizeKeys{.layers = "block_decoder_layers"}, 2048, config);
  config.ffn_size = reader.Int("intermediate_size", std::nullopt, 1, kMostFfn);
  ReadGptNeoxParts(reader, config);
  const int64_t layers = reader.Int("token_decoder_layers", std::nullopt, 1, kMostLayers);
  config.layers.insert(config.layers.end(), static_cast<size_t>(layers), {.in_block = true});
  config.blocks = ReadBlockConfig(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(
    block_transformer,
    {.title = "Block Transformer",
     .notes = "one decoder reads blocks of tokens and has the cache, another one reads "
              "the tokens of a block; directories of scripts/import_block_transformer; method "
              "full alone",
     .read = ReadBlockTransformer})

}  // namespace kvgauge
