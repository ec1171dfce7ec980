// SPDX-License-Identifier: Apache-2.0
#include "src/judge_replies.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/lines.h"

namespace kvgauge {
namespace {

// Cuts off what stands behind the last newline.
Status DropTornLine(const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadFile(path));
  const size_t whole = text.rfind('\n') + 1;  // 0 without one
  if (whole == text.size()) return {};
  std::error_code error;
  std::filesystem::resize_file(path, whole, error);
  if (error) return IoError(StrCat(path, ": cannot be cut to its whole lines: ", error.message()));
  return {};
}

}  // namespace

Result<JudgeReplies> JudgeReplies::Open(const std::string& path) {
  JudgeReplies given;
  given.path_ = path;
  if (path.empty()) return given;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    KVG_TRY(DropTornLine(path));
    KVG_ASSIGN(PairLines lines, PairLines::Open(path));
    while (lines.Next()) {
      KVG_ASSIGN(const Json object, lines.Object());
      const auto text = [&](const char* key) {
        return object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                               : "";
      };
      if (text("request").empty() || !object.contains("reply") || !object["reply"].is_string()) {
        return BadInput(StrCat(lines.origin(), ": no grade that --grades wrote: \"request\" and ",
                               "\"reply\" must be texts; name a file of its own"));
      }
      given.replies_[text("request")] = text("reply");
    }
    KVG_TRY(lines.status());
  }
  given.file_.reset(std::fopen(path.c_str(), "ab"));
  if (given.file_ == nullptr) return SystemError(path, "open");
  return given;
}

const std::string* JudgeReplies::Find(const std::string& request) const {
  const auto found = replies_.find(Sha256Hex(request));
  return found == replies_.end() ? nullptr : &found->second;
}

Status JudgeReplies::Add(const std::string& request, const JudgeExchange& exchange) {
  if (file_ == nullptr) return {};
  const std::string key = Sha256Hex(request);
  const Json row = {{"request", key},          {"line", exchange.line},
                    {"judge", exchange.judge}, {"prompt", exchange.prompt},
                    {"reply", exchange.reply}, {"tokens", exchange.tokens}};
  const std::string text = row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    return SystemError(path_, "write");
  }
  replies_[key] = exchange.reply;
  return {};
}

}  // namespace kvgauge
