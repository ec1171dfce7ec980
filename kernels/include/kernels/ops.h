// SPDX-License-Identifier: Apache-2.0
// Ops: the one interface between everything above and a device.
//
// The operations come in groups, one header each. A group's public calls check shapes and dtypes
// once for every backend and hand over to the backend's private Do... functions.
//
// Rules every backend keeps:
//  - Results of a row never depend on how many rows, threads or neighbours there are: the order of
//    every sum is fixed by the shape of one row.
//  - Arithmetic is f32 at least, whatever the storage type.
//  - Inputs are never written. An output may not overlap an input unless the call says so.
//  - A broken precondition is KVG_CHECK. The one thing that is thrown is std::bad_alloc, by a
//    device that has no room for what a call needs: its output is undefined then, and the same
//    call may be made again.
//
// Ops objects are not thread-safe; one thread drives one object, which spreads work itself. Only
// the bodies of TaskOps::ForEach may call it side by side.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/threads.h"
#include "kernels/algebra.h"
#include "kernels/attention.h"
#include "kernels/kv_codec.h"
#include "kernels/linear.h"
#include "kernels/rows.h"
#include "kernels/select.h"
#include "kernels/state.h"
#include "kernels/tasks.h"
#include "kernels/tensor.h"

namespace kvgauge {

// The largest pass of a model: rows through the weights, `logit_rows` of them through the head, and
// sequences that attend.
struct PassSize {
  int64_t rows = 0, logit_rows = 0;
  int64_t widest_in = 0, widest_out = 0;  // dims of a weight, without the head
  int64_t head_in = 0, head_out = 0;
  int64_t sequences = 0, entries = 0;  // entries of the longest
  int64_t query_heads = 0, kv_heads = 0, value_dim = 0;
  // The bytes of a matrix's number, if rows are rounded as a file says (RoundedProducts); or 0.
  int64_t rounded_number_bytes = 0;
  // Matrices of a set that a row chooses, where each may round in a way of its own; and their dim.
  int64_t chosen = 0, chosen_in = 0;
  // The bytes of an entry of one KV head, if entries may lie on the host (AllocateOnHost); or 0.
  int64_t fetched_entry_bytes = 0;
};

// Work that is submitted over and over, nearly the same each time, such as a decode step. A device
// may take all of it at once.
class RepeatedWork {
 public:
  // Counts of submissions: call by call; at once after a new preparation; at once as before.
  struct Counts {
    int64_t plain = 0, recorded = 0, replayed = 0;
  };

  virtual ~RepeatedWork() = default;
  // Calls `body`, which submits work to the Ops that made this object. `body` may be called several
  // times; only the last call takes effect. An exception that `body` did not throw may leave it in
  // the middle. If `body` waits or allocates, the device cannot take the work at once; the results
  // are the same.
  virtual void Run(const std::function<void()>& body) { body(); }
  virtual Counts counts() const { return {}; }
};

class MemoryOps {
 public:
  virtual ~MemoryOps() = default;
  // Zero-filled. A device that has no room throws std::bad_alloc, whose what() says how much it
  // has.
  virtual Buffer Allocate(int64_t size_bytes) = 0;
  // The same in the host's memory, for what the device is to have no bytes of: operations take it
  // as memory of this device, at the speed of the bus between them. Decode attention fetches what
  // it reads of it beside other work. The host's own backends have one memory.
  virtual Buffer AllocateOnHost(int64_t size_bytes) { return Allocate(size_bytes); }
  // Between any two of host and this device. Precondition: equal SizeBytes, both contiguous.
  virtual void Copy(const Tensor& from, Tensor to) = 0;
  struct CopyJob {
    Tensor from, to;
  };
  // All of them, in any order; none writes what another reads or writes. A device takes many small
  // ones from the host at once.
  virtual void CopyAll(std::span<const CopyJob> jobs) {
    for (const CopyJob& job : jobs) Copy(job.from, job.to);
  }
  // Fills with 0. Precondition: contiguous.
  virtual void Clear(Tensor to) = 0;
  // Waits until everything submitted so far is done. It takes back, too.
  virtual void Synchronize() = 0;
  // Code of others has run on this thread and may have chosen another device for it. What is
  // submitted from here on goes to the devices that it belongs to. Nothing waits.
  virtual void TakeBack() {}
  // Bytes that Allocate can still provide; 0: unknown, as for host memory.
  virtual int64_t FreeBytes() const { return 0; }
  // The largest working memory that operations allocate themselves in such a pass.
  virtual int64_t ScratchBytes(const PassSize&) const { return 0; }
  // Destroyed before the objects that its work uses.
  virtual std::unique_ptr<RepeatedWork> MakeRepeatedWork() {
    return std::make_unique<RepeatedWork>();
  }
};

struct Ops {
  std::string backend;        // "cpu", "reference", "cuda"
  std::string variant;        // what runs inside, e.g. "avx512_bf16"
  std::string hardware = {};  // the name of a device; "" on the host
  Device device = Device::kHost;
  int device_number = 0;  // among those that CUDA shows to this process

  std::unique_ptr<MemoryOps> memory;
  std::unique_ptr<TaskOps> tasks;
  std::unique_ptr<LinearOps> linear;
  std::unique_ptr<RowOps> rows;
  std::unique_ptr<SelectOps> select;
  std::unique_ptr<AlgebraOps> algebra;
  std::unique_ptr<StateOps> state;
  std::unique_ptr<CodecOps> codecs;
  std::unique_ptr<AttentionOps> attention;
};

// "cpu", "cpu:ISA", "reference", "cuda" or "cuda:N": device N of those that CUDA shows, from 0;
// "cuda" is the first. A process uses one device. An unknown or absent backend is an error that
// says why.
// "cpu": the environment variable KVGAUGE_ISA (portable, avx2, avx512, avx512_bf16, amx) forces the
// instruction set; one the machine lacks is an error.
Result<std::unique_ptr<Ops>> MakeOps(const std::string& backend, ThreadSettings threads);

// A device of this machine.
struct DeviceReport {
  std::string name;         // "NVIDIA H100 80GB HBM3"
  std::string variant;      // Ops::variant of it: other variants may differ in the last bits
  int64_t total_bytes = 0;  // of memory
  std::string fault;        // why it cannot be used; empty: it can
  std::string detail;       // for people: what it is, or the fault
};
// The devices that "cuda:N" names, without beginning to use them. An error where there is none.
Result<std::vector<DeviceReport>> ListDevices();

// The backends of this machine and each of its devices, for `kvgauge doctor`.
struct BackendReport {
  std::string name;
  bool available = false;
  std::string detail;  // what was found, or why it is not available
};
std::vector<BackendReport> ListBackends();
// Instruction sets of the cpu backend that this machine can run, best last.
std::vector<std::string> AvailableIsas();

}  // namespace kvgauge
