// SPDX-License-Identifier: Apache-2.0
// What a sequence's stages know beside its cache, as bytes and back: a saved cache has it with it.
//
// One function names the fields of a state for both directions, so that what is read is what was
// written. Bytes that are read may come from anywhere: a field says what is right, and an error
// names it. After an error the state is not to be used.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/ops.h"

namespace kvgauge {

class StateFields {
 public:
  // The bytes outlive this. Writes behind what is there, or takes from the front. `of` begins every
  // message.
  explicit StateFields(std::string* out, std::string of = kOfMethod)
      : out_(out), of_(std::move(of)) {}
  explicit StateFields(std::string_view* in, std::string of = kOfMethod)
      : in_(in), of_(std::move(of)) {}

  bool reads() const { return in_ != nullptr; }
  // One of [least, most].
  Status Number(std::string_view what, int64_t least, int64_t most, int64_t* number);
  Status Flag(std::string_view what, bool* flag);
  Status Word(std::string_view what, uint64_t* word);  // any
  Status Real(std::string_view what, double* real);    // finite
  // `count` of them, or up to `count`, each as above.
  Status Numbers(std::string_view what, int64_t count, int64_t least, int64_t most,
                 std::vector<int64_t>* numbers);
  Status UpTo(std::string_view what, int64_t count, std::vector<float>* reals);
  // The numbers of a contiguous tensor of either device, whose shape is known.
  Status Rows(std::string_view what, Ops& ops, const Tensor& rows);
  // The same of i32, each one of [0, below).
  Status IndexRows(std::string_view what, Ops& ops, int64_t below, const Tensor& rows);
  // The first `count` numbers of memory; what is read is allocated.
  Status Memory(std::string_view what, Ops& ops, DType dtype, int64_t count, Buffer* memory);
  // The same of i32, each one of [0, below).
  Status Indices(std::string_view what, Ops& ops, int64_t count, int64_t below, Buffer* memory);

 private:
  static constexpr const char* kOfMethod = "state of the method";

  Error Wrong(std::string_view what, std::string_view why) const;
  Error EndsEarly(std::string_view what, int64_t due) const;
  Status Make(std::string_view what, Ops& ops, DType dtype, int64_t count, Buffer* memory);
  Status Bytes(std::string_view what, void* bytes, int64_t size_bytes);

  std::string* out_ = nullptr;
  std::string_view* in_ = nullptr;
  std::string of_;
};

}  // namespace kvgauge
