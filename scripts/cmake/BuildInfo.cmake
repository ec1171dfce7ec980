# Writes the source that says what the program was built from; touches nothing while that stays, so
# a new commit costs one small file and a link.
#   cmake -D SOURCE=tree -D VERSION=0.1.0 -D OUT=build_info.cpp -P BuildInfo.cmake
set(revision "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "// Written by scripts/cmake/BuildInfo.cmake.
#include \"harness/build_info.h\"

namespace kvgauge {

BuildInfo ThisBuild() { return {.version = \"${VERSION}\", .revision = \"${revision}\"}; }

}  // namespace kvgauge
")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
