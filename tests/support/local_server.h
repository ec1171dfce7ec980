// SPDX-License-Identifier: Apache-2.0
// An HTTP server of canned replies in this process, on a port of its own.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {

// Answers each connection with the next of its replies, whole or as two pieces; the last reply goes
// on for ever. Connections are closed behind the reply, or with `keep_open` only at its own end.
class LocalServer {
 public:
  explicit LocalServer(std::vector<std::string> replies, bool keep_open = false)
      : replies_(std::move(replies)), keep_open_(keep_open) {
    setenv("no_proxy", "127.0.0.1", 1);  // whatever proxies this machine has
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, generic, sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(listener_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~LocalServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    for (const int peer : open_peers_) close(peer);
  }

  std::string Url() const { return StrCat("http://127.0.0.1:", port_, "/v1/"); }
  std::vector<std::string> Requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

 private:
  void Serve() {
    for (size_t at = 0;; ++at) {
      const int peer = accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      std::string request;
      std::array<char, 4096> buffer;
      while (!Whole(request)) {
        const ssize_t got = recv(peer, buffer.data(), buffer.size(), 0);
        if (got <= 0) break;
        request.append(buffer.data(), static_cast<size_t>(got));
      }
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        requests_.push_back(request);
      }
      const std::string& reply = replies_[std::min(at, replies_.size() - 1)];
      const size_t half = reply.size() / 2;
      send(peer, reply.data(), half, MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      send(peer, reply.data() + half, reply.size() - half, MSG_NOSIGNAL);
      if (keep_open_) {
        open_peers_.push_back(peer);
      } else {
        close(peer);
      }
    }
  }
  static bool Whole(const std::string& request) {
    const size_t head = request.find("\r\n\r\n"), length = request.find("Content-Length: ");
    if (head == std::string::npos || length == std::string::npos) return false;
    return request.size() >= head + 4 + std::stoul(request.substr(length + 16));
  }

  std::vector<std::string> replies_;
  bool keep_open_;
  std::vector<int> open_peers_;  // the thread's own until it has ended
  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

// What an OpenAI-compatible endpoint answers with.
inline std::string JudgeReply(const std::string& content) {
  const std::string body =
      Json({{"choices", Json::array({{{"message", {{"content", content}}}}})}}).dump();
  return StrCat("HTTP/1.1 200 OK\r\ncontent-length: ", body.size(), "\r\n\r\n", body);
}

}  // namespace kvgauge
