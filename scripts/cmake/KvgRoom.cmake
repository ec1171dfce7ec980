# One room = one library target kvgauge_<name>: sources by glob, headers in include/<name>/.
include_guard()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
# Under a sanitizer more optimisation costs more time to compile than it saves in tests.
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1")

find_program(KVG_CCACHE ccache)
if(KVG_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KVG_CCACHE})
endif()

find_package(OpenMP REQUIRED COMPONENTS CXX)

add_library(kvgauge_flags INTERFACE)
# No contraction: a row must get the same bits in a vector body and in its scalar tail.
# Kernels that want fused multiply-adds write them.
target_compile_options(kvgauge_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       -Woverloaded-virtual -ffp-contract=off -fno-math-errno)
# gcc 12 sees impossible overlaps inside std::string (its bug 105651).
target_compile_options(kvgauge_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# Brace elision in tables of character arrays is meant.
target_compile_options(kvgauge_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-braces>)
if(KVG_WERROR)
  target_compile_options(kvgauge_flags INTERFACE -Werror)
endif()
if(KVG_SANITIZE)
  target_compile_options(kvgauge_flags INTERFACE -fsanitize=${KVG_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(kvgauge_flags INTERFACE -fsanitize=${KVG_SANITIZE})
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
