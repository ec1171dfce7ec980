// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json and a text, parted by the first NUL byte. Loading either fails with a message or
// gives a tokenizer that encodes the text, decodes it again, and streams what it decodes.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/check.h"
#include "runner/tokenizer.h"

namespace kvgauge {
namespace {

// One directory per process: parallel fuzzers must not share it.
class TemporaryDirectory {
 public:
  TemporaryDirectory()
      : path_((std::filesystem::temp_directory_path() /
               ("kvg_fuzz_tokenizer_" + std::to_string(::getpid())))
                  .string()) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const std::string& Directory() {
  static const TemporaryDirectory directory;
  return directory.path();
}

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
  std::ofstream(Directory() + "/tokenizer.json", std::ios::binary) << file;
  const Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(Directory());
  if (tokenizer.ok()) {
    TryText(**tokenizer, text);
  } else {
    KVG_CHECK(!tokenizer.error().message.empty(), "an error says what is wrong");
  }
  return 0;
}
