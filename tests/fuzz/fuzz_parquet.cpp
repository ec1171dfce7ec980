// SPDX-License-Identifier: Apache-2.0
// Any bytes are rows within the limits or one error that names the file; the same bytes give the
// same rows.
#include <fstream>
#include <string>

#include "core/check.h"
#include "src/parquet/reader.h"
#include "support/scratch_directory.h"

namespace {

constexpr int64_t kMostRows = 10000;  // a row of nulls needs no bytes at all

std::string ReadAll(const std::string& path) {
  using kvgauge::parquet::Reader;
  const auto reader =
      Reader::Open(path, {.footer_bytes = 1 << 20, .page_bytes = 1 << 18, .row_bytes = 1 << 18});
  if (!reader.ok()) return reader.error().message;
  std::string seen;
  for (int64_t rows = 0; rows < kMostRows; ++rows) {
    const auto row = (*reader)->Next();
    if (!row.ok()) {
      KVG_CHECK(row.error().message.starts_with(path), "a message without its file");
      KVG_CHECK((*reader)->Next().ok(), "an error ends the file");
      return seen + row.error().message;
    }
    if (!row->has_value()) {
      KVG_CHECK(rows == (*reader)->rows(), "as many rows as the file says");
      return seen;
    }
    KVG_CHECK((*row)->is_object(), "a row is an object");
    if (seen.size() < 1 << 20) seen += (*row)->dump();
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kvgauge::ScratchDirectory scratch("/dev/shm");
  const std::string path = scratch.File("x.parquet");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  KVG_CHECK(ReadAll(path) == ReadAll(path), "reading is a function of the bytes");
  return 0;
}
