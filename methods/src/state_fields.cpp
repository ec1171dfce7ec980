// SPDX-License-Identifier: Apache-2.0
#include "methods/state_fields.h"

#include <cmath>
#include <cstring>

#include "core/strings.h"

namespace kvgauge {

Error StateFields::Wrong(std::string_view what, std::string_view why) const {
  return BadInput(StrCat(of_, ": ", what, " ", why));
}

Error StateFields::EndsEarly(std::string_view what, int64_t due) const {
  return Wrong(what, StrCat("ends early: ", due, " bytes were due, ", in_->size(),
                            " are left; save the cache again"));
}

Status StateFields::Bytes(std::string_view what, void* bytes, int64_t size_bytes) {
  const auto size = static_cast<size_t>(size_bytes);
  if (!reads()) {
    out_->append(static_cast<const char*>(bytes), size);
    return {};
  }
  if (in_->size() < size) return EndsEarly(what, size_bytes);
  if (size > 0) std::memcpy(bytes, in_->data(), size);
  in_->remove_prefix(size);
  return {};
}

// What is read may claim any size.
Status StateFields::Make(std::string_view what, Ops& ops, DType dtype, int64_t count,
                         Buffer* memory) {
  if (!reads()) return {};
  const int64_t size_bytes = count * SizeOf(dtype);
  if (size_bytes > std::ssize(*in_)) return EndsEarly(what, size_bytes);
  *memory = count > 0 ? ops.memory->Allocate(size_bytes) : Buffer();
  return {};
}

Status StateFields::Number(std::string_view what, int64_t least, int64_t most, int64_t* number) {
  KVG_TRY(Bytes(what, number, sizeof(*number)));
  if (!reads() || (*number >= least && *number <= most)) return {};
  if (least > most) {
    return Wrong(what, StrCat("is ", *number, "; no number would be right behind those before it"));
  }
  return Wrong(what, StrCat("is ", *number, "; expected ", least, " .. ", most));
}

Status StateFields::Flag(std::string_view what, bool* flag) {
  int64_t number = *flag ? 1 : 0;
  KVG_TRY(Number(what, 0, 1, &number));
  *flag = number != 0;
  return {};
}

Status StateFields::Word(std::string_view what, uint64_t* word) {
  return Bytes(what, word, sizeof(*word));
}

Status StateFields::Real(std::string_view what, double* real) {
  KVG_TRY(Bytes(what, real, sizeof(*real)));
  if (!reads() || std::isfinite(*real)) return {};
  return Wrong(what, StrCat("is ", *real, "; expected a finite number"));
}

Status StateFields::Numbers(std::string_view what, int64_t count, int64_t least, int64_t most,
                            std::vector<int64_t>* numbers) {
  if (reads()) numbers->assign(static_cast<size_t>(count), 0);
  KVG_CHECK(std::ssize(*numbers) == count, "as many as are written");
  for (int64_t& number : *numbers) KVG_TRY(Number(what, least, most, &number));
  return {};
}

Status StateFields::UpTo(std::string_view what, int64_t count, std::vector<float>* reals) {
  int64_t size = std::ssize(*reals);
  KVG_TRY(Number(what, 0, count, &size));
  if (reads()) reals->assign(static_cast<size_t>(size), 0);
  KVG_TRY(Bytes(what, reals->data(), size * static_cast<int64_t>(sizeof(float))));
  for (const float real : *reals) {
    if (reads() && !std::isfinite(real)) {
      return Wrong(what, StrCat("has ", real, "; expected finite numbers"));
    }
  }
  return {};
}

Status StateFields::Rows(std::string_view what, Ops& ops, const Tensor& rows) {
  if (rows.Numel() == 0) return {};
  KVG_CHECK(rows.IsContiguous(), "rows of a state lie side by side");
  std::vector<char> host(static_cast<size_t>(rows.SizeBytes()));
  Tensor copy = rows;
  copy.data = host.data();
  copy.device = Device::kHost;
  if (!reads()) ops.memory->Copy(rows, copy);
  KVG_TRY(Bytes(what, host.data(), rows.SizeBytes()));
  if (!reads()) return {};
  ops.memory->Copy(copy, rows);
  ops.memory->Synchronize();
  return {};
}

Status StateFields::IndexRows(std::string_view what, Ops& ops, int64_t below, const Tensor& rows) {
  KVG_TRY(Rows(what, ops, rows));
  if (!reads() || rows.Numel() == 0) return {};
  std::vector<int32_t> host(static_cast<size_t>(rows.Numel()));
  ops.memory->Copy(rows, View(host, {rows.Numel()}));
  for (const int32_t index : host) {
    if (index >= 0 && index < below) continue;
    if (below <= 0) return Wrong(what, StrCat("has ", index, "; expected none"));
    return Wrong(what, StrCat("has ", index, "; expected 0 .. ", below - 1));
  }
  return {};
}

Status StateFields::Memory(std::string_view what, Ops& ops, DType dtype, int64_t count,
                           Buffer* memory) {
  KVG_TRY(Make(what, ops, dtype, count, memory));
  return count > 0 ? Rows(what, ops, memory->As(dtype, {count})) : Status();
}

Status StateFields::Indices(std::string_view what, Ops& ops, int64_t count, int64_t below,
                            Buffer* memory) {
  KVG_TRY(Make(what, ops, DType::kI32, count, memory));
  return count > 0 ? IndexRows(what, ops, below, memory->As(DType::kI32, {count})) : Status();
}

}  // namespace kvgauge
