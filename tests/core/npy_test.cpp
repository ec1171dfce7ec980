// SPDX-License-Identifier: Apache-2.0
#include "core/npy.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/result.h"

namespace kvgauge {
namespace {

TEST(Npy, HeaderIsAligned) {
  const std::string path = ::testing::TempDir() + "kvg_test.npy";
  Result<NpyWriter> writer = NpyWriter::Create(path, 2, 3);
  ASSERT_TRUE(writer.ok());
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  EXPECT_FALSE(writer->Finish().ok());  // rows are missing
  ASSERT_TRUE(writer->Append(values).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const std::string content = *ReadFile(path);
  const size_t header =
      10 + static_cast<uint8_t>(content[8]) + 256 * static_cast<uint8_t>(content[9]);
  EXPECT_EQ(header % 64, 0u);
  EXPECT_EQ(content.size(), header + 24);
  EXPECT_THAT(content, ::testing::HasSubstr("'shape': (2, 3)"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kvgauge
