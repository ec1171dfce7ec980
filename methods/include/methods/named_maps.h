// SPDX-License-Identifier: Apache-2.0
// Norms and linear maps of a small trained network, by the names that torch gives their tables.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "methods/gate_scorer.h"

namespace kvgauge {

// Copies of a side-file's tables on one device. One thread.
class NamedMaps {
 public:
  // Tables of two dims are maps, all others are the vectors of norms and the shifts of maps.
  NamedMaps(const GateTables& tables, const GateTables::Dims& dims, Ops& ops);

  // LayerNorm with torch's epsilon; out may be x.
  void Norm(const std::string& name, const Tensor& x, const Tensor& out) const;
  // With its shift, where it has one.
  void Map(const std::string& name, const Tensor& x, MatMulMode mode, const Tensor& out) const;
  void MapGelu(const std::string& name, const Tensor& x, const Tensor& out) const;

 private:
  struct Vector {
    Buffer memory;
    int64_t count = 0;
  };
  Tensor Of(const std::string& name) const;

  Ops& ops_;
  std::map<std::string, std::unique_ptr<PackedMatrix>> maps_;
  std::map<std::string, Vector> vectors_;
};

// Those tables of a checkpoint whose names begin so, without the beginning; an error if there are
// none.
Result<Calibration::Tables> TablesUnder(std::string_view beginning,
                                        const Calibration::Tables& published);

}  // namespace kvgauge
