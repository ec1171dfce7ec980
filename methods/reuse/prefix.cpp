// SPDX-License-Identifier: Apache-2.0
// What a prompt has in common with an earlier one, from the first token on, is not read again: its
// blocks are shared until one of the two writes.
//
// Paper: RadixAttention, arXiv:2312.07104; ChunkAttention, arXiv:2402.15220. Lossless: the entries
// have the bits that reading them would give.
#include "methods/registry.h"
#include "methods/reuse.h"

namespace kvgauge {
namespace {

class ReusedPrefix final : public Reuse {
 public:
  explicit ReusedPrefix(const Params&) {}
  ReusedTexts texts() const override { return ReusedTexts::kPrefixes; }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReuse,
    .id = "prefix",
    .paper = "arXiv:2312.07104",
    .summary = "what a prompt has in common with an earlier one is not read again",
    .departures = {"prompts of one pass of the engine, up to 64 samples; a server keeps them while "
                   "it runs"},
    .bytes = "entries of earlier prompts, which are no part of the sequence",
    .make = Make<ReusedPrefix>(),
});

}  // namespace
}  // namespace kvgauge
