// SPDX-License-Identifier: Apache-2.0
#include "src/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "core/strings.h"

namespace kvgauge {
namespace {

struct FreeCurl {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

struct Received {
  std::string bytes;
  bool too_long = false;
};

size_t Receive(char* data, size_t size, size_t count, void* to) {
  auto& received = *static_cast<Received*>(to);
  received.too_long =
      received.bytes.size() + size * count > static_cast<size_t>(kMaxHttpResponseBytes);
  if (received.too_long) return 0;  // ends the transfer
  received.bytes.append(data, size * count);
  return size * count;
}

// The server was there: another attempt may do better.
bool IsPassing(CURLcode code) {
  constexpr std::array kPassing = {CURLE_OPERATION_TIMEDOUT, CURLE_SEND_ERROR, CURLE_RECV_ERROR,
                                   CURLE_PARTIAL_FILE};
  return std::find(kPassing.begin(), kPassing.end(), code) != kPassing.end();
}

std::string Reason(CURLcode code, const char* detail, const Received& received, double timeout_s) {
  std::string said = *detail != 0 ? detail : curl_easy_strerror(code);
  if (received.too_long) {
    return StrCat("the answer is longer than ", HumanBytes(kMaxHttpResponseBytes));
  }
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return StrCat("no answer in ", timeout_s, " s");
    case CURLE_PARTIAL_FILE:
      return StrCat("the answer is cut short: ", said);
    case CURLE_GOT_NOTHING:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
      return StrCat("not an HTTP answer: ", said);
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
      return StrCat("no TLS connection: ", said);
    default:
      return said;
  }
}

}  // namespace

std::string HttpUrl::Text() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return StrCat(secure ? "https://" : "http://", is_v6 ? "[" : "", host, is_v6 ? "]" : "", ":",
                port, path);
}

Result<HttpUrl> ParseHttpUrl(std::string_view text) {
  const auto bad = [&] {
    return BadInput(StrCat(Quoted(text), ": expected http[s]://HOST[:PORT][/PATH]"));
  };
  const bool clean =
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
  HttpUrl url;
  url.secure = text.starts_with("https://");
  if (!clean || (!url.secure && !text.starts_with("http://"))) return bad();
  std::string_view rest = text.substr(text.find("//") + 2);
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.path = slash == rest.size() ? "/" : std::string(rest.substr(slash));
  rest = rest.substr(0, slash);
  if (rest.find('@') != std::string_view::npos) return bad();
  url.port = url.secure ? "443" : "80";
  size_t colon = rest.rfind(':');
  if (rest.starts_with('[')) {
    const size_t close = rest.find(']');
    if (close == std::string_view::npos) return bad();
    url.host = rest.substr(1, close - 1);
    colon = close + 1 < rest.size() ? close + 1 : std::string_view::npos;
    if (colon != std::string_view::npos && rest[colon] != ':') return bad();
  } else {
    url.host = rest.substr(0, colon);
  }
  if (colon != std::string_view::npos) {
    url.port = rest.substr(colon + 1);
    uint16_t number = 0;
    const char* end = url.port.data() + url.port.size();
    const auto [at, error] = std::from_chars(url.port.data(), end, number);
    if (error != std::errc() || at != end || number == 0) return bad();
  }
  if (url.host.empty()) return bad();
  return url;
}

Result<HttpResponse> HttpPost(const HttpUrl& url,
                              const std::vector<std::pair<std::string, std::string>>& headers,
                              const std::string& body, double timeout_s) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, FreeCurl> handle(ready == CURLE_OK ? curl_easy_init() : nullptr);
  if (handle == nullptr) return IoError("libcurl does not start");
  // Without it a long request waits for the server to agree.
  std::unique_ptr<curl_slist, FreeCurl> lines(curl_slist_append(nullptr, "Expect:"));
  for (const auto& [name, value] : headers) {
    if (value.find_first_of("\r\n") != std::string::npos) {
      return BadInput(StrCat("the value of ", name, " holds a line break"));
    }
    curl_slist* longer = curl_slist_append(lines.get(), StrCat(name, ": ", value).c_str());
    if (longer == nullptr) return ResourceError("out of memory");
    static_cast<void>(lines.release());  // `longer` begins with it
    lines.reset(longer);
  }
  const std::string text = url.Text();
  Received received;
  std::array<char, CURL_ERROR_SIZE> detail = {};
  CURL* curl = handle.get();
  curl_easy_setopt(curl, CURLOPT_URL, text.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, lines.get());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Receive);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &received);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_s * 1000) + 1);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail.data());
  // The library's own programs read it, libcurl does not.
  if (const char* trusted = std::getenv("SSL_CERT_FILE")) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, trusted);
  }
  const CURLcode code = curl_easy_perform(curl);
  const std::string origin = StrCat(url.host, ":", url.port, url.path);
  HttpResponse response;
  if (code != CURLE_OK) {
    const std::string reason =
        StrCat(origin, ": ", Reason(code, detail.data(), received, timeout_s));
    if (!IsPassing(code)) return IoError(reason);
    response.lost = reason;
    return response;
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  response.status = static_cast<int>(status);
  curl_off_t retry_after_s = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after_s);
  if (retry_after_s > 0) response.retry_after_s = static_cast<double>(retry_after_s);
  response.body = std::move(received.bytes);
  return response;
}

}  // namespace kvgauge
