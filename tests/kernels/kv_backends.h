// SPDX-License-Identifier: Apache-2.0
// What tests of attention run on: the cpu backend with every instruction set of this machine, or,
// where they are compiled for a device, that device.
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
#ifdef KVG_TEST_ON_DEVICE
    static_cast<void>(make);
    static_cast<void>(threads);
    return MakeDeviceGroup<Group>();
#else
    return make(isa, {threads});
#endif
  }
};

inline std::vector<KvBackend> KvBackends() {
#ifdef KVG_TEST_ON_DEVICE
  return {{DeviceBackendName()}};
#else
  std::vector<KvBackend> backends;
  for (const Isa isa : SupportedIsas()) backends.push_back({std::string(NameOf(isa)), isa});
  return backends;
#endif
}

// A table as it is run: whole, or on a device, which may be emulated, every `step`th row.
template <class Row>
std::vector<Row> Some(std::vector<Row> table, [[maybe_unused]] size_t step) {
#ifdef KVG_TEST_ON_DEVICE
  size_t kept = 0;
  for (size_t i = 0; i < table.size(); i += step) table[kept++] = table[i];
  table.resize(kept, table[0]);
#endif
  return table;
}

}  // namespace kvgauge
