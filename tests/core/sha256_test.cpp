// SPDX-License-Identifier: Apache-2.0
#include "core/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace kvgauge {
namespace {

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 pieces;
  const std::string million(1000, 'a');
  for (int i = 0; i < 1000; ++i) pieces.Update(million.data(), million.size());
  EXPECT_EQ(pieces.Finish(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Texts of all lengths around the edges of blocks, whole and in pieces.
TEST(Sha256, InstructionsGiveWhatPlainCodeGives) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    Sha256 fast, plain(Sha256::By::kPlainCode);
    fast.Update(text.data(), text.size());
    for (size_t at = 0; at < text.size(); at += 37) {
      plain.Update(text.data() + at, std::min<size_t>(37, text.size() - at));
    }
    EXPECT_EQ(fast.Finish(), plain.Finish()) << i;
    text += static_cast<char>(i * 89 + 7);
  }
}

}  // namespace
}  // namespace kvgauge
