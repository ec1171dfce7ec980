// SPDX-License-Identifier: Apache-2.0
// plan and run on a model of two layers that sees, with drawn weights.
#pragma once

#include "cli/run_fixture.h"
#include "support/tiny_eyes.h"

namespace kvgauge {

class VisualRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    WriteTinyEyes(Path("eyes"));
  }
  // A task of the pictures that data/s/t.jsonl names.
  void WriteFileTask(const std::string& methods, const std::string& model = "eyes/config.json",
                     const std::string& keys = "") const {
    Write("t.json", R"({"name": "t/files", "version": 1, "group": "t", "description": "d",
      "metric": "accuracy", "max_new_tokens": 2, "source": {"name": "pictures",
      "file": "s/t.jsonl", "container": "jsonl", "images": "image", "image_file": "s/{image}",
      "mark": "<image>", "question": "{question}", "answers": "answer"}})");
    Write("mine.json", StrCat(R"({"models": [{"path": ")", Path(model),
                              R"(", "name": "eyes", "weights": "random:5"}], "data": ")",
                              Path("data"), R"(", "tasks": [")", Path("t.json"), R"("], )", keys,
                              R"("budgets": ["60%"], "methods": [)", methods, "]}"));
  }
  // Pages of pictures for the tiny model.
  std::string Seeing(const std::string& methods, const std::string& keys = "",
                     const std::string& source = R"("pictures": "3", "samples": 1)") const {
    return StrCat(R"({"models": [{"path": ")", Path("eyes/config.json"),
                  R"(", "name": "eyes", "weights": "random:5"}],
      "tasks": [{"task": "visual/needle", "samples": 3, "source": {)",
                  source, R"(}, "max_new_tokens": 4}],
      "budgets": ["60%"], )",
                  keys, R"("methods": [)", methods, "]}");
  }
};

}  // namespace kvgauge
