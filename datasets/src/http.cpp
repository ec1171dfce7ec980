// SPDX-License-Identifier: Apache-2.0
#include "src/http.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "core/clock.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::string_view kLineEnd = "\r\n";

class Socket {
 public:
  explicit Socket(int file) : file_(file) {}
  ~Socket() {
    if (file_ >= 0) close(file_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int file() const { return file_; }

 private:
  int file_;
};

// Waits for `events`; false when the time is over.
bool Await(int file, int16_t events, double until_s) {
  while (true) {
    const double left_s = until_s - NowSeconds();
    if (left_s <= 0) return false;
    pollfd waiting = {file, events, 0};
    if (poll(&waiting, 1, static_cast<int>(left_s * 1000) + 1) > 0) return true;
  }
}

// 0, or the reason as an errno value.
int Connect(int file, const addrinfo& address, double until_s) {
  if (connect(file, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!Await(file, POLLOUT, until_s)) return ETIMEDOUT;
  int reason = 0;
  socklen_t size = sizeof(reason);
  return getsockopt(file, SOL_SOCKET, SO_ERROR, &reason, &size) == 0 ? reason : errno;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

Result<std::unique_ptr<Socket>> OpenSocket(const HttpUrl& url, double until_s) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int fault = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
      fault != 0) {
    return IoError(StrCat(url.host, ": ", gai_strerror(fault)));
  }
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  int reason = ECONNREFUSED;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    auto socket_of = std::make_unique<Socket>(
        socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    if (socket_of->file() < 0) {
      reason = errno;
      continue;
    }
    reason = Connect(socket_of->file(), *at, until_s);
    if (reason == 0) return socket_of;
  }
  return IoError(StrCat(url.host, ":", url.port, ": ", std::strerror(reason)));
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
    return lower(x) == lower(y);
  });
}

bool ToSize(std::string_view text, int base, size_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() &&
         value <= static_cast<size_t>(kMaxHttpResponseBytes);
}

Error Faulty(std::string_view what) { return IoError(StrCat("not an HTTP answer: ", what)); }

// The content of all chunks up to the last one, which is empty.
Result<std::string> Dechunk(std::string_view bytes) {
  std::string body;
  while (true) {
    const size_t end = bytes.find(kLineEnd);
    if (end == std::string_view::npos) return Faulty("a chunk is cut short");
    size_t size = 0;
    if (!ToSize(Trim(bytes.substr(0, std::min(end, bytes.find(';')))), 16, size)) {
      return Faulty("a chunk has no size");
    }
    bytes.remove_prefix(end + kLineEnd.size());
    if (size == 0) return body;
    if (bytes.size() < size + kLineEnd.size()) return Faulty("a chunk is cut short");
    body.append(bytes.substr(0, size));
    bytes.remove_prefix(size + kLineEnd.size());
  }
}

struct HttpHead {
  int status = 0;
  size_t size = 0;  // where the body begins
  std::optional<size_t> length;
  std::optional<double> retry_after_s;
  bool chunked = false;
};

Result<HttpHead> ParseHead(std::string_view bytes) {
  const size_t head_end = bytes.find("\r\n\r\n");
  if (!bytes.starts_with("HTTP/1.") || head_end == std::string_view::npos) {
    return Faulty("no header");
  }
  std::string_view left = bytes.substr(0, head_end);
  HttpHead head;
  head.size = head_end + 4;
  size_t number = 0;
  if (left.size() < 12 || left[8] != ' ' || !ToSize(left.substr(9, 3), 10, number) ||
      number < 100) {
    return Faulty("no status");
  }
  head.status = static_cast<int>(number);
  while (!left.empty()) {
    const size_t end = std::min(left.find(kLineEnd), left.size());
    const std::string_view line = left.substr(0, end);
    left.remove_prefix(std::min(end + kLineEnd.size(), left.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, colon), value = Trim(line.substr(colon + 1));
    const bool is_number = ToSize(value, 10, number);
    if (EqualsIgnoringCase(name, "content-length")) {
      if (!is_number) return Faulty("Content-Length is no number or too large");
      head.length = number;
    }
    if (EqualsIgnoringCase(name, "retry-after") && is_number) {
      head.retry_after_s = static_cast<double>(number);
    }
    head.chunked = head.chunked || (EqualsIgnoringCase(name, "transfer-encoding") &&
                                    EqualsIgnoringCase(value, "chunked"));
  }
  return head;
}

// Nothing more of this response can come. Without a length only its end tells.
bool IsWhole(std::string_view bytes) {
  const Result<HttpHead> head = ParseHead(bytes);
  if (!head.ok()) return false;
  const std::string_view body = bytes.substr(head->size);
  // Every body of chunks ends so; whether it is the end takes reading them.
  if (head->chunked) return body.ends_with("\r\n\r\n") && Dechunk(body).ok();
  return head->length && body.size() >= *head->length;
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(std::string_view text) {
  if (text.starts_with("https://")) {
    return Unsupported(StrCat(Quoted(text), ": https needs a TLS library, and this program has ",
                              "none; give it an http address, e.g. of a proxy on this machine"));
  }
  const auto bad = [&] {
    return BadInput(StrCat(Quoted(text), ": expected http://HOST[:PORT][/PATH]"));
  };
  const bool clean =
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
  if (!clean || !text.starts_with(kScheme)) return bad();
  std::string_view rest = text.substr(kScheme.size());
  HttpUrl url;
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.path = slash == rest.size() ? "/" : std::string(rest.substr(slash));
  rest = rest.substr(0, slash);
  if (rest.find('@') != std::string_view::npos) return bad();
  url.port = "80";
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
    size_t number = 0;
    if (!ToSize(url.port, 10, number) || number == 0 || number > 65535) return bad();
  }
  if (url.host.empty()) return bad();
  return url;
}

Result<HttpResponse> ParseHttpResponse(std::string_view bytes) {
  KVG_ASSIGN(const HttpHead head, ParseHead(bytes));
  const std::string_view body = bytes.substr(head.size);
  HttpResponse response = {head.status, head.retry_after_s, {}};
  if (head.chunked) {
    KVG_ASSIGN(response.body, Dechunk(body));
    return response;
  }
  const size_t length = head.length.value_or(body.size());
  if (body.size() < length) return Faulty("the body is cut short");
  response.body = body.substr(0, length);
  return response;
}

Result<HttpResponse> HttpPost(const HttpUrl& url,
                              const std::vector<std::pair<std::string, std::string>>& headers,
                              const std::string& body, double timeout_s) {
  const double until_s = NowSeconds() + timeout_s;
  const std::string origin = StrCat("http://", url.host, ":", url.port, url.path);
  std::string request = StrCat("POST ", url.path, " HTTP/1.1\r\nHost: ", url.host, ":", url.port,
                               "\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n");
  for (const auto& [name, value] : headers) {
    if (value.find_first_of("\r\n") != std::string::npos) {
      return BadInput(StrCat("the value of ", name, " holds a line break"));
    }
    request.append(name).append(": ").append(value).append("\r\n");
  }
  request.append("\r\n").append(body);
  const auto late = [&] { return IoError(StrCat(origin, ": no answer in ", timeout_s, " s")); };

  KVG_ASSIGN(const std::unique_ptr<Socket> socket, OpenSocket(url, until_s));
  std::string_view left = request;
  while (!left.empty()) {
    const ssize_t sent = send(socket->file(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      left.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!Await(socket->file(), POLLOUT, until_s)) return late();
    } else if (errno != EINTR) {
      return IoError(StrCat(origin, ": ", std::strerror(errno)));
    }
  }
  std::string bytes;
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t got = recv(socket->file(), buffer.data(), buffer.size(), 0);
    if (got == 0) break;
    if (got > 0) {
      bytes.append(buffer.data(), static_cast<size_t>(got));
      if (IsWhole(bytes)) break;
      if (static_cast<int64_t>(bytes.size()) > kMaxHttpResponseBytes) {
        return IoError(
            StrCat(origin, ": the answer is longer than ", HumanBytes(kMaxHttpResponseBytes)));
      }
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!Await(socket->file(), POLLIN, until_s)) return late();
    } else if (errno != EINTR) {
      return IoError(StrCat(origin, ": ", std::strerror(errno)));
    }
  }
  Result<HttpResponse> response = ParseHttpResponse(bytes);
  if (!response.ok()) return response.error().Wrap(origin);
  return response;
}

}  // namespace kvgauge
