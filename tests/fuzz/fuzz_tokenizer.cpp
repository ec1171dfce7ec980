// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json and a text, parted by the first NUL byte. Loading either fails with a message or
// gives a tokenizer that encodes the text, decodes it again, and streams what it decodes.
#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "core/check.h"
#include "runner/tokenizer.h"
#include "support/scratch_directory.h"

namespace kvgauge {
namespace {

void TryText(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse : {false, true}) {
    const Result<std::vector<int32_t>> ids = tokenizer.Encode(text, {.parse_special = parse});
    if (!ids.ok()) {
      KVG_CHECK(!ids.error().message.empty(), "an error says what is wrong");
      continue;
    }
    for (const int32_t id : *ids) {
      KVG_CHECK(id >= 0 && id < tokenizer.VocabSize(), "an id is in the vocabulary");
    }
    TextStream stream(tokenizer, parse);
    std::string streamed;
    for (const int32_t id : *ids) streamed += stream.Push(id);
    streamed += stream.Finish();
    KVG_CHECK(streamed == tokenizer.Decode(*ids, parse), "a stream is the decoded text");
  }
}

}  // namespace
}  // namespace kvgauge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvgauge;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), input.size());
  const std::string_view file = input.substr(0, cut);
  const std::string_view text = input.substr(std::min(cut + 1, input.size()));
  static const ScratchDirectory scratch("/dev/shm");
  std::ofstream(scratch.File("tokenizer.json"), std::ios::binary) << file;
  const Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(scratch.path());
  if (tokenizer.ok()) {
    TryText(**tokenizer, text);
  } else {
    KVG_CHECK(!tokenizer.error().message.empty(), "an error says what is wrong");
  }
  return 0;
}
