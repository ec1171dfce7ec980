// SPDX-License-Identifier: Apache-2.0
#include "core/result.h"

#include "core/strings.h"

namespace kvgauge {

Error Error::Wrap(std::string_view context) const { return {code, StrCat(context, ": ", message)}; }

}  // namespace kvgauge
