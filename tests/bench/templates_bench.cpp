// SPDX-License-Identifier: Apache-2.0
// Milliseconds of processor time that a chat template takes for a conversation of 100 kB: 199 turns
// of 500 bytes, and one turn of 100 kB. Best and median of 51.
//
//   templates_bench                  the shipped templates
//   templates_bench TEMPLATES.json   [{name, template, bos, eos}]: each of them; what takes more
//                                    than 5 ms is marked, what a template refuses is said
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/check.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/chat_template.h"

namespace kvgauge {
namespace {

constexpr int kRounds = 51;
constexpr double kMostMs = 5;

// The time of this thread: other programs on the machine do not count.
double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Conversation {
  const char* what;
  std::vector<ChatMessage> messages;
};

std::vector<Conversation> Conversations() {
  std::vector<ChatMessage> turns;
  for (int i = 0; i < 199; ++i) {
    std::string text = StrCat(i, ":");
    while (text.size() < 503) text += " lorem ipsum";
    turns.push_back({i % 2 == 0 ? "user" : "assistant", std::move(text)});
  }
  std::string whole;
  while (whole.size() < 100'000) whole += "lorem ipsum dolor ";
  return {{"199 turns", std::move(turns)}, {"one turn", {{"user", std::move(whole)}}}};
}

// The median in milliseconds; negative where the template refuses the conversation.
double Time(const ChatTemplate& chat, const std::string& name, const Conversation& conversation) {
  std::vector<double> ms;
  for (int round = 0; round < kRounds; ++round) {
    const double start = ProcessorSeconds();
    const Result<std::string> text = chat.Render(conversation.messages, true);
    ms.push_back((ProcessorSeconds() - start) * 1e3);
    if (!text.ok()) {
      std::printf("%-12s %-10s %s\n", name.c_str(), conversation.what,
                  text.error().message.c_str());
      return -1;
    }
  }
  std::sort(ms.begin(), ms.end());
  std::printf("%-12s %-10s best %.3f ms, median %.3f ms%s\n", name.c_str(), conversation.what,
              ms[0], ms[kRounds / 2], ms[kRounds / 2] > kMostMs ? "  SLOW" : "");
  return ms[kRounds / 2];
}

void TimeShipped() {
  for (const std::string& name : ChatTemplate::Names()) {
    if (name == "none") continue;
    const Result<ChatTemplate> chat = ChatTemplate::Load("/nonexistent", name);
    KVG_CHECK(chat.ok(), "a shipped template loads");
    for (const Conversation& conversation : Conversations()) Time(*chat, name, conversation);
  }
}

int TimeFile(const std::string& path) {
  const Result<Json> templates = ReadJsonFile(path);
  if (!templates.ok()) {
    std::fprintf(stderr, "%s\n", templates.error().message.c_str());
    return 2;
  }
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / StrCat("templates_bench_", getpid());
  std::filesystem::create_directories(directory);
  int timed = 0, slow = 0;
  for (const Json& entry : *templates) {
    const std::string name = entry.at("name");
    std::ofstream(directory / "tokenizer_config.json")
        << Json{{"chat_template", entry.at("template")},
                {"bos_token", entry.at("bos")},
                {"eos_token", entry.at("eos")}};
    const Result<ChatTemplate> chat = ChatTemplate::Load(directory.string(), "auto");
    if (!chat.ok()) {
      std::printf("%-12s %s\n", name.c_str(), chat.error().message.c_str());
      continue;
    }
    for (const Conversation& conversation : Conversations()) {
      const double ms = Time(*chat, name, conversation);
      timed += ms >= 0 ? 1 : 0;
      slow += ms > kMostMs ? 1 : 0;
    }
  }
  std::filesystem::remove_all(directory);
  std::printf("%d renderings timed, %d with a median above %.0f ms\n", timed, slow, kMostMs);
  return 0;
}

}  // namespace
}  // namespace kvgauge

int main(int argc, char** argv) {
  if (argc > 1) return kvgauge::TimeFile(argv[1]);
  kvgauge::TimeShipped();
  return 0;
}
