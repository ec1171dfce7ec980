// SPDX-License-Identifier: Apache-2.0
// What every command that records writes alike: names of runs, models and methods.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "core/result.h"
#include "methods/method.h"
#include "methods/model_shape.h"
#include "reports/store.h"
#include "reports/store_rows.h"
#include "runner/config.h"

namespace kvgauge {

// Unique among all runs anywhere.
std::string RandomKey();

ModelRow ModelRowOf(const std::string& name, const std::string& fingerprint,
                    const ModelShape& shape, const ModelConfig& config, DType dtype);
// `variant`: what differs from the method's file.
MethodRow MethodRowOf(const Method& method, const std::string& variant);

// Whether two identities of rows (reports/store_rows.h) differ in nothing but the values of these
// keys.
bool AreAlikeBut(const std::string& a, const std::string& b,
                 std::initializer_list<const char*> keys);

// The store of a bench's --db, made with its directory where it is not there.
Result<std::unique_ptr<ResultStore>> OpenForRecording(const std::string& path);
// Says that the run is done, or by which signal it was stopped. `what`: of the bench.
Status EndRecording(ResultStore& store, int64_t run, int signal, const std::string& what);

}  // namespace kvgauge
