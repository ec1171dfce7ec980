// SPDX-License-Identifier: Apache-2.0
// The judge's client against a server in this process.
#include "datasets/judge.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/http.h"
#include "support/local_server.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JudgeEndpoint Endpoint(const std::string& url) {
  return {.url = url, .key = "secret", .model = "grader", .timeout_s = 5, .first_wait_s = 0.01};
}

// A socket of this machine that listens on a port of its own, and that port.
int Listen() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  return listener;
}
int PortOf(int listener) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

TEST(Judge, AsksAsOthersDo) {
  LocalServer server({JudgeReply("9 7\nBecause.")});
  const Result<JudgeAnswer> reply = AskJudge(Endpoint(server.Url()), "Grade \"this\" \u00e9\n");
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->text, "9 7\nBecause.");
  ASSERT_EQ(server.Requests().size(), 1u);
  const std::string request = server.Requests()[0];
  EXPECT_TRUE(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\nAuthorization: Bearer secret\r\n"));
  const Json body = *ParseJson(request.substr(request.find("\r\n\r\n") + 4), "body");
  EXPECT_EQ(body["model"], "grader");
  EXPECT_EQ(body["messages"][0]["content"], "Grade \"this\" \u00e9\n");
  EXPECT_EQ(body["temperature"], 0);
}

TEST(Judge, WithoutAddressOrKeyNothingIsSent) {
  LocalServer server({JudgeReply("9 7")});
  JudgeEndpoint endpoint = Endpoint(server.Url());
  endpoint.key = "";
  EXPECT_THAT(AskJudge(endpoint, "x").error().message, HasSubstr("nothing was sent"));
  EXPECT_THAT(AskJudge(Endpoint(""), "x").error().message, HasSubstr("nothing was sent"));
  endpoint.key = "two\r\nlines";
  EXPECT_THAT(AskJudge(endpoint, "x").error().message, HasSubstr("line break"));
  EXPECT_THAT(server.Requests(), IsEmpty());
}

TEST(Judge, FaultsAreNamed) {
  const auto fault = [](const std::string& reply) {
    LocalServer server({reply});
    const Result<JudgeAnswer> answer = AskJudge(Endpoint(server.Url()), "x");
    return answer.ok() ? "" : answer.error().message;
  };
  EXPECT_THAT(fault("HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nslow"),
              HasSubstr("status 429: 'slow'"));
  EXPECT_THAT(fault("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"), HasSubstr("cut short"));
  EXPECT_THAT(fault("HTTP/1.1 200 OK\r\n\r\n{}"), HasSubstr("no choices[0].message.content"));
  EXPECT_THAT(fault("HTTP/1.1 200 OK\r\n\r\n{"), HasSubstr("the judge's answer"));
  EXPECT_THAT(fault("hello"), HasSubstr("not an HTTP answer"));
  EXPECT_THAT(fault(""), HasSubstr("not an HTTP answer"));
  EXPECT_THAT(AskJudge(Endpoint("http://127.0.0.1:1"), "x").error().message,
              HasSubstr("127.0.0.1:1"));
}

TEST(Judge, AServerWithoutTlsIsNamed) {
  const int listener = Listen();
  std::thread server([&] {
    const int peer = accept(listener, nullptr, nullptr);
    constexpr std::string_view kReply = "HTTP/1.1 400 Bad Request\r\n\r\n";
    send(peer, kReply.data(), kReply.size(), MSG_NOSIGNAL);
    close(peer);
  });
  const std::string url = StrCat("https://127.0.0.1:", PortOf(listener));
  EXPECT_THAT(AskJudge(Endpoint(url), "x").error().message, HasSubstr("no TLS connection"));
  server.join();
  close(listener);
}

TEST(Judge, ASilentServerIsLeft) {
  const int listener = Listen();
  JudgeEndpoint endpoint = Endpoint(StrCat("http://127.0.0.1:", PortOf(listener)));
  endpoint.timeout_s = 0.2;
  EXPECT_THAT(AskJudge(endpoint, "x").error().message, HasSubstr("no answer in 0.2 s"));
  close(listener);
}

TEST(Judge, ParsesUrls) {
  const auto shown = [](const std::string& text) {
    const Result<HttpUrl> url = ParseHttpUrl(text);
    if (!url.ok()) return std::string();
    return StrCat(url->secure ? "secure " : "", url->host, "|", url->port, "|", url->path);
  };
  EXPECT_EQ(shown("http://a"), "a|80|/");
  EXPECT_EQ(shown("http://a:8/b/c"), "a|8|/b/c");
  EXPECT_EQ(shown("https://a/b"), "secure a|443|/b");
  EXPECT_EQ(shown("https://a:8"), "secure a|8|/");
  EXPECT_EQ(shown("http://[::1]:9/"), "::1|9|/");
  EXPECT_EQ(shown("http://[::1]"), "::1|80|/");
  for (const char* bad :
       {"", "a", "ftp://a", "http://", "http://:80", "http://a:", "http://a:0", "http://a:65536",
        "http://a:8x", "http://u@a", "http://[::1", "http://a b", "http://[::1]x"}) {
    EXPECT_EQ(shown(bad), "") << bad;
  }
}

TEST(Judge, ReadsChunks) {
  const auto body = [](const std::string& chunks) {
    LocalServer server({StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", chunks)});
    const Result<HttpResponse> response = HttpPost(*ParseHttpUrl(server.Url()), {}, "x", 5);
    return response.ok() && response->lost.empty() ? response->body : "bad";
  };
  EXPECT_EQ(body("3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"), "abc0123456789");
  EXPECT_EQ(body("3\r\nab"), "bad");
  EXPECT_EQ(body("x\r\nab"), "bad");
  EXPECT_EQ(body("fffffffffffffffff\r\nab"), "bad");
  EXPECT_EQ(body("3\r\nabc\r\n"), "bad");
}

TEST(Judge, AnEndlessAnswerIsLeft) {
  const std::string head = "HTTP/1.1 200 OK\r\n\r\n";
  LocalServer server({head + std::string(static_cast<size_t>(kMaxHttpResponseBytes) + 1, 'x')});
  EXPECT_THAT(AskJudge(Endpoint(server.Url()), "x").error().message,
              HasSubstr("the answer is longer than 16.0 MiB"));
}

// A proxy is asked for the whole address, and the host itself is not looked up.
TEST(Judge, AProxyIsUsed) {
  LocalServer proxy({JudgeReply("9 7")});
  const std::string address = proxy.Url().substr(0, proxy.Url().find("/v1"));
  setenv("http_proxy", address.c_str(), 1);
  const Result<JudgeAnswer> reply = AskJudge(Endpoint("http://judge.invalid/v1"), "x");
  unsetenv("http_proxy");
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->text, "9 7");
  ASSERT_EQ(proxy.Requests().size(), 1u);
  EXPECT_TRUE(proxy.Requests()[0].starts_with("POST http://judge.invalid"));
}

TEST(Judge, ARedirectIsNotFollowed) {
  LocalServer server(
      {"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"});
  EXPECT_THAT(AskJudge(Endpoint(server.Url()), "x").error().message, HasSubstr("status 307"));
}

// The end of an answer is where its length says, not where the connection ends.
TEST(Judge, AnOpenConnectionIsNotWaitedFor) {
  const std::string content = R"({"choices": [{"message": {"content": "9 7"}}]})";
  const std::string chunked =
      StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n", content.substr(0, 5),
             "\r\n29\r\n", content.substr(5), "\r\n0\r\nX-Trailer: x\r\n\r\n");
  ASSERT_EQ(content.size() - 5, 0x29u);
  LocalServer server({JudgeReply("9 7"), chunked}, true);
  for (int i = 0; i < 2; ++i) {
    const double begin_s = NowSeconds();
    const Result<JudgeAnswer> reply = AskJudge(Endpoint(server.Url()), "x");
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->text, "9 7");
    EXPECT_LT(NowSeconds() - begin_s, 4);  // the time limit is 5
  }
}

constexpr const char* kBusy = "HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nslow";
constexpr const char* kFailing = "HTTP/1.1 503 x\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";

TEST(Judge, ABusyServerIsAskedAgain) {
  LocalServer server({kBusy, kFailing, JudgeReply("9 7")});
  const double begin_s = NowSeconds();
  const Result<JudgeAnswer> reply = AskJudge(Endpoint(server.Url()), "x");
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->text, "9 7");
  EXPECT_EQ(server.Requests().size(), 3u);
  EXPECT_GE(NowSeconds() - begin_s, 1);  // Retry-After
  // What is wrong with the request stays wrong.
  LocalServer strict({"HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n"});
  EXPECT_FALSE(AskJudge(Endpoint(strict.Url()), "x").ok());
  EXPECT_EQ(strict.Requests().size(), 1u);
  LocalServer busy({kBusy});
  EXPECT_THAT(AskJudge(Endpoint(busy.Url()), "x").error().message,
              HasSubstr("status 429: 'slow', asked 6 times"));
  EXPECT_EQ(busy.Requests().size(), 6u);
}

class JudgedFile : public ::testing::Test {
 protected:
  JudgedFile() {
    std::ofstream(pairs_) << R"({"prediction": "p1", "answers": ["r"]})"
                          << "\n"
                          << R"({"prediction": "p2", "answers": ["r"]})"
                          << "\n"
                          << R"({"prediction": "p3", "answers": ["r"]})"
                          << "\n";
  }
  ~JudgedFile() override {
    std::filesystem::remove(pairs_);
    std::filesystem::remove(grades_);
  }
  Result<JudgedPairs> Judge(LocalServer& server, const std::string& model = "grader") {
    JudgeEndpoint endpoint = Endpoint(server.Url());
    endpoint.model = model;
    endpoint.attempts = 2;
    return JudgePairs(pairs_, endpoint, {.skip_bad = false, .grades_path = grades_});
  }
  std::string pairs_ = StrCat(::testing::TempDir(), "to_judge_", getpid(), ".jsonl");
  std::string grades_ = StrCat(::testing::TempDir(), "grades_", getpid(), ".jsonl");
};

TEST_F(JudgedFile, GradesOutliveAJudgeThatFails) {
  LocalServer failing({JudgeReply("8 6"), JudgeReply("8 4"), kBusy});
  const Result<JudgedPairs> first = Judge(failing);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_THAT(first->lines, ElementsAre(1, 2));
  EXPECT_NEAR(first->relative_score, 10.0 / 16, 1e-12);
  EXPECT_THAT(first->ended, HasSubstr(":3: the judge answered with status 429"));
  // As a crash in the middle of a line leaves it.
  std::ofstream(grades_, std::ios::app) << R"({"request": "ab)";
  LocalServer server({JudgeReply("8 2")});
  const Result<JudgedPairs> second = Judge(server);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_THAT(second->lines, ElementsAre(1, 2, 3));
  EXPECT_EQ(second->reused, 2);
  EXPECT_EQ(second->ended, "");
  EXPECT_NEAR(second->relative_score, 12.0 / 24, 1e-12);
  EXPECT_EQ(server.Requests().size(), 1u);
  // Another judge's grades are its own.
  LocalServer other({JudgeReply("5 5")});
  EXPECT_EQ(Judge(other, "another")->reused, 0);
}

TEST_F(JudgedFile, AnotherFileIsNoFileOfGrades) {
  LocalServer server({JudgeReply("8 2")});
  std::filesystem::copy_file(pairs_, grades_);
  const Result<JudgedPairs> judged = Judge(server);
  ASSERT_FALSE(judged.ok());
  EXPECT_THAT(judged.error().message, HasSubstr(":1: no grade that --grades wrote"));
  EXPECT_THAT(server.Requests(), IsEmpty());
}

TEST(Judge, Grades) {
  const auto grade = [](const std::string& reply) {
    const RelativeGrade got = ParseRelativeGrade(reply);
    return std::pair(got.reference, got.model);
  };
  EXPECT_EQ(grade("8 4\nwhy"), std::pair(8.0, 4.0));
  EXPECT_EQ(grade("8,4.5"), std::pair(8.0, 4.5));
  EXPECT_EQ(grade("8 4 2"), std::pair(-1.0, -1.0));
  EXPECT_EQ(grade("Grades: 8 4"), std::pair(-1.0, -1.0));
  EXPECT_EQ(grade("8 nan"), std::pair(-1.0, -1.0));
  EXPECT_EQ(grade("8 40"), std::pair(-1.0, -1.0));
  EXPECT_EQ(grade(""), std::pair(-1.0, -1.0));
}

TEST(Judge, NothingIsSentForAFileWithAFault) {
  LocalServer server({JudgeReply("8 6")});
  const std::string path = StrCat(::testing::TempDir(), "faulty_judged_", getpid(), ".jsonl");
  std::ofstream(path) << R"({"prediction": "p1", "answers": ["r1"]})"
                      << "\n{\n";
  EXPECT_THAT(JudgePairs(path, Endpoint(server.Url()), {}).error().message, HasSubstr(":2: "));
  EXPECT_THAT(JudgePairs(path, Endpoint("ftp://a"), {.skip_bad = true}).error().message,
              AllOf(HasSubstr("http[s]://"), ::testing::Not(HasSubstr("jsonl"))));
  std::filesystem::remove(path);
  EXPECT_THAT(server.Requests(), IsEmpty());
}

TEST(Judge, ScoresAFile) {
  LocalServer server({JudgeReply("8 6"), JudgeReply("I cannot say")});
  const std::string path = StrCat(::testing::TempDir(), "judged_", getpid(), ".jsonl");
  std::ofstream(path) << R"({"prediction": "p1", "answers": ["r1"], "question": "q1"})"
                      << "\n\n"
                      << R"({"prediction": "p2", "answers": ["r2"]})"
                      << "\n"
                      << R"({"prediction": "p3", "answers": []})"
                      << "\n";
  EXPECT_THAT(JudgePairs(path, Endpoint("http://127.0.0.1:1"), {.skip_bad = true}).error().message,
              HasSubstr(":1: 127.0.0.1:1/"));
  const Result<JudgedPairs> judged = JudgePairs(path, Endpoint(server.Url()), {.skip_bad = true});
  std::filesystem::remove(path);
  ASSERT_TRUE(judged.ok()) << judged.error().message;
  EXPECT_THAT(judged->lines, ElementsAre(1, 3));
  EXPECT_EQ(judged->unparsed, 1);
  EXPECT_EQ(judged->bad_lines.size(), 1u);
  EXPECT_NEAR(judged->relative_score, 5.0 / 7, 1e-12);
  const std::vector<std::string> requests = server.Requests();
  ASSERT_EQ(requests.size(), 2u);
  for (const char* part : {"q1", "r1", "p1"}) EXPECT_THAT(requests[0], HasSubstr(part));
}

std::string WinReply(const std::string& text, int64_t tokens) {
  const Json body = {{"choices", {{{"message", {{"content", text}}}}}},
                     {"usage", {{"total_tokens", tokens}}}};
  const std::string content = body.dump();
  return StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", content.size(), "\r\n\r\n", content);
}

TEST(Judge, WinLetters) {
  EXPECT_EQ(ParseWin("A\nbecause B"), 'A');
  EXPECT_EQ(ParseWin("[[B]]"), 'B');
  EXPECT_EQ(ParseWin(" C. "), 'C');
  for (const char* wrong : {"", "D", "A B", "AB", "Answer: A", "a", "\xce\x91", "1"}) {
    EXPECT_EQ(ParseWin(wrong), 0) << wrong;
  }
}

TEST_F(JudgedFile, AWinIsOneInBothOrders) {
  // In both orders the model's; twice the first; a letter and then none.
  LocalServer server({JudgeReply("B"), JudgeReply("A"), JudgeReply("A"), JudgeReply("A"),
                      JudgeReply("A"), JudgeReply("neither")});
  const Result<kvgauge::Judge> judge = HttpJudge(Endpoint(server.Url()));
  ASSERT_TRUE(judge.ok());
  const Result<JudgedWins> judged = JudgeWins(pairs_, *judge, {.grades_path = grades_});
  ASSERT_TRUE(judged.ok()) << judged.error().message;
  ASSERT_EQ(judged->wins.size(), 3u);
  EXPECT_EQ(judged->wins[0].verdict, WinVerdict::kWin);
  EXPECT_EQ(judged->wins[1].verdict, WinVerdict::kTie);
  EXPECT_EQ(judged->wins[2].verdict, WinVerdict::kUnparsed);
  EXPECT_EQ(judged->order_decided, 1);
  EXPECT_DOUBLE_EQ(judged->win_rate, 0.75);
  EXPECT_EQ(judged->requests, 6);
  // The two answers change places.
  const std::vector<std::string> requests = server.Requests();
  ASSERT_EQ(requests.size(), 6u);
  EXPECT_LT(requests[0].find("\\nr\\n"), requests[0].find("\\np1\\n"));
  EXPECT_GT(requests[1].find("\\nr\\n"), requests[1].find("\\np1\\n"));
  // The transcript says what was asked, and answers for all of them.
  const std::string transcript = *ReadFile(grades_);
  const Json asked = *ParseJson(transcript.substr(0, transcript.find('\n')), "transcript");
  EXPECT_EQ(asked["judge"], "grader");
  EXPECT_THAT(asked["prompt"].get<std::string>(), HasSubstr("[Assistant B]\np1\n"));
  EXPECT_EQ(asked["reply"], "B");
  EXPECT_GT(asked["tokens"], 10);
  LocalServer silent({});
  const Result<kvgauge::Judge> later = HttpJudge(Endpoint(silent.Url()));
  const Result<JudgedWins> again = JudgeWins(pairs_, *later, {.grades_path = grades_});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->reused, 6);
  EXPECT_EQ(again->requests, 0);
  EXPECT_DOUBLE_EQ(again->win_rate, 0.75);
  EXPECT_THAT(silent.Requests(), IsEmpty());
}

TEST_F(JudgedFile, CostIsCapped) {
  LocalServer server({WinReply("8 6", 700), WinReply("8 4", 400), WinReply("8 2", 5)});
  const Result<kvgauge::Judge> judge = HttpJudge(Endpoint(server.Url()));
  const Result<JudgedPairs> one =
      JudgePairs(pairs_, *judge, {.grades_path = grades_, .most_requests = 1});
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_THAT(one->lines, ElementsAre(1));
  EXPECT_EQ(one->tokens, 700);
  EXPECT_THAT(one->ended, HasSubstr("asked 1 time, 700 tokens, which is the cap"));
  EXPECT_EQ(server.Requests().size(), 1u);
  // What is in the file costs nothing; the second reply is the one that passes the cap.
  const Result<JudgedPairs> two =
      JudgePairs(pairs_, *judge, {.grades_path = grades_, .most_tokens = 300});
  ASSERT_TRUE(two.ok());
  EXPECT_THAT(two->lines, ElementsAre(1, 2));
  EXPECT_EQ(two->requests, 1);
  EXPECT_EQ(server.Requests().size(), 2u);
  // Times without an answer count as well.
  LocalServer busy({JudgeReply("8 6"), kBusy});
  JudgeEndpoint patient = Endpoint(busy.Url());
  patient.model = "another";
  const Result<JudgedPairs> refused = JudgePairs(pairs_, *HttpJudge(patient), {.most_requests = 3});
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(refused->requests, 3);
  EXPECT_THAT(refused->ended, HasSubstr("status 429: 'slow', asked 2 times"));
  EXPECT_EQ(busy.Requests().size(), 3u);
  // A cap that lets nothing through is an error, not a score of no lines.
  std::filesystem::remove(grades_);
  EXPECT_THAT(JudgePairs(pairs_, *judge, {.most_requests = 0}).error().message, HasSubstr("cap"));
  EXPECT_EQ(server.Requests().size(), 2u);
}

TEST_F(JudgedFile, TheCallersOwnJudge) {
  int asked = 0;
  const kvgauge::Judge judge = {.name = "mine",
                                .ask = [&](const std::string& message, int64_t, int64_t*) {
                                  ++asked;
                                  EXPECT_THAT(message, HasSubstr("[Assistant 2]"));
                                  return Result<JudgeAnswer>(JudgeAnswer{.text = "10 5"});
                                }};
  const Result<JudgedPairs> judged = JudgePairs(pairs_, judge, {});
  ASSERT_TRUE(judged.ok());
  EXPECT_EQ(asked, 3);
  EXPECT_DOUBLE_EQ(judged->relative_score, 0.5);
}

}  // namespace
}  // namespace kvgauge
