// SPDX-License-Identifier: Apache-2.0
// kvgauge-video: the frames of a video, decoded by FFmpeg's libraries in a process of its own.
//
//   kvgauge-video count < FILE          {"decoder", "fps", "frames", "height", "width"}, one line
//   kvgauge-video frames 0,7,7 < FILE   "WIDTH HEIGHT\n", then the frames of ascending numbers as
//                                       RGB rows; a number that is there twice is written once
//
// A frame's number is how many frames were decoded before it: nothing seeks to a time. The file is
// standard input, so no name and no protocol reaches the libraries, and after the first line of
// main they cannot open anything. Standard output is a pipe. Exit code 2 and a line on standard
// error: the file is refused.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libavutil/log.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

namespace {

constexpr int64_t kMostMemoryBytes = int64_t{4} << 30;
constexpr int64_t kMostCpuSeconds = 1800;
constexpr int64_t kMostPixels = int64_t{1} << 26;
constexpr int64_t kMostFrames = int64_t{1} << 24;
constexpr int kBufferBytes = 1 << 16;

[[noreturn]] void Refuse(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(2);
}

std::string TextOf(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(error, text, sizeof text);
  return text;
}

// The first error that the libraries wrote about, "" where there was none. Decoders hide damage
// behind what was there before and only write about it.
std::string& Complaint() {
  static std::string complaint;
  return complaint;
}

void Listen(void* about, int level, const char* format, va_list values) {
  if (level > AV_LOG_ERROR || !Complaint().empty()) return;
  char line[256] = {};
  int prefix = 0;  // no addresses
  av_log_format_line2(about, level, format, values, line, sizeof line, &prefix);
  std::string& complaint = Complaint();
  complaint = line;
  while (!complaint.empty() && complaint.back() == '\n') complaint.pop_back();
}

void Limit(int resource, int64_t most) {
  const rlimit limit = {static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  if (setrlimit(resource, &limit) != 0) Refuse(std::string("setrlimit: ") + std::strerror(errno));
}

// Nothing but the three open files, no file grows, no process begins.
void LimitAll() {
#ifndef KVG_SANITIZED  // a sanitizer's shadow is larger, and it opens files at the end
  Limit(RLIMIT_NOFILE, 3);
  Limit(RLIMIT_AS, kMostMemoryBytes);
#endif
  Limit(RLIMIT_FSIZE, 0);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_CPU, kMostCpuSeconds);
}

int ReadBytes(void*, uint8_t* to, int size) {
  ssize_t got = -1;
  do {
    got = read(STDIN_FILENO, to, static_cast<size_t>(size));
  } while (got < 0 && errno == EINTR);
  if (got < 0) return AVERROR(errno);
  return got == 0 ? AVERROR_EOF : static_cast<int>(got);
}

int64_t SeekBytes(void*, int64_t offset, int whence) {
  if (whence == AVSEEK_SIZE) {
    struct stat facts = {};
    return fstat(STDIN_FILENO, &facts) == 0 ? static_cast<int64_t>(facts.st_size) : -1;
  }
  return lseek(STDIN_FILENO, offset, whence & ~AVSEEK_FORCE);
}

int OpenNothing(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
  return AVERROR(EPERM);
}

struct Free {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
  void operator()(AVFormatContext* format) const { avformat_close_input(&format); }
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
  void operator()(AVIOContext* io) const {
    av_freep(&io->buffer);
    avio_context_free(&io);
  }
};
template <class T>
using Held = std::unique_ptr<T, Free>;

class Video {
 public:
  Video() {
    auto* const buffer = static_cast<unsigned char*>(av_malloc(kBufferBytes));
    io_.reset(avio_alloc_context(buffer, kBufferBytes, 0, nullptr, ReadBytes, nullptr, SeekBytes));
    AVFormatContext* format = avformat_alloc_context();
    format->pb = io_.get();
    format->io_open = OpenNothing;
    format->flags |= AVFMT_FLAG_CUSTOM_IO;
    format->protocol_whitelist = av_strdup("");
    if (const int error = avformat_open_input(&format, nullptr, nullptr, nullptr); error < 0) {
      Refuse("is no video that can be read: " + TextOf(error));
    }
    format_.reset(format);
    if (const int error = avformat_find_stream_info(format, nullptr); error < 0) {
      Refuse("its streams cannot be read: " + TextOf(error));
    }
    const AVCodec* codec = nullptr;
    stream_ = av_find_best_stream(format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (stream_ < 0 || codec == nullptr) Refuse("holds no video stream that can be decoded");
    codec_.reset(avcodec_alloc_context3(codec));
    avcodec_parameters_to_context(codec_.get(), stream()->codecpar);
    codec_->thread_count = 1;
    codec_->max_pixels = kMostPixels;
    // A frame that cannot be decoded would shift the numbers of those behind it.
    codec_->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
    if (const int error = avcodec_open2(codec_.get(), codec, nullptr); error < 0) {
      Refuse("its decoder does not begin: " + TextOf(error));
    }
    packet_.reset(av_packet_alloc());
    frame_.reset(av_frame_alloc());
    Complaint().clear();  // what was tried while looking for streams
  }

  // The next decoded frame, valid until the next call; null behind the last.
  const AVFrame* Next() {
    for (;;) {
      const int error = avcodec_receive_frame(codec_.get(), frame_.get());
      if (!Complaint().empty()) Refuse(At() + "is damaged: " + Complaint());
      if (error == 0) return Checked();
      if (error == AVERROR_EOF) return nullptr;
      if (error != AVERROR(EAGAIN)) Fail(error);
      Feed();
    }
  }

  double fps() const {
    AVRational rate = stream()->avg_frame_rate;
    if (rate.num <= 0 || rate.den <= 0) rate = stream()->r_frame_rate;
    return rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0;
  }

 private:
  AVStream* stream() const { return format_->streams[stream_]; }
  [[noreturn]] void Fail(int error) const { Refuse(At() + "cannot be decoded: " + TextOf(error)); }
  std::string At() const { return "frame " + std::to_string(number_) + " "; }

  void Feed() {
    for (;;) {
      const int error = av_read_frame(format_.get(), packet_.get());
      const bool ended = error == AVERROR_EOF;
      if (error < 0 && !ended) Fail(error);
      if (!ended && packet_->stream_index != stream_) {
        av_packet_unref(packet_.get());
        continue;
      }
      const int sent = avcodec_send_packet(codec_.get(), ended ? nullptr : packet_.get());
      av_packet_unref(packet_.get());
      if (sent < 0 && sent != AVERROR_EOF) Fail(sent);
      return;
    }
  }

  const AVFrame* Checked() {
    const AVFrame& frame = *frame_;
    if ((frame.flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame.decode_error_flags != 0) {
      Fail(AVERROR_INVALIDDATA);
    }
    if (number_ == 0) {
      width_ = frame.width;
      height_ = frame.height;
    }
    if (frame.width != width_ || frame.height != height_) {
      Refuse(At() + "has another size than the first");
    }
    if (++number_ > kMostFrames) Refuse("has more frames than are read");
    return &frame;
  }

  Held<AVIOContext> io_;
  Held<AVFormatContext> format_;
  Held<AVCodecContext> codec_;
  Held<AVPacket> packet_;
  Held<AVFrame> frame_;
  int stream_ = -1;
  int width_ = 0, height_ = 0;
  int64_t number_ = 0;
};

int MatrixOf(AVColorSpace space) {
  switch (space) {
    case AVCOL_SPC_BT709:
      return SWS_CS_ITU709;
    case AVCOL_SPC_FCC:
      return SWS_CS_FCC;
    case AVCOL_SPC_SMPTE240M:
      return SWS_CS_SMPTE240M;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL:
      return SWS_CS_BT2020;
    default:
      return SWS_CS_DEFAULT;  // BT.601
  }
}

class ToRgb {
 public:
  ToRgb() = default;
  ToRgb(const ToRgb&) = delete;
  ToRgb& operator=(const ToRgb&) = delete;
  ~ToRgb() { av_freep(&picture_[0]); }

  void Write(const AVFrame& frame) {
    const auto format = static_cast<AVPixelFormat>(frame.format);
    constexpr int kFlags = SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT;
    scaler_.reset(sws_getCachedContext(scaler_.release(), frame.width, frame.height, format,
                                       frame.width, frame.height, AV_PIX_FMT_RGB24, kFlags, nullptr,
                                       nullptr, nullptr));
    if (scaler_ == nullptr) Refuse("its pixels have a format that becomes no RGB");
    const AVPixFmtDescriptor* kind = av_pix_fmt_desc_get(format);
    if (kind != nullptr && (kind->flags & AV_PIX_FMT_FLAG_RGB) == 0) {
      const bool full =
          frame.color_range == AVCOL_RANGE_JPEG || std::strncmp(kind->name, "yuvj", 4) == 0;
      sws_setColorspaceDetails(scaler_.get(), sws_getCoefficients(MatrixOf(frame.colorspace)),
                               full ? 1 : 0, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16,
                               1 << 16);
    }
    if (picture_[0] == nullptr &&
        av_image_alloc(picture_, lines_, frame.width, frame.height, AV_PIX_FMT_RGB24, 64) < 0) {
      Refuse("a frame does not fit into memory");
    }
    sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, picture_, lines_);
    const auto row = static_cast<size_t>(frame.width) * 3;
    for (int y = 0; y < frame.height; ++y) {
      if (std::fwrite(picture_[0] + static_cast<ptrdiff_t>(y) * lines_[0], 1, row, stdout) != row) {
        Refuse("nobody reads its frames");
      }
    }
  }

 private:
  Held<SwsContext> scaler_;
  uint8_t* picture_[4] = {};
  int lines_[4] = {};
};

std::string VersionOf(const char* name, unsigned version) {
  return std::string(name) + " " + std::to_string(AV_VERSION_MAJOR(version)) + "." +
         std::to_string(AV_VERSION_MINOR(version)) + "." +
         std::to_string(AV_VERSION_MICRO(version));
}

void Count() {
  Video video;
  int64_t frames = 0;
  int width = 0, height = 0;
  while (const AVFrame* frame = video.Next()) {
    ++frames;
    width = frame->width;
    height = frame->height;
  }
  if (frames == 0) Refuse("holds no frame");
  const std::string decoder = VersionOf("libavcodec", avcodec_version()) + ", " +
                              VersionOf("libavformat", avformat_version()) + ", " +
                              VersionOf("libswscale", swscale_version());
  std::printf(
      "{\"decoder\": \"%s\", \"fps\": %.17g, \"frames\": %lld, \"height\": %d, "
      "\"width\": %d}\n",
      decoder.c_str(), video.fps(), static_cast<long long>(frames), height, width);
}

void Frames(const char* list) {
  std::vector<int64_t> wanted;
  const char* const end = list + std::strlen(list);
  for (const char* at = list; at < end; ++at) {
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    const bool ascends = wanted.empty() || number >= wanted.back();
    if (error != std::errc() || number < 0 || !ascends || (rest < end && *rest != ',')) {
      Refuse("frames: expected ascending numbers with commas between them");
    }
    if (wanted.empty() || number > wanted.back()) wanted.push_back(number);
    at = rest;
  }
  Video video;
  ToRgb to_rgb;
  size_t next = 0;
  for (int64_t number = 0; next < wanted.size(); ++number) {
    const AVFrame* frame = video.Next();
    if (frame == nullptr) Refuse("ends before frame " + std::to_string(wanted[next]));
    if (number == 0) std::printf("%d %d\n", frame->width, frame->height);
    if (number != wanted[next]) continue;
    to_rgb.Write(*frame);
    ++next;
  }
}

}  // namespace

int main(int count, char** arguments) {
  LimitAll();
  av_log_set_callback(Listen);
  const std::string mode = count > 1 ? arguments[1] : "";
  if (mode == "count" && count == 2) {
    Count();
  } else if (mode == "frames" && count == 3) {
    Frames(arguments[2]);
  } else {
    Refuse("usage: kvgauge-video count | frames NUMBER,NUMBER... < FILE");
  }
  return std::fflush(stdout) == 0 ? 0 : 2;
}
