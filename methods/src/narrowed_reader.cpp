// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/check.h"
#include "methods/narrowing_reader.h"

namespace kvgauge {
namespace {

class NarrowedReader final : public Reader {
 public:
  NarrowedReader(std::unique_ptr<Reader> read, std::unique_ptr<NarrowingReader> narrow)
      : read_(std::move(read)), narrow_(std::move(narrow)) {
    KVG_CHECK(!read_->corrects(), "what was not read is made up for, so nothing more may go");
  }

  Needs needs() const override {
    Needs both = read_->needs();
    both |= narrow_->needs();
    return both;
  }
  Status Check(const ModelShape& shape) const override {
    KVG_TRY(read_->Check(shape));
    return narrow_->Check(shape);
  }
  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    return read_->MostBytes(shape, layer, entries);
  }
  std::unique_ptr<State> Begin(LayerView& view) const override { return read_->Begin(view); }
  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    read_->Append(view, first, state);
  }
  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    if (read_->Select(view, state, q, words)) return narrow_->Narrow(view, q, words);
    // A reader may note for other layers what it lets this one read in full.
    view.ops().memory->Clear(words);
    return narrow_->NarrowAll(view, q, words);
  }
  bool ReadsFew(int64_t layer, int64_t length) const override {
    return read_->ReadsFew(layer, length);
  }
  // The other has none of its own.
  bool saves() const override { return read_->saves(); }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    return read_->Fields(view, state, fields);
  }
  bool shares_choices() const override { return read_->shares_choices(); }
  int64_t LedBy(int64_t layer) const override { return read_->LedBy(layer); }

 private:
  std::unique_ptr<Reader> read_;
  std::unique_ptr<NarrowingReader> narrow_;
};

}  // namespace

std::unique_ptr<Reader> MakeNarrowed(std::unique_ptr<Reader> read,
                                     std::unique_ptr<NarrowingReader> narrow) {
  return std::make_unique<NarrowedReader>(std::move(read), std::move(narrow));
}

}  // namespace kvgauge
