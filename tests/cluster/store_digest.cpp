// SPDX-License-Identifier: Apache-2.0
// Prints the digest over every result column of each store named, one a line.
#include <cstdio>

#include "reports/store.h"

int main(int argc, char** argv) {
  using kvgauge::ResultStore;
  for (int i = 1; i < argc; ++i) {
    auto store = ResultStore::Open(argv[i], kvgauge::StoreMode::kReadOnly);
    if (!store.ok()) {
      std::fprintf(stderr, "%s\n", store.error().message.c_str());
      return 2;
    }
    const auto digest = (*store)->ResultDigest();
    if (!digest.ok()) {
      std::fprintf(stderr, "%s\n", digest.error().message.c_str());
      return 2;
    }
    std::printf("%s\n", digest->c_str());
  }
  return 0;
}
