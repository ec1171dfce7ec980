// SPDX-License-Identifier: Apache-2.0
// What the parts of ResultStore share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reports/store.h"
#include "src/sqlite.h"
#include "src/writer_lock.h"

namespace kvgauge {

// "[1,2.5]"; "" is none. `path` begins the message.
Result<std::vector<double>> ParseNumbers(const std::string& path, const std::string& text);

class ResultStore::Impl {
 public:
  Impl(std::string file, std::unique_ptr<WriterLock> held, Database database, bool for_writing)
      : path(std::move(file)),
        lock(std::move(held)),
        writes(for_writing),
        db(std::move(database)) {}

  // A prepared statement, rewound when the borrower is done. One borrower at a time for one text.
  class Borrowed {
   public:
    explicit Borrowed(Statement* statement) : statement_(statement) {}
    Borrowed(Borrowed&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)) {}
    Borrowed& operator=(Borrowed&&) = delete;
    ~Borrowed() {
      if (statement_) statement_->Reset();
    }
    Statement& operator*() const { return *statement_; }
    Statement* operator->() const { return statement_; }

   private:
    Statement* statement_;
  };
  // `sql` is a constant: statements are kept by its address.
  Result<Borrowed> Cached(const char* sql);

  Status Writable() const;
  // Inside the caller's transaction.
  Result<int64_t> PutRun(const RunRow& run);
  Result<int64_t> PutModel(const ModelRow& model);
  Result<int64_t> PutMethod(const MethodRow& method);
  Result<int64_t> PutCell(const CellRow& cell);
  // Gives whether it is new.
  Result<bool> PutCapacity(int64_t run, const CapacityRow& row);
  Result<bool> PutSpeculation(int64_t run, const SpeculationRow& row);
  Result<WriteOutcome> PutSample(const SampleRow& sample);
  Status PutLatency(int64_t cell, int64_t run, std::optional<int64_t> sample,
                    const LatencyRow& row);
  Result<std::optional<SampleRow>> ReadSample(int64_t cell, const std::string& sample_id);
  Status ReadAnswers(int64_t sample, SampleRow& row);
  Status ReadLayers(int64_t sample, SampleRow& row);
  Status ReadModalities(int64_t sample, SampleRow& row);
  Status ReadMemory(int64_t sample, SampleRow& row);
  Result<int64_t> PutSight(const SightRow& sight);
  Result<std::shared_ptr<const SightRow>> ReadSight(int64_t id);

  std::string path;
  std::unique_ptr<WriterLock> lock;  // null: read-only, or shared
  bool writes;
  Database db;
  std::map<const char*, Statement> statements;
};

}  // namespace kvgauge
