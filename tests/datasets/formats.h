// SPDX-License-Identifier: Apache-2.0
// Shipped tasks over files that a test writes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "datasets/metric.h"
#include "datasets/sample_stream.h"
#include "datasets/task.h"

namespace kvgauge {

class Formats : public ::testing::Test {
 protected:
  Formats()
      : directory_(std::filesystem::path(::testing::TempDir()) /
                   StrCat("formats_", getpid(), "_",
                          ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~Formats() override { std::filesystem::remove_all(directory_); }

  // The samples of a shipped task whose one file holds `content`.
  Result<std::vector<Sample>> Open(const std::string& name, const std::string& content,
                                   TaskOptions options = {}) {
    const Result<Task> task = ReadTask(StrCat(KVG_SOURCE_DIR, "/configs/tasks/", name, ".json"));
    if (!task.ok()) return task.error();
    task_ = *task;
    const std::filesystem::path path = directory_ / task->source_params.Text("file");
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    options.data_directory = directory_.string();
    return ReadAll(*task, options);
  }
  Sample One(const std::string& name, const std::string& content, TaskOptions options = {}) {
    const Result<std::vector<Sample>> samples = Open(name, content, options);
    EXPECT_TRUE(samples.ok()) << (samples.ok() ? "" : samples.error().message);
    return samples.ok() && !samples->empty() ? samples->at(0) : Sample();
  }
  MetricInput Input(const Question& question, const std::string& output) const {
    return {.prediction = PostProcess(task_.post, CutAtStop(task_.stop, output)),
            .answers = question.answers,
            .all_classes = question.all_classes,
            .kind = question.kind};
  }
  // What the task makes of an output to a question.
  double Score(const Sample& sample, const std::string& output, size_t question = 0) const {
    const MetricSpec* metric = FindMetric(task_.metric);
    EXPECT_NE(metric, nullptr) << task_.metric;
    const Result<double> score = metric->score(Input(sample.questions.at(question), output));
    EXPECT_TRUE(score.ok()) << (score.ok() ? "" : score.error().message);
    return score.ok() ? *score : -1;
  }

  std::filesystem::path directory_;
  Task task_;
};

}  // namespace kvgauge
