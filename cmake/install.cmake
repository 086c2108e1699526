# SPDX-License-Identifier: MIT
# Headers, both libraries, the CMake package, the pkg-config file, the manual pages and the command.

include(CMakePackageConfigHelpers)

set(MRT_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/martlet")

install(TARGETS martlet martlet_static
	EXPORT martletTargets
	RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
	LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
	ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
	FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT martletTargets NAMESPACE martlet:: DESTINATION "${MRT_CMAKE_DIR}")

configure_package_config_file(
	"${CMAKE_CURRENT_SOURCE_DIR}/cmake/martletConfig.cmake.in"
	"${CMAKE_CURRENT_BINARY_DIR}/martletConfig.cmake"
	INSTALL_DESTINATION "${MRT_CMAKE_DIR}")
write_basic_package_version_file(
	"${CMAKE_CURRENT_BINARY_DIR}/martletConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
	"${CMAKE_CURRENT_BINARY_DIR}/martletConfig.cmake"
	"${CMAKE_CURRENT_BINARY_DIR}/martletConfigVersion.cmake"
	DESTINATION "${MRT_CMAKE_DIR}")

# `cmake --install --prefix` does not rewrite a configured absolute prefix, so the file says how many folders up
# the prefix is. The root here is only a stand-in for any prefix.
file(RELATIVE_PATH MRT_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" MRT_PC_PREFIX "${MRT_PC_PREFIX}")
configure_file(cmake/martlet.pc.in "${CMAKE_CURRENT_BINARY_DIR}/martlet.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/martlet.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

file(GLOB MRT_MAN_3 CONFIGURE_DEPENDS docs/man/*.3)
file(GLOB MRT_MAN_7 CONFIGURE_DEPENDS docs/man/*.7)
install(FILES ${MRT_MAN_3} DESTINATION "${CMAKE_INSTALL_MANDIR}/man3")
install(FILES ${MRT_MAN_7} DESTINATION "${CMAKE_INSTALL_MANDIR}/man7")

if(TARGET martlet_cmd)
	install(TARGETS martlet_cmd RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
	install(FILES docs/man/martlet.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
endif()
