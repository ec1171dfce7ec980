// SPDX-License-Identifier: Apache-2.0
// What tests of attention run on: the cpu backend with every instruction set of this machine, or
// the device they are linked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu.h"
#include "kernels/backends.h"

namespace kvgauge {

struct KvBackend {
  std::string name;
  Isa isa = Isa::kPortable;

  std::unique_ptr<AttentionOps> Attention(int threads) const {
    return Make(MakeCpuAttention, threads);
  }
  std::unique_ptr<CodecOps> Codecs() const { return Make(MakeCpuCodec, 1); }

 private:
  template <class Group>
  std::unique_ptr<Group> Make(std::unique_ptr<Group> (*make)(Isa, ThreadSettings),
                              int threads) const {
    return OnDevice() ? GroupOf<Group>(*MakeHostedDevice()) : make(isa, {threads});
  }
};

inline std::vector<KvBackend> KvBackends() {
  if (OnDevice()) return {{"device"}};
  std::vector<KvBackend> backends;
  for (const Isa isa : SupportedIsas()) backends.push_back({std::string(NameOf(isa)), isa});
  return backends;
}

// A table as it is run: whole, or on a device, which may be emulated, every `step`th row.
template <class Row>
std::vector<Row> Some(std::vector<Row> table, size_t step) {
  if (!OnDevice()) return table;
  size_t kept = 0;
  for (size_t i = 0; i < table.size(); i += step) table[kept++] = table[i];
  table.resize(kept, table[0]);
  return table;
}

}  // namespace kvgauge
