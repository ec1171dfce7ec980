# Adds the room python where an interpreter with headers and pybind11 are there. Tests want NumPy
# beside them, so an interpreter that has it is taken first.
include_guard()
if(KVG_PYTHON STREQUAL "OFF" OR KVG_SANITIZE)
  return()  # a sanitizer's runtime would have to be in the interpreter
endif()
if(NOT DEFINED Python_EXECUTABLE AND NOT DEFINED SKBUILD)
  find_program(KVG_PYTHON_FIRST python3)
  foreach(candidate IN ITEMS ${KVG_PYTHON_FIRST} /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import numpy" RESULT_VARIABLE failed
                    OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(Python_EXECUTABLE ${candidate})
      break()
    endif()
  endforeach()
endif()
set(PYBIND11_FINDPYTHON ON)
find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
find_package(pybind11 2.10 CONFIG QUIET)
if(Python_FOUND AND pybind11_FOUND)
  add_subdirectory(python)
elseif(KVG_PYTHON STREQUAL "ON")
  message(FATAL_ERROR "KVG_PYTHON=ON: Python 3.10 with headers (${Python_EXECUTABLE}) and pybind11 "
                      "2.10 are needed: scripts/install_deps python")
else()
  message(STATUS "No Python module: no Python 3.10 with headers, or no pybind11")
endif()
