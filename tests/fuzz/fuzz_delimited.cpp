// SPDX-License-Identifier: Apache-2.0
// Tables of any bytes: a row has a cell for each column, a place lies within the file, a fault
// names row and column, and the same bytes give the same rows and pictures. The first byte chooses
// the separator and which columns are located.
#include <fstream>
#include <string>

#include "core/check.h"
#include "core/strings.h"
#include "src/delimited.h"
#include "src/picture_source.h"
#include "support/scratch_directory.h"

namespace {

std::string ReadAll(const std::string& path, uint8_t choice, int64_t file_bytes) {
  using namespace kvgauge;  // NOLINT(google-build-using-namespace)
  constexpr int64_t kMostCellBytes = 300;
  const std::vector<std::string> located =
      (choice & 2) != 0 ? std::vector<std::string>{"a", "image"} : std::vector<std::string>{};
  const auto reader =
      DelimitedReader::Open(path, (choice & 1) != 0 ? ',' : '\t', located, kMostCellBytes);
  if (!reader.ok()) return reader.error().message;
  std::string seen = Join((*reader)->columns(), "|");
  while (true) {
    const auto row = (*reader)->Next();
    if (!row.ok()) {
      const std::string& message = row.error().message;
      KVG_CHECK(message.starts_with(path + ": row "), "a fault names its row");
      KVG_CHECK(message.find(": column ") != std::string::npos, "and its column");
      seen += message;
      if ((*reader)->broken()) return seen;
      continue;
    }
    if (!*row) return seen;
    KVG_CHECK((**row).size() == (*reader)->columns().size(), "a cell for each column");
    for (const Cell& cell : **row) {
      KVG_CHECK(FindInvalidUtf8(cell.text) == std::string::npos, "texts are UTF-8");
      KVG_CHECK(static_cast<int64_t>(cell.text.size()) <= kMostCellBytes, "cells are bounded");
      seen += "|" + cell.text;
      if (!cell.place) continue;
      KVG_CHECK(cell.place->at >= 0 && cell.place->bytes > 0 &&
                    cell.place->at + cell.place->bytes <= file_bytes,
                "a place lies within the file");
      const auto pictures = PicturesOfCell(path, *cell.place, "cell");
      seen += pictures.ok() ? "" : pictures.error().message;
      if (!pictures.ok()) continue;
      KVG_CHECK(!pictures->empty(), "a cell with a place has pictures or a fault");
      for (const Picture& picture : *pictures) {
        const auto bytes = picture.load();
        KVG_CHECK(bytes.ok() && !bytes->empty(), "what was hashed is read again");
        seen += picture.hash;
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kvgauge::ScratchDirectory scratch("/dev/shm");
  const std::string path = scratch.File("x.tsv");
  if (size == 0) return 0;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data + 1), static_cast<std::streamsize>(size - 1));
  const auto bytes = static_cast<int64_t>(size - 1);
  KVG_CHECK(ReadAll(path, data[0], bytes) == ReadAll(path, data[0], bytes),
            "reading is a function of the bytes");
  return 0;
}
