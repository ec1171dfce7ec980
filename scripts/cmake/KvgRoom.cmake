# One room = one library target kvgauge_<name>: sources by glob, headers in include/<name>/.
include_guard()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# The flags of a build type are CMake's or the user's; CMakePresets.json gives those of this project.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo, ..." FORCE)
endif()
if(PROJECT_BINARY_DIR STREQUAL "${PROJECT_SOURCE_DIR}/build/dev" AND
   NOT CMAKE_BUILD_TYPE STREQUAL "Dev")
  message(FATAL_ERROR "build/dev has the build type ${CMAKE_BUILD_TYPE}, the preset dev has Dev: "
                      "run cmake --preset dev")
endif()

find_program(KVG_CCACHE ccache)
if(KVG_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache asks for before it trusts precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${KVG_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${KVG_CCACHE})
endif()

find_package(OpenMP REQUIRED COMPONENTS CXX)

add_library(kvgauge_flags INTERFACE)
# No contraction: a row must get the same bits in a vector body and in its scalar tail.
# Kernels that want fused multiply-adds write them.
target_compile_options(kvgauge_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       -Woverloaded-virtual -ffp-contract=off -fno-math-errno ${OpenMP_CXX_FLAGS})
# gcc 12 sees impossible overlaps inside std::string (its bug 105651).
target_compile_options(kvgauge_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# Brace elision in tables of character arrays is meant. A loop that is not vectorized at -O1 is none
# of a sanitizer's business.
target_compile_options(kvgauge_flags INTERFACE
                       $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-braces -Wno-pass-failed>)
# gcc looks for garbage from 128 MiB on, again and again in the batches below: a tenth of their time.
target_compile_options(kvgauge_flags INTERFACE
                       $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>)
if(KVG_WERROR)
  target_compile_options(kvgauge_flags INTERFACE -Werror)
endif()
if(KVG_SANITIZE)
  target_compile_options(kvgauge_flags INTERFACE -fsanitize=${KVG_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(KVG_SANITIZE MATCHES "undefined")
    # Kernels take three times as long to compile with these. What is dereferenced of them the address
    # sanitizer sees there; every other target checks what is only computed as well.
    set(is_kernel_code $<BOOL:$<TARGET_PROPERTY:KVG_KERNEL_CODE>>)
    target_compile_options(kvgauge_flags INTERFACE
                           $<${is_kernel_code}:-fno-sanitize=null,object-size,pointer-overflow>)
  endif()
  target_link_options(kvgauge_flags INTERFACE -fsanitize=${KVG_SANITIZE})
endif()

# Most of the time to compile a file goes into the same few headers, so they are compiled once. That
# does not excuse a file from including what it uses: KVG_PCH=OFF builds without. JSON is not among
# them: gcc would instantiate its parser in every file, whether that reads JSON or not.
option(KVG_PCH "Precompile the standard headers" ON)
if(KVG_PCH)
  set(kvg_pch_headers <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional>
      <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc 12 warns about its own library when that comes precompiled.
    target_compile_options(kvgauge_flags INTERFACE -fpch-preprocess -Wno-array-bounds
                           -Wno-stringop-overflow -Wno-stringop-overread)
  else()
    target_compile_options(kvgauge_flags INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  # Owners of the compiled headers; a target reuses those of an owner with the same flags.
  function(kvg_pch_owner name)
    add_library(${name} OBJECT ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/pch.cpp)
    target_link_libraries(${name} PRIVATE kvgauge_flags ${ARGN})
  endfunction()
  kvg_pch_owner(kvgauge_pch)
  target_precompile_headers(kvgauge_pch PRIVATE ${kvg_pch_headers})
endif()
function(kvg_use_pch target owner)
  if(KVG_PCH)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# Sources compiled many at a time: headers, and what templates make of them, are read once for all
# of them. Names within a room are told apart for that, unnamed namespaces or not. Sources with flags
# of their own are never merged.
option(KVG_UNITY "Compile sources in batches: quicker as a whole, slower after a change" OFF)
set(KVG_UNITY_BATCH 12 CACHE STRING "Sources in a batch; clang with sanitizers gains from more")
if(KVG_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE ${KVG_UNITY_BATCH})
endif()

# kvg_room(<name> [SOURCES ...] [PUBLIC targets ...] [PRIVATE targets ...])
function(kvg_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(kvgauge_${name} STATIC ${ARG_SOURCES})
  target_include_directories(kvgauge_${name}
    PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include
    PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(kvgauge_${name}
    PUBLIC ${ARG_PUBLIC}
    PRIVATE kvgauge_flags ${ARG_PRIVATE})
endfunction()
