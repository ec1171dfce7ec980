// SPDX-License-Identifier: Apache-2.0
// Milliseconds that each shipped chat template takes for a conversation of 100 kB: 199 turns of
// 500 bytes, and one turn of 100 kB. Best and median of 51.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "runner/chat_template.h"

namespace kvgauge {
namespace {

void Time(const std::string& name, const char* what, const std::vector<ChatMessage>& messages) {
  const Result<ChatTemplate> chat = ChatTemplate::Load("/nonexistent", name);
  KVG_CHECK(chat.ok(), "a shipped template loads");
  std::vector<double> ms;
  for (int round = 0; round < 51; ++round) {
    const double start = NowSeconds();
    const Result<std::string> text = chat->Render(messages, true);
    ms.push_back((NowSeconds() - start) * 1e3);
    KVG_CHECK(text.ok() && text->size() > 95'000, "the conversation is rendered");
  }
  std::sort(ms.begin(), ms.end());
  std::printf("%-12s %-10s best %.3f ms, median %.3f ms\n", name.c_str(), what, ms[0], ms[25]);
}

}  // namespace
}  // namespace kvgauge

int main() {
  using namespace kvgauge;
  std::vector<ChatMessage> turns;
  for (int i = 0; i < 199; ++i) {
    std::string text = StrCat(i, ":");
    while (text.size() < 503) text += " lorem ipsum";
    turns.push_back({i % 2 == 0 ? "user" : "assistant", std::move(text)});
  }
  std::string whole;
  while (whole.size() < 100'000) whole += "lorem ipsum dolor ";
  for (const std::string& name : ChatTemplate::Names()) {
    if (name == "none") continue;
    Time(name, "199 turns", turns);
    Time(name, "one turn", {{"user", whole}});
  }
  return 0;
}
