# Writes the header that says which interface a plugin is compiled against; touches nothing while that
# stays.
#   cmake -D VERSION=0.1.0 -D "HEADERS=a.h;b.h" -D OUT=interface_hash.h -P InterfaceHash.cmake
set(hashes "")
foreach(header ${HEADERS})
  file(SHA256 ${header} hash)
  string(APPEND hashes "${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
set(text "// Written by scripts/cmake/InterfaceHash.cmake.
#pragma once

#define KVG_INTERFACE_VERSION \"${VERSION}\"
#define KVG_INTERFACE_HASH \"${hash}\"
")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
