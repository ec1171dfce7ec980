// SPDX-License-Identifier: Apache-2.0
// Coordinates in which stores may keep entries: their parameters, and the matrices these stand for.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "methods/calibration.h"
#include "methods/layouts/transformed.h"
#include "methods/registry.h"

namespace kvgauge {

enum class LearnedBasis { kNo, kFromSideFile };

// key_basis, value_basis, basis_seed; for stages that also have a side-file: learned matrices.
std::vector<ParamSpec> BasisParams(LearnedBasis learned);

// The normalised Walsh-Hadamard matrix, in blocks of the largest power of two that divides `dim`,
// or of `most`, a power of two, if that is less; with `seed` the rows of each block are signed at
// random first. One copy for all who ask.
BasisChange HadamardBasis(int64_t dim, int64_t most = INT64_MAX);
BasisChange SignedHadamardBasis(int64_t dim, uint64_t seed);
// `stored` columns, a multiple of dim, in blocks of dim by dim: each block is a random orthogonal
// matrix times `scale`; the way back is 1 / (scale^2 * blocks) of it.
BasisChange RandomBasis(int64_t dim, int64_t stored, double scale, uint64_t seed);

// What the parameters of a method ask for.
class BasisChoice {
 public:
  explicit BasisChoice(const Params& params);
  bool any() const { return keys_ != "none" || values_ != "none"; }
  bool of_keys() const { return keys_ != "none"; }
  bool of_values() const { return values_ != "none"; }

  // Whether learned matrices are asked for and there, in their shapes.
  Status Check(const ModelShape& shape, const Calibration* calibration) const;
  // The layout in these coordinates; as it is where none are asked for.
  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer, Coded layout, KeyTurn turn,
                         const std::shared_ptr<const Calibration>& calibration) const;

 private:
  Result<BasisChange> Of(KvSide side, const ModelShape& shape, int64_t layer,
                         const std::shared_ptr<const Calibration>& calibration) const;

  std::string keys_, values_;
  uint64_t seed_;
};

// Learns the principal directions of each head's keys (before rotation where `raw_keys` says so)
// and values, the strongest first: tables keys.LAYER.there and values.LAYER.there, [kv_heads, dim,
// dim]. Matrices from elsewhere go into a side-file of the same form; where they are not
// orthogonal, with what undoes them, transposed, in keys.LAYER.back and values.LAYER.back.
class BasisCalibrator final : public Calibrator {
 public:
  BasisCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t> lengths);

  Needs needs(int) const override { return {.raw_keys = raw_keys_}; }
  void Observe(int pass, LayerView& view) override;
  Calibration::Tables Finish(Ops& ops) override;

 private:
  const ModelShape shape_;
  const bool raw_keys_;
  // [layers][sides] of [kv_heads, dim, dim]
  std::vector<std::array<std::vector<double>, 2>> moments_;
};

}  // namespace kvgauge
