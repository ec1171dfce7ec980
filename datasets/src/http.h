// SPDX-License-Identifier: Apache-2.0
// A POST to a JSON service, over libcurl: http and https with the system's certificates, through
// the proxies that http_proxy, https_proxy and no_proxy name. Redirects are not followed, since the
// request carries a key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct HttpUrl {
  bool secure = false;  // https
  std::string host;     // without the brackets of an IPv6 address
  std::string port;
  std::string path;  // begins with a slash

  std::string Text() const;
};
// "http[s]://host[:port][/path]"; anything else is an error that says so.
Result<HttpUrl> ParseHttpUrl(std::string_view text);

struct HttpResponse {
  int status = 0;
  std::optional<double> retry_after_s;  // where Retry-After names a time
  std::string body;
  // Why there is no response although the server was reached, such as a connection that broke; the
  // same request may succeed later. Empty: there is one.
  std::string lost;
};

inline constexpr int64_t kMaxHttpResponseBytes = int64_t{16} << 20;

// Headers must not hold line breaks. Blocks for at most `timeout_s`. An error: the server cannot be
// reached, its certificate is not trusted, or what it says is no HTTP or longer than the limit.
Result<HttpResponse> HttpPost(const HttpUrl& url,
                              const std::vector<std::pair<std::string, std::string>>& headers,
                              const std::string& body, double timeout_s);

}  // namespace kvgauge
