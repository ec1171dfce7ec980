// SPDX-License-Identifier: Apache-2.0
#include "src/run/passages.h"

#include <gmock/gmock.h>

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PassagesTest, FindsLinesThatBeginOne) {
  EXPECT_THAT(FindPassages("Read.\nPassage 1:\nA\n\nPassage 12:\nB"), ElementsAre(6, 20));
  EXPECT_THAT(FindPassages("Paragraph 1: a\nParagraph 2: b"), ElementsAre(0, 15));
  EXPECT_THAT(FindPassages("Document [1](Title: T) x\nDocument 2:\n"), ElementsAre(0, 25));
}

TEST(PassagesTest, LeavesOtherLinesAlone) {
  EXPECT_THAT(FindPassages(""), IsEmpty());
  EXPECT_THAT(FindPassages("See Passage 1: there\nPassage one:\nPassage 3 says\nDocument [4\n"),
              IsEmpty());
  EXPECT_THAT(FindPassages("Passage "), IsEmpty());
}

}  // namespace
}  // namespace kvgauge
