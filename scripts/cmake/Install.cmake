# What `cmake --install` and CPack put where: the program, what it reads, and what a plugin is
# compiled with. The program finds its files from where it lies, so the prefix may be moved.
include_guard()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(share ${CMAKE_INSTALL_DATADIR}/kvgauge)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/kvgauge)

install(TARGETS kvgauge EXPORT kvgaugeTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET kvgauge-video)
  install(TARGETS kvgauge-video RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY configs models examples DESTINATION ${share})
# Messages of tasks without data name it.
install(PROGRAMS scripts/fetch_data DESTINATION ${share}/scripts)
install(FILES scripts/fetch_data.tsv DESTINATION ${share}/scripts)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

# kvgauge::plugin: how the sources of a plugin are compiled. Their symbols come from the program.
install(DIRECTORY core/include/core kernels/include/kernels methods/include/methods
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvgauge)
install(FILES methods/plugin/plugin_entry.cpp methods/plugin/plugin_tag.h
              ${PROJECT_BINARY_DIR}/methods/plugin/interface_hash.h DESTINATION ${share}/plugin)
add_library(kvgauge_plugin INTERFACE)
set_target_properties(kvgauge_plugin PROPERTIES EXPORT_NAME plugin)
target_include_directories(kvgauge_plugin INTERFACE
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/kvgauge>)
target_compile_features(kvgauge_plugin INTERFACE cxx_std_20)
target_compile_definitions(kvgauge_plugin INTERFACE KVG_PLUGIN)
# A stage gives the same bits in a plugin as in the program.
target_compile_options(kvgauge_plugin INTERFACE -ffp-contract=off)
target_link_libraries(kvgauge_plugin INTERFACE nlohmann_json::nlohmann_json)
install(TARGETS kvgauge_plugin EXPORT kvgaugeTargets)

install(EXPORT kvgaugeTargets NAMESPACE kvgauge:: DESTINATION ${package})
configure_package_config_file(scripts/cmake/kvgaugeConfig.cmake.in kvgaugeConfig.cmake
                              INSTALL_DESTINATION ${package} PATH_VARS share)
# Which version a plugin fits exactly is held when it is loaded (methods/plugin.h).
write_basic_package_version_file(kvgaugeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvgaugeConfig.cmake
              ${PROJECT_BINARY_DIR}/kvgaugeConfigVersion.cmake DESTINATION ${package})

set(CPACK_GENERATOR TGZ)
find_program(KVG_DPKG_DEB dpkg-deb)
if(KVG_DPKG_DEB)
  set(CPACK_GENERATOR DEB)
endif()
set(CPACK_PACKAGE_NAME kvgauge)
set(CPACK_PACKAGE_VENDOR "The kvgauge authors")
set(CPACK_PACKAGE_CONTACT "The kvgauge authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
# The certificates of judges.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
# To compile plugins.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, cmake, nlohmann-json3-dev")
include(CPack)
