// SPDX-License-Identifier: Apache-2.0
// The least of HTTP/1.1 that a POST to a JSON service takes. Plain sockets: no TLS, no proxies, no
// redirects, one request per connection.
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
  std::string host;  // without the brackets of an IPv6 address
  std::string port;
  std::string path;  // begins with a slash
};
// "http://host[:port][/path]"; https and anything else is an error that says so.
Result<HttpUrl> ParseHttpUrl(std::string_view text);

struct HttpResponse {
  int status = 0;
  std::optional<double> retry_after_s;  // where Retry-After names seconds
  std::string body;
};

// From the first byte of a response to its last; what is not there yet is an error.
Result<HttpResponse> ParseHttpResponse(std::string_view bytes);

inline constexpr int64_t kMaxHttpResponseBytes = int64_t{16} << 20;

// Headers must not hold line breaks. Blocks for at most `timeout_s`, and no longer than until the
// response is whole: a server may leave the connection open.
Result<HttpResponse> HttpPost(const HttpUrl& url,
                              const std::vector<std::pair<std::string, std::string>>& headers,
                              const std::string& body, double timeout_s);

}  // namespace kvgauge
