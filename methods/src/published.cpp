// SPDX-License-Identifier: Apache-2.0
#include "methods/method.h"

namespace kvgauge {

std::string_view NameOf(PublishedNumber::What what) {
  switch (what) {
    case PublishedNumber::What::kDecodeTimes:
      return "decode_times";
    case PublishedNumber::What::kCacheTimes:
      return "cache_times";
    case PublishedNumber::What::kPeakTimes:
      return "peak_times";
    case PublishedNumber::What::kEntryBytes:
      return "entry_bytes";
  }
  return "";
}

std::string_view Describe(PublishedNumber::What what) {
  switch (what) {
    case PublishedNumber::What::kDecodeTimes:
      return "full / its time a token";
    case PublishedNumber::What::kCacheTimes:
      return "full / its resident bytes";
    case PublishedNumber::What::kPeakTimes:
      return "full / its peak, with weights";
    case PublishedNumber::What::kEntryBytes:
      return "bytes a token and layer";
  }
  return "";
}

}  // namespace kvgauge
