// SPDX-License-Identifier: Apache-2.0
#include "methods/gate_scorer.h"

#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/rng.h"
#include "core/strings.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr uint64_t kSeed = 1;

// Which numbers a table has: its name, as a stream of the seed.
uint64_t StreamOf(const std::string& name) {
  uint64_t stream = 0;
  for (const char c : name) stream = stream * 131 + static_cast<unsigned char>(c);
  return stream;
}

int64_t Count(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

}  // namespace

GateTables::GateTables(const Params& params) : random_(params.Text("weights") == "random") {}

std::vector<ParamSpec> GateTables::Declare(std::vector<ParamSpec> others) {
  others.push_back(ChoiceParam("weights", "file", {"file", "random"},
                               "file: those of `calibration`; random: drawn from a fixed seed, a "
                               "floor for trained ones"));
  others.push_back(CalibrationParam());
  return others;
}

Status GateTables::Check(const Dims& dims) const {
  if (random_) {
    if (file_ == nullptr) return {};
    return BadInput(StrCat("weights is random, but calibration names ", file_->path,
                           "; leave out one of the two"));
  }
  if (file_ == nullptr) {
    return BadInput(
        "calibration names no side-file for a stage which needs trained weights; make one of "
        "published weights with `kvgauge calibrate --import`, or set weights=random for a floor");
  }
  for (const auto& [name, shape] : dims) KVG_TRY(file_->Find(name, shape));
  for (const auto& [name, table] : file_->tables) {
    if (dims.contains(name)) continue;
    return BadInput(StrCat(file_->path, ": has a table '", name,
                           "', of which this model needs none; the file is that of another model, "
                           "or of another kind"));
  }
  return {};
}

int64_t GateTables::Bytes(const Dims& dims) {
  int64_t numbers = 0;
  for (const auto& [name, shape] : dims) numbers += Count(shape);
  return 4 * numbers;
}

std::vector<float> GateTables::Read(const std::string& name,
                                    const std::vector<int64_t>& dims) const {
  const auto count = static_cast<size_t>(Count(dims));
  if (random_) {
    // Products keep the size of what goes in.
    const double size = 1 / std::sqrt(static_cast<double>(dims.back()));
    Rng rng(kSeed, StreamOf(name));
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(size * rng.NextGaussian());
    return values;
  }
  const Result<Tensor> table = file_->Find(name, dims);
  KVG_CHECK(table.ok(), "a side-file that was not checked");
  return {table->f32(), table->f32() + count};
}

Tensor GateTables::On(Ops& ops, const std::string& name, const std::vector<int64_t>& dims,
                      Buffer& memory) const {
  const int64_t count = Count(dims);
  if (!random_ && ops.device == Device::kHost) {
    const Result<Tensor> table = file_->Find(name, dims);
    KVG_CHECK(table.ok(), "a side-file that was not checked");
    return table->Reshape({count});
  }
  memory = ops.memory->Allocate(count * SizeOf(DType::kF32));
  const Tensor numbers = memory.As(DType::kF32, {count});
  ops.memory->Copy(View(Read(name, dims), {count}), numbers);
  return numbers;
}

std::string GateTables::key() const { return random_ ? "random" : file_ ? file_->digest : ""; }

void GateScorer::Score(LayerView& view, Tensor out) const {
  view.ops().rows->Convert(view.GateScores(*gate_), out);
}

void GateScorer::Age(LayerView& view, Tensor scores) const {
  const Tensor newest = view.GateScores(*gate_);  // [kv_heads, 1]
  for (int64_t h = 0; h < scores.shape[0]; ++h) {
    const int64_t n = view.lengths()[static_cast<size_t>(h)];
    view.ops().rows->Convert(newest.Slice(h, h + 1), Columns(scores.Slice(h, h + 1), n - 1, n));
  }
}

}  // namespace kvgauge
