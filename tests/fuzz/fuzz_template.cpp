// SPDX-License-Identifier: Apache-2.0
// A chat template. Reading it fails with a message or gives a template, and running that within
// small limits fails with a message or gives a well-formed text; the same text each time.
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "core/strings.h"
#include "src/text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvgauge;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const Result<jinja::Template> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) {
    KVG_CHECK(!parsed.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  const jinja::Inputs inputs = {
      .messages = {{"system", " S\xc3\xa9 "}, {"user", " Hi <b>\n"}, {"assistant", "Yo"}},
      .values = {{"add_generation_prompt", "true"},
                 {"bos_token", "\"<s>\""},
                 {"tools", "[{\"name\": \"f\", \"n\": 1.5, \"l\": [null, true]}]"}}};
  const jinja::Limits limits = {
      .steps = 200'000, .memory_bytes = int64_t{1} << 24, .output_bytes = int64_t{1} << 20};
  const Result<std::string> text = parsed->Render(inputs, limits);
  const Result<std::string> again = parsed->Render(inputs, limits);
  KVG_CHECK(text.ok() == again.ok(), "a rendering does not depend on the one before it");
  if (!text.ok()) {
    KVG_CHECK(text.error().message == again.error().message, "nor does what is wrong with it");
    KVG_CHECK(!text.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  KVG_CHECK(*text == *again, "a rendering does not depend on the one before it");
  KVG_CHECK(FindInvalidUtf8(*text) == std::string_view::npos, "what is rendered is UTF-8");
  return 0;
}
