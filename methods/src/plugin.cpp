// SPDX-License-Identifier: Apache-2.0
#include "methods/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "core/files.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "methods/registry.h"
#include "plugin/plugin_tag.h"

namespace kvgauge {
namespace {

constexpr std::string_view kHowToBuild =
    "build it with kvgauge_add_plugin of CMake's package kvgauge";
constexpr int kHow = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;

std::vector<LoadedPlugin>& Loaded() {
  static std::vector<LoadedPlugin> loaded;
  return loaded;
}

// What went wrong in code of the plugin; to be called while an exception is handled.
std::string WhatWasThrown() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

// The dynamic linker trusts the file it maps, so a file that was cut short is found out here.
std::string FaultOfObject(std::string_view bytes) {
  Elf64_Ehdr header;
  if (!bytes.starts_with(std::string_view(ELFMAG, SELFMAG)) || bytes.size() < sizeof(header)) {
    return "is no shared object";
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN) {
    return "is no shared object of this machine";
  }
  const uint64_t table_bytes = uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shoff > bytes.size() || table_bytes > bytes.size() - header.e_shoff) {
    return "is cut short";
  }
  return "";
}

// Version, hash of the headers, ABI: the fields of a tag.
std::vector<std::string> TagFields(std::string_view bytes) {
  constexpr std::string_view kMark = KVG_PLUGIN_MARK;
  constexpr size_t kLongestField = 128;
  std::vector<std::string> fields;
  size_t at = bytes.find(kMark);
  if (at == std::string_view::npos) return fields;
  at += kMark.size();
  while (fields.size() < 3) {
    const std::string_view rest = bytes.substr(at, kLongestField);
    const size_t end = rest.find('|');
    if (end == std::string_view::npos) return {};
    fields.emplace_back(rest.substr(0, end));
    at += end + 1;
  }
  return fields;
}

std::string FaultOfTag(std::string_view bytes) {
  const std::vector<std::string> its = TagFields(bytes), ours = TagFields(KVG_PLUGIN_TAG);
  if (its.empty())
    return StrCat("is no plugin of kvgauge: it has no ", kPluginEntry, "; ", kHowToBuild);
  if (its[0] != ours[0] || its[1] != ours[1]) {
    return StrCat("was compiled against kvgauge ", its[0], " (interface ", its[1],
                  "), and this is kvgauge ", ours[0], " (interface ", ours[1],
                  "); compile it again against this one");
  }
  if (its[2] != ours[2]) {
    return StrCat("was compiled for ", its[2], ", and this program for ", ours[2],
                  "; use the same compiler for both");
  }
  return "";
}

// Everything that is written to a pipe until its last writer is gone.
std::string ReadAll(int file) {
  std::string text;
  char chunk[512];
  while (true) {
    const ssize_t got = read(file, chunk, sizeof(chunk));
    if (got > 0) text.append(chunk, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

// Constructors of static objects run while an object is loaded, and an exception in one of them
// ends the process. A child loads it first: why that ended; empty: it did not.
std::string FaultOfStart(const std::string& path) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    dup2(ends[1], STDERR_FILENO);
    dlopen(path.c_str(), kHow);
    _exit(0);
  }
  close(ends[1]);
  const std::string said = child > 0 ? ReadAll(ends[0]) : "";
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) return "";
  std::vector<std::string> lines;
  for (const std::string& line : Split(Trim(said), '\n')) lines.emplace_back(Trim(line));
  const std::string reason = said.empty() ? strsignal(WTERMSIG(status)) : Join(lines, ", ");
  return StrCat("ends the program while it is loaded: ", reason);
}

// Opens the object and finds its list of stages.
Result<const PluginStage*> Open(const std::string& path) {
  const std::string fault = FaultOfStart(path);
  if (!fault.empty()) return BadInput(fault);
  void* library = dlopen(path.c_str(), kHow);
  if (library == nullptr) {
    const char* reason = dlerror();
    return BadInput(StrCat("cannot be loaded: ", reason != nullptr ? reason : "no reason given"));
  }
  const auto entry = reinterpret_cast<PluginEntry>(dlsym(library, kPluginEntry));
  if (entry == nullptr) {
    return BadInput(StrCat("is no plugin of kvgauge: it has no ", kPluginEntry, "; ", kHowToBuild));
  }
  return entry();
}

Result<std::vector<StageSpec>> SpecsOf(const PluginStage* first) {
  std::vector<StageSpec> specs;
  std::set<std::string> names;
  for (const PluginStage* stage = first; stage != nullptr; stage = stage->next) {
    try {
      specs.push_back(stage->spec());
    } catch (...) {
      return BadInput(StrCat("throws while its stages are registered: ", WhatWasThrown()));
    }
    const std::string fault = FaultOf(specs.back());
    if (!fault.empty()) return BadInput(fault);
    const std::string name = NameOf(specs.back());
    if (!names.insert(name).second) return BadInput(StrCat("registered twice: ", name));
  }
  if (specs.empty()) return BadInput("registers no stage; KVG_REGISTER_STAGE does");
  return specs;
}

Status Load(const std::string& path) {
  KVG_ASSIGN(const std::string bytes, ReadFile(path));
  LoadedPlugin plugin = {.path = path, .digest = Sha256Hex(bytes), .stages = {}};
  const auto& loaded = LoadedPlugins();
  if (std::any_of(loaded.begin(), loaded.end(),
                  [&](const LoadedPlugin& other) { return other.digest == plugin.digest; })) {
    return {};
  }
  for (const std::string& fault : {FaultOfObject(bytes), FaultOfTag(bytes)}) {
    if (!fault.empty()) return BadInput(StrCat(path, ": ", fault));
  }
  const Result<const PluginStage*> first = Open(path);
  if (!first.ok()) return first.error().Wrap(path);
  Result<std::vector<StageSpec>> specs = SpecsOf(*first);
  if (!specs.ok()) return specs.error().Wrap(path);
  for (StageSpec& spec : *specs) {
    plugin.stages.push_back(NameOf(spec));
    spec.plugin = plugin.digest;
    const StageRegistrar registered(std::move(spec));
  }
  std::sort(plugin.stages.begin(), plugin.stages.end());
  Loaded().push_back(std::move(plugin));
  return {};
}

}  // namespace

Status LoadPlugin(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  const Status status = Load(error ? path : absolute.lexically_normal().string());
  if (status.ok()) return {};
  // Whatever the reason, it is the wrong file to give.
  return BadInput(StrCat("plugin ", status.error().message));
}

const std::vector<LoadedPlugin>& LoadedPlugins() { return Loaded(); }

}  // namespace kvgauge
