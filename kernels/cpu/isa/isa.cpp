// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "core/strings.h"
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kvgauge {
namespace {

struct IsaRow {
  Isa isa;
  std::string_view name;
};
constexpr std::array<IsaRow, 5> kIsas = {{{Isa::kPortable, "portable"},
                                          {Isa::kAvx2, "avx2"},
                                          {Isa::kAvx512, "avx512"},
                                          {Isa::kAvx512Bf16, "avx512_bf16"},
                                          {Isa::kAmx, "amx"}}};

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers Cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool Bit(unsigned word, int bit) { return (word >> bit) & 1u; }

uint64_t EnabledStates() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Tile data is off per process until the kernel is asked for it, once.
bool RequestTilePermission() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}

std::vector<Isa> Detect() {
  std::vector<Isa> found = {Isa::kPortable};
  const Registers leaf1 = Cpuid(1, 0), leaf7 = Cpuid(7, 0), leaf7_1 = Cpuid(7, 1);
  const bool os_saves_state = Bit(leaf1.ecx, 27);
  const uint64_t states = os_saves_state ? EnabledStates() : 0;
  const bool ymm = (states & 0x6) == 0x6, zmm = (states & 0xe6) == 0xe6;
  const bool tiles = (states & 0x60000) == 0x60000;

  const bool fma = Bit(leaf1.ecx, 12), f16c = Bit(leaf1.ecx, 29);
  if (!(ymm && fma && f16c && Bit(leaf7.ebx, 5) && Bit(leaf7.ebx, 8))) return found;
  found.push_back(Isa::kAvx2);
  const bool f = Bit(leaf7.ebx, 16), dq = Bit(leaf7.ebx, 17), bw = Bit(leaf7.ebx, 30),
             vl = Bit(leaf7.ebx, 31);
  if (!(zmm && f && dq && bw && vl)) return found;
  found.push_back(Isa::kAvx512);
  const bool bf16 = Bit(leaf7_1.eax, 5), vnni = Bit(leaf7.ecx, 11);
  if (!(bf16 && vnni)) return found;
  found.push_back(Isa::kAvx512Bf16);
  const bool amx_tile = Bit(leaf7.edx, 24), amx_bf16 = Bit(leaf7.edx, 22);
  if (tiles && amx_tile && amx_bf16 && RequestTilePermission()) found.push_back(Isa::kAmx);
  return found;
}

#else

std::vector<Isa> Detect() { return {Isa::kPortable}; }

#endif

}  // namespace

std::string_view NameOf(Isa isa) { return kIsas[static_cast<size_t>(isa)].name; }

const std::vector<Isa>& SupportedIsas() {
  static const std::vector<Isa> supported = Detect();
  return supported;
}

Result<Isa> ChooseIsa(std::string_view wanted) {
  const std::vector<Isa>& supported = SupportedIsas();
  if (wanted.empty()) return supported.back();
  std::vector<std::string> names;
  for (const Isa isa : supported) {
    if (NameOf(isa) == wanted) return isa;
    names.emplace_back(NameOf(isa));
  }
  return BadInput(StrCat("instruction set ", Quoted(wanted), " is not available here",
                         DidYouMean(wanted, names), "; this machine runs ", Join(names, ", ")));
}

}  // namespace kvgauge
