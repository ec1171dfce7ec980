// SPDX-License-Identifier: Apache-2.0
#include "reports/report_scene.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "core/image.h"
#include "core/rng.h"
#include "core/strings.h"
#include "images/encode.h"
#include "reports/store.h"

namespace kvgauge {
namespace {

struct SceneMethod {
  const char* name;
  const char* title;
  const char* family;
  double loss;     // of what a budget of 10% costs
  double bits;     // of a stored number; 16: entries are dropped, not coded
  bool recent;     // keeps the end and little else
  double prefill;  // time over the full cache's
};

constexpr SceneMethod kSceneMethods[] = {
    {"snapkv", "SnapKV: what the end of the prompt looks at", "selection", 0.20, 16, false, 1.04},
    {"streaming_llm", "StreamingLLM: sinks and the newest", "selection", 0.80, 16, true, 1.01},
    {"h2o", "H2O: heavy hitters", "selection", 0.34, 16, false, 1.55},
    {"adakv", "Ada-KV: budgets by head", "budget", 0.14, 16, false, 1.06},
    {"pyramidkv", "PyramidKV: budgets by layer", "budget", 0.18, 16, false, 1.05},
    {"d2o", "D2O: merging what is dropped", "merging", 0.30, 16, false, 1.62},
    {"kivi", "KIVI: keys by channel, values by token", "quantization", 0.08, 2, false, 1.12},
    {"palu", "Palu: low-rank keys and values", "low_rank", 0.38, 16, false, 1.20},
    {"quest", "Quest: pages picked by query", "retrieval", 0.06, 16, false, 1.03},
    {"snapkv_kivi", "SnapKV, then KIVI", "composition", 0.24, 4, false, 1.15},
    {"mean_pool_gqa", "Heads pooled", "architecture", 0.55, 16, false, 0.97},
};

struct SceneTask {
  const char* name;
  const char* group;
  const char* metric;
  const char* question;
  bool grid;
  double hardness;
};
constexpr SceneTask kTasks[] = {
    {"needle/single", "needle", "partial_match", "What is the special magic number of Lisbon?",
     true, 1.0},
    {"needle/multi", "needle", "string_match_all", "What are the three ingredients?", true, 1.3},
    {"key_value", "key_value", "partial_match", "What is the value under the key 7f3a?", false,
     1.5},
    {"passages/retrieval", "passages", "retrieval", "Which paragraph is the sentence from?", false,
     0.8},
    {"visual/needle", "visual", "accuracy", "which number has the red ball?", true, 1.1},
};
constexpr int64_t kVisualTask = std::ssize(kTasks) - 1;
constexpr int64_t kLengths[] = {512, 1024, 2048, 4096};

struct Budget {
  const char* text;
  double fraction;
};
constexpr Budget kBudgets[] = {{"5%", 0.05}, {"10%", 0.10}, {"20%", 0.20}, {"40%", 0.40}};

constexpr const char* kHostile =
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'`"
    "\xe2\x80\xae reversed \xe2\x80\xac <!-- ]]> {{x}} & &lt; \xff\xfe";

class Scene {
 public:
  Scene(ResultStore& store, const SceneOptions& options) : store_(store), options_(options) {}

  Status Write() {
    RunRow run;
    run.key = "scene";
    run.machine.facts =
        R"({"cores":2,"cpu":"Example CPU 9000","memory_bytes":25769803776,"os":"Linux 6.1"})";
    run.command = "kvgauge run configs/runs/leaderboard.json --db leaderboard.db";
    run.config = R"({"budgets":["5%","10%","20%","40%"],"compress_at":["prompt"],"seeds":[0]})";
    run.version = "0.1.0";
    run.revision = "0123456789ab";
    run.started_at = "2026-01-02T03:04:05Z";
    if (options_.hostile) run.command += kHostile;
    KVG_ASSIGN(run_, store_.AddRun(run));
    KVG_TRY(store_.AddEvent(run_, {run.started_at, "started", "12 methods, 4 tasks"}));
    for (int64_t t = 0; t < options_.tasks; ++t) {
      KVG_TRY(Cell(t, -1, 0, ""));
      for (int64_t m = 0; m < options_.methods; ++m) {
        for (int64_t b = 0; b < std::ssize(kBudgets); ++b) KVG_TRY(Cell(t, m, b, ""));
      }
    }
    if (options_.pictures > 0) {
      KVG_TRY(Cell(kVisualTask, -1, 0, ""));
      for (int64_t m = 0; m < options_.methods; ++m) KVG_TRY(Cell(kVisualTask, m, 2, ""));
    }
    if (options_.sweep) {
      for (const int window : {8, 16, 32, 64}) {
        for (const int kernel : {1, 5, 7}) {
          KVG_TRY(Cell(0, 0, 1, StrCat("score.kernel=", kernel, ", score.window=", window)));
        }
      }
    }
    KVG_TRY(store_.AddEvent(run_, {"2026-01-02T04:04:05Z", "finished", ""}));
    return store_.FinishRun(run_, "2026-01-02T04:04:05Z");
  }

 private:
  const SceneMethod& Method(int64_t m) const {
    return kSceneMethods[m % std::ssize(kSceneMethods)];
  }

  CellRow CellOf(int64_t t, int64_t m, int64_t b, const std::string& variant) const {
    const SceneTask& task = kTasks[t];
    CellRow cell;
    cell.model = {"f00dfeed0123", "ref-gqa",
                  StrCat(R"({"dtype":"bf16","head_dim":32,"kv_heads":)", options_.kv_heads,
                         R"(,"layers":)", options_.layers, R"(,"parameters":4194304})")};
    cell.task = {
        task.name, 1,
        StrCat(R"({"group":")", task.group, R"(","max_new_tokens":50,"metric":")", task.metric,
               R"(","name":")", task.name, R"(",)",
               task.grid ? "" : R"("report":{"by":["length_bucket"]},)", R"("version":1})")};
    if (m < 0) {
      cell.method = {"full", "", "The full cache", "baseline", 1, R"({"id":"full"})", true};
    } else {
      const SceneMethod& method = Method(m);
      std::string name = method.name;
      if (m >= std::ssize(kSceneMethods)) name += StrCat("_", m / std::ssize(kSceneMethods) + 1);
      if (options_.hostile && m == 0) name += kHostile;
      cell.method = {name,
                     variant,
                     method.title,
                     method.family,
                     1,
                     StrCat(R"({"id":")", method.name, R"(","variant":")", variant, R"("})"),
                     false};
      cell.budget = kBudgets[b].text;
      cell.budget_kind = "fraction";
      cell.budget_value = kBudgets[b].fraction;
    }
    cell.signature = StrCat(R"({"bos":1,"compress_at":"prompt","metric":")", task.metric,
                            R"(","model":"f00dfeed0123","template":"none","truncation":"none"})");
    cell.identity = StrCat(R"({"budget":")", cell.budget, R"(","method":")", m, variant,
                           R"(","task":")", task.name, R"("})");
    return cell;
  }

  Status Cell(int64_t t, int64_t m, int64_t b, const std::string& variant) {
    KVG_ASSIGN(const int64_t cell, store_.AddCell(CellOf(t, m, b, variant)));
    int64_t position = 0;
    for (int64_t l = 0; l < options_.lengths; ++l) {
      for (int64_t d = 0; d < options_.depths; ++d) {
        for (int64_t r = 0; r < options_.repeats; ++r) {
          KVG_ASSIGN(const WriteOutcome outcome,
                     store_.Write(Sample(cell, t, m, b, variant, l, d, position)));
          if (outcome != WriteOutcome::kNew) return BadInput("a sample of the scene came twice");
          ++position;
        }
      }
    }
    if (!options_.latency || t != 0 || !variant.empty()) return {};
    std::vector<LatencyRow> rows;
    for (const int64_t length : {1024, 4096, 16384}) {
      for (int64_t repetition = 0; repetition < 3; ++repetition) {
        rows.push_back(Latency(m, b, length, repetition));
      }
    }
    return store_.WriteLatency(cell, run_, rows);
  }

  double KeptShare(int64_t m, int64_t b) const {
    if (m < 0) return 1;
    const SceneMethod& method = Method(m);
    if (method.bits < 16) return method.bits == 2 ? 1.0 : std::min(1.0, kBudgets[b].fraction * 4);
    return kBudgets[b].fraction;
  }

  // Share of what stands at `depth` that a layer keeps.
  double KeptAt(int64_t m, int64_t b, int64_t layer, double depth) const {
    const double share = KeptShare(m, b);
    if (m < 0 || share >= 1) return 1;
    if (Method(m).recent) return depth < 0.02 || depth > 1 - share ? 1 : 0;
    const double bend = 0.5 + 0.5 * std::cos(6.3 * depth + static_cast<double>(layer));
    const double ends = depth > 0.97 || depth < 0.02 ? 1 : 0;
    return std::clamp(std::max(ends, share * (0.4 + 1.2 * bend)), 0.0, 1.0);
  }

  SampleRow Sample(int64_t cell, int64_t t, int64_t m, int64_t b, const std::string& variant,
                   int64_t l, int64_t d, int64_t position) const {
    const SceneTask& task = kTasks[t];
    const int64_t length = kLengths[l];
    const double depth = static_cast<double>(d) / static_cast<double>(options_.depths - 1);
    SampleRow s;
    s.cell = cell;
    s.run = run_;
    s.sample_id = StrCat(task.name, "-", position);
    s.hash = StrCat("h", position);
    s.group = s.sample_id;
    s.position = position;
    s.tokens_in = length - 3 + position % 7;
    s.tokens_out = 6;
    if (task.grid) {
      s.facts = StrCat(R"({"depth":")", d * 100 / (options_.depths - 1), R"(","length":")",
                       t == kVisualTask ? length / 512 * options_.pictures : length, R"("})");
      s.answer_depth = depth;
    } else {
      s.facts = StrCat(R"({"length_bucket":")", length <= 1024 ? "0-1k" : "1k+", R"("})");
    }
    // One draw a sample, shared by all methods: what breaks a weak one breaks a weaker one too.
    Rng rng(7, static_cast<uint64_t>(t * 100003 + position));
    const double draw = rng.NextDouble(), full_draw = rng.NextDouble();
    Rng own(11 + static_cast<uint64_t>(m + 1), static_cast<uint64_t>(t * 100003 + position));
    const bool full_right = full_draw < 0.97;
    bool right = full_right;
    if (m >= 0) {
      const double window =
          variant.empty() ? 32 : std::atof(variant.substr(variant.rfind('=') + 1).c_str());
      double loss = Method(m).loss * task.hardness * std::pow(0.1 / kBudgets[b].fraction, 0.8) *
                    (0.7 + 0.2 * static_cast<double>(l)) *
                    (1 + std::abs(std::log2(window / 32)) * 0.3);
      if (Method(m).recent && depth > 1 - kBudgets[b].fraction) loss = 0;
      loss = std::min(loss + options_.damage, 0.98);
      const bool broken = 0.6 * draw + 0.4 * own.NextDouble() > 1 - loss;
      right = full_right ? !broken : own.NextDouble() < 0.05;
    }
    s.score = right ? 1.0 : 0.0;
    if (task.hardness == 1.3 && !right) s.score = own.NextDouble() < 0.5 ? 1.0 / 3 : 0.0;
    const bool idle = m >= 0 && Method(m).name == std::string_view("mean_pool_gqa");
    s.engagement = m < 0  ? EngagementMark::kIdentity
                   : idle ? EngagementMark::kNotEngaged
                          : EngagementMark::kEngaged;
    if (idle) s.engagement_reason = "no layer is held otherwise than by the full cache";
    s.compressions = m < 0 ? 0 : 1;
    const double share = KeptShare(m, b);
    if (m >= 0) {
      s.kl_divergence = Method(m).loss * (1.1 - share) * (0.5 + own.NextDouble());
      s.top1_agreement = 1 - std::min(0.9, *s.kl_divergence * 0.4);
    }
    if (m == 2 && position == 5 && b == 0) {
      s.status = SampleStatus::kFailed;
      s.reason = "out of memory: the pool of 64 MiB is full";
      s.score = {};
      s.engagement = EngagementMark::kNone;
      s.kl_divergence = s.top1_agreement = {};
      return s;
    }
    s.answers.push_back(Answer(t, m, position, right));
    s.answers.back().score = s.score;
    Layers(s, m, b);
    if (t == kVisualTask) Pictures(s, m, b);
    Memory(s, m, b);
    LatencyRow latency = Latency(m, b, length, 0);
    latency.isolated = false;
    s.latency = latency;
    return s;
  }

  AnswerRow Answer(int64_t t, int64_t m, int64_t position, bool right) const {
    AnswerRow a;
    a.question = kTasks[t].question;
    a.excerpt = StrCat(
        "... the grass was green and the sky was blue. The special magic number of "
        "Lisbon is ",
        4000 + 37 * position, ". Here we go. There and back again ...");
    a.prediction = right ? StrCat("The number is ", 4000 + 37 * position, ".")
                         : StrCat("I think it was ", 1000 + (position * 7919 + m * 31) % 9000, ".");
    a.references = {StrCat(4000 + 37 * position)};
    a.tokens_out = 6;
    a.stopped = true;
    if (options_.hostile && m == 0) {
      a.prediction = kHostile;
      a.prediction.push_back('\0');
      a.prediction += "after the zero byte";
      if (position == 3) a.prediction = std::string(1 << 20, 'A') + kHostile;
      if (position == 4) a.prediction = "=HYPERLINK(\"x\")";
      if (position == 5) a.prediction = "-5.25";
      a.question += kHostile;
      a.references.emplace_back(kHostile);
    }
    return a;
  }

  void Layers(SampleRow& s, int64_t m, int64_t b) const {
    for (int64_t layer = 0; layer < options_.layers; ++layer) {
      LayerStatRow whole;
      whole.layer = layer;
      whole.head = LayerStatRow::kWholeLayer;
      whole.bits = m < 0 ? 16 : Method(m).bits;
      whole.merged = 0;
      if (m >= 0) {
        whole.attention_error =
            Method(m).loss * (0.2 + 0.1 * static_cast<double>(layer)) * (1.05 - KeptShare(m, b));
      }
      for (int64_t k = 0; k < LayerStatRow::kDepths; ++k) {
        const double depth = (static_cast<double>(k) + 0.5) / LayerStatRow::kDepths;
        whole.kept_by_depth.push_back(std::round(KeptAt(m, b, layer, depth) * 1000) / 1000);
      }
      if (s.answer_depth)
        whole.answer_kept = std::round(KeptAt(m, b, layer, *s.answer_depth) * 1000) / 1000;
      s.layers.push_back(whole);
      for (int64_t head = 0; head < options_.kv_heads; ++head) {
        const bool by_head = m >= 0 && Method(m).family == std::string_view("budget");
        const double tilt =
            by_head ? 0.5 + std::fmod(0.37 * static_cast<double>(head * 3 + layer), 1.0) : 1.0;
        LayerStatRow row;
        row.layer = layer;
        row.head = head;
        row.entries_before = s.tokens_in;
        row.entries_after =
            std::max<int64_t>(1, static_cast<int64_t>(std::min(1.0, KeptShare(m, b) * tilt) *
                                                      static_cast<double>(s.tokens_in)));
        s.layers.push_back(row);
      }
    }
  }

  // A gradient with a bright patch, drawn of its number alone.
  static std::shared_ptr<const PictureRow> Drawn(uint64_t number) {
    Rng rng(23, number);
    Image image;
    image.width = 128;
    image.height = 96;
    const auto red = static_cast<int32_t>(rng.NextBelow(200));
    const auto bright = static_cast<int32_t>(rng.NextBelow(64));
    for (int32_t y = 0; y < image.height; ++y) {
      for (int32_t x = 0; x < image.width; ++x) {
        const bool on = x / 16 == bright % 8 && y / 16 == bright / 8 % 6;
        const auto noise = static_cast<int32_t>(rng.NextBelow(24));
        for (const int32_t level : {red, 60 + y, 60 + x}) {
          image.rgb.push_back(static_cast<uint8_t>(on ? 255 : level + noise));
        }
      }
    }
    return std::make_shared<PictureRow>(
        PictureRow{StrCat("picture", number), 640, 480, EncodeJpeg(image).value()});
  }

  void Pictures(SampleRow& s, int64_t m, int64_t b) const {
    const bool video = s.position % 3 == 2;
    auto sight = std::make_shared<SightRow>();
    for (int64_t i = 0; i < options_.pictures; ++i) {
      ShownPicture shown;
      shown.name = StrCat("picture ", i + 1, " of ", s.sample_id);
      if (options_.hostile) shown.name += kHostile;
      shown.frame = video ? 10 * i : -1;
      shown.answer =
          s.answer_depth &&
          std::llround(*s.answer_depth * static_cast<double>(options_.pictures - 1)) == i;
      shown.grids = {{6, 8}};
      if (i == 0) shown.grids.push_back({12, 16});
      auto& drawn = drawn_[s.position * options_.pictures + i];
      if (drawn == nullptr) {
        drawn = Drawn(static_cast<uint64_t>(s.position * options_.pictures + i));
      }
      shown.picture = drawn;
      sight->pictures.push_back(std::move(shown));
    }
    (video ? s.frames : s.images) = options_.pictures;
    s.visual_tokens = sight->cells();
    Rng rng(29, static_cast<uint64_t>((m + 1) * 977 + s.position));
    const double share = KeptShare(m, b);
    for (int64_t i = 0; m >= 0 && i < sight->cells(); ++i) {
      s.patches += PatchDigit(std::clamp(share * 3 * rng.NextDouble() - 0.1, 0.0, 1.0));
    }
    if (m < 0) s.patches = "f";
    s.sight = std::move(sight);
    for (int64_t layer = 0; layer < options_.layers; ++layer) {
      for (const char* modality : {video ? "video" : "image", "text"}) {
        const int64_t before = modality == std::string_view("text") ? 800 : 4 * s.visual_tokens;
        s.modalities.push_back(
            {.layer = layer,
             .modality = modality,
             .entries_before = before,
             .entries_after = static_cast<int64_t>(share * static_cast<double>(before)),
             .bytes = 4096,
             .attention = 0.5,
             .attention_kept = 0.4});
      }
    }
  }

  void Memory(SampleRow& s, int64_t m, int64_t b) const {
    MemoryRow y;
    // bf16 keys and values, 32 dims.
    y.full_bytes = s.tokens_in * options_.layers * options_.kv_heads * 32 * 2 * 2;
    const double bits = m < 0 ? 16 : Method(m).bits;
    const auto full = static_cast<double>(y.full_bytes);
    y.payload_bytes = static_cast<int64_t>(full * KeptShare(m, b) * bits / 16);
    y.nominal_bytes = m < 0 ? y.full_bytes : static_cast<int64_t>(full * kBudgets[b].fraction);
    if (bits < 16) y.scales_bytes = y.payload_bytes / 8;
    if (m >= 0 && bits == 16) y.indices_bytes = y.payload_bytes / 32;
    if (m >= 0 && Method(m).family == std::string_view("low_rank")) {
      y.projections_bytes = 65536;
    }
    if (m >= 0 && Method(m).family == std::string_view("retrieval"))
      y.reader_bytes = y.full_bytes / 32;
    y.slack_bytes = 4096 + y.payload_bytes / 64;
    y.resident_bytes = y.logical_bytes() + y.slack_bytes;
    y.peak_bytes = y.full_bytes + y.resident_bytes;
    s.memory.push_back(y);
    y.moment = MemoryMoment::kFinal;
    y.payload_bytes += 6 * options_.layers * options_.kv_heads * 128;
    y.resident_bytes = y.logical_bytes() + y.slack_bytes;
    s.memory.push_back(y);
  }

  LatencyRow Latency(int64_t m, int64_t b, int64_t length, int64_t repetition) const {
    Rng rng(13, static_cast<uint64_t>((m + 1) * 977 + b * 31 + length * 7 + repetition));
    const double noise = 1 + 0.02 * rng.NextDouble();
    const auto n = static_cast<double>(length);
    const double base = n / 3000 + n * n * 2e-9;
    LatencyRow y;
    y.context_tokens = length;
    y.repetition = repetition;
    y.prefill_s = base * noise;
    if (m >= 0) {
      const double extra = base * (Method(m).prefill - 1) * noise;
      y.score_s = std::max(0.0, extra * 0.6);
      y.select_s = std::max(0.0, extra * 0.1);
      y.compact_s = std::max(0.0, extra * (Method(m).bits < 16 ? 0.05 : 0.3));
      y.quantise_s = Method(m).bits < 16 ? base * 0.05 : 0;
    }
    y.ttft_s = y.prefill_s + y.score_s + y.select_s + y.compact_s + y.quantise_s;
    const double share = KeptShare(m, b) * (m >= 0 ? Method(m).bits / 16 : 1);
    y.steps = 32;
    y.tpot_p50_s = (0.004 + 2e-7 * n * share) * noise;
    y.tpot_p90_s = y.tpot_p50_s * 1.1;
    y.tpot_p99_s = y.tpot_p50_s * 1.3;
    y.attend_s = 2e-7 * n * share * 32;
    y.other_s = 0.004 * 32;
    y.resident_bytes = static_cast<int64_t>(
        n * share * static_cast<double>(options_.layers * options_.kv_heads) * 128);
    y.peak_bytes = y.resident_bytes * 2;
    y.others_share = 0.01;
    return y;
  }

  ResultStore& store_;
  const SceneOptions options_;
  int64_t run_ = 0;
  mutable std::map<int64_t, std::shared_ptr<const PictureRow>> drawn_;
};

}  // namespace

Status WriteScene(ResultStore& store, const SceneOptions& options) {
  return Scene(store, options).Write();
}

}  // namespace kvgauge
