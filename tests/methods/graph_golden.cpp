// SPDX-License-Identifier: Apache-2.0
// Graphs of keys and searches in them, against RoarGraph's algorithm in tests/golden/graphs. Their
// products are exact, so that all must be equal.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/json.h"
#include "core/strings.h"
#include "kernels/key_graph.h"
#include "runner/weights.h"

namespace kvgauge {
namespace {

const std::string kGraphs = StrCat(KVG_SOURCE_DIR, "/tests/golden/graphs/");

std::vector<std::string> GraphCases() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGraphs)) {
    names.insert(entry.path().stem().string());
  }
  return {names.begin(), names.end()};
}

class GraphGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto opened = OpenSafetensorsFile(StrCat(kGraphs, GetParam(), ".safetensors"));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    tensors_ = std::move(*opened);
    std::ifstream file(StrCat(kGraphs, GetParam(), ".json"));
    std::stringstream text;
    text << file.rdbuf();
    about_ = *ParseJson(text.str(), GetParam());
  }
  Tensor Get(const std::string& name) const { return tensors_->Get(name)->view; }
  // A list of a table of lists.
  std::vector<int32_t> List(const std::string& first, const std::string& what, int64_t i) const {
    const int32_t* ends = Get(first).i32();
    return {Get(what).i32() + ends[i], Get(what).i32() + ends[i + 1]};
  }
  KeyGraph Build() const {
    return KeyGraph::Build(Get("keys"), Get("nearest"), Get("best"),
                           {.degree = about_["degree"].get<int64_t>(),
                            .build_beam = about_["build_beam"].get<int64_t>()});
  }

  std::unique_ptr<WeightSource> tensors_;
  Json about_;
};

TEST_P(GraphGolden, LinksAreEqual) {
  const KeyGraph graph = Build();
  EXPECT_EQ(graph.entry(), about_["entry"].get<int32_t>());
  ASSERT_EQ(graph.keys(), Get("keys").shape[0]);
  for (int64_t key = 0; key < graph.keys(); ++key) {
    const auto links = graph.Links(key);
    EXPECT_EQ(std::vector<int32_t>(links.begin(), links.end()), List("first", "to", key)) << key;
  }
}

TEST_P(GraphGolden, SearchesPassSeeAndFindTheSame) {
  const KeyGraph graph = Build();
  const Tensor keys = Get("keys"), searches = Get("searches");
  KeyGraph::Walk walk;
  for (const Json& each : about_["beams"]) {
    const auto beam = each.get<int64_t>();
    const auto list = [&](const char* what, int64_t i) {
      return List(StrCat(what, "_first.", beam), StrCat(what, ".", beam), i);
    };
    for (int64_t q = 0; q < searches.shape[0]; ++q) {
      std::vector<int32_t> passed, found, seen;
      graph.Search(keys, searches[q].f32(), beam, walk, &passed);
      for (const KeyGraph::Reached& reached : walk.found()) found.push_back(reached.key);
      for (int32_t key = 0; key < static_cast<int32_t>(graph.keys()); ++key) {
        if (walk.Saw(key)) seen.push_back(key);
      }
      std::vector<int32_t> want_seen = list("seen", q);
      std::sort(want_seen.begin(), want_seen.end());
      EXPECT_EQ(passed, list("passed", q)) << beam << " " << q;
      EXPECT_EQ(found, list("found", q)) << beam << " " << q;
      EXPECT_EQ(seen, want_seen) << beam << " " << q;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GraphGolden, ::testing::ValuesIn(GraphCases()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace kvgauge
