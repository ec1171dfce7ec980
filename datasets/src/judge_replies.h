// SPDX-License-Identifier: Apache-2.0
// What a judge was asked and replied, in a file of JSON lines which grows by one as soon as one
// comes: whatever ends the command, the next one asks for the rest. One process at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "core/result.h"

namespace kvgauge {

// A line of the file, for its readers; the program itself needs the request's hash and the reply.
struct JudgeExchange {
  std::string judge;
  int64_t line = 0;  // of the file of pairs
  std::string prompt, reply;
  int64_t tokens = 0;
};

class JudgeReplies {
 public:
  // "": no file, nothing is found and nothing kept. A last line that a crash cut short is dropped.
  static Result<JudgeReplies> Open(const std::string& path);

  // The reply to this request, null where it was never given. A request is what was sent and to
  // which model: another answer, question or judge is another request.
  const std::string* Find(const std::string& request) const;
  Status Add(const std::string& request, const JudgeExchange& exchange);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::map<std::string, std::string> replies_;  // by the request's hash
};

}  // namespace kvgauge
