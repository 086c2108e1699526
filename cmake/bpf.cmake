# SPDX-License-Identifier: MIT
# The BPF programs of bpf/*.bpf.c, compiled by clang and made into headers by bpftool, and their loader. Optional: what is
# missing is told here, and by `martlet trace`.
#
# Sets MRT_BPF_SOURCES (of the loader, or of what stands in for it) and MRT_BPF_MISSING ("" or what is missing), and makes
# the target martlet_bpf, which has their settings.

option(MRT_BPF "Build the BPF programs of `martlet trace`, if clang, bpftool and libbpf are there" ON)

add_library(martlet_bpf INTERFACE)
set(MRT_BPF_SOURCES "${CMAKE_CURRENT_SOURCE_DIR}/bpf/notes.c")
set(MRT_BPF_MISSING)
if(MRT_BPF)
	find_program(MRT_BPF_CLANG NAMES clang clang-14 clang-15 clang-16)
	find_program(MRT_BPFTOOL bpftool PATHS /usr/sbin /sbin)
	pkg_check_modules(LIBBPF IMPORTED_TARGET libbpf>=1.0)
	if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
		list(APPEND MRT_BPF_MISSING "x86-64, the one machine that has probes")
	endif()
	if(NOT MRT_BPF_CLANG)
		list(APPEND MRT_BPF_MISSING "clang")
	endif()
	if(NOT MRT_BPFTOOL)
		list(APPEND MRT_BPF_MISSING "bpftool")
	endif()
	if(NOT LIBBPF_FOUND)
		list(APPEND MRT_BPF_MISSING "libbpf 1.0 (libbpf-dev)")
	endif()
else()
	set(MRT_BPF_MISSING "-DMRT_BPF=ON")
endif()
list(JOIN MRT_BPF_MISSING ", " MRT_BPF_MISSING)

if(MRT_BPF_MISSING)
	message(STATUS "No BPF programs, so `martlet trace` says so and does nothing; missing: ${MRT_BPF_MISSING}")
	list(APPEND MRT_BPF_SOURCES "${CMAKE_CURRENT_SOURCE_DIR}/bpf/absent.c")
	target_compile_definitions(martlet_bpf INTERFACE "MRT_TRACER_MISSING=\"${MRT_BPF_MISSING}\"")
	return()
endif()

# Freestanding, so that <stdint.h> is clang's own: glibc's does not know this machine.
set(MRT_BPF_FLAGS -g -O2 -target bpf -mcpu=v3 -ffreestanding -Wall -Wextra -Wno-unused-parameter -D__TARGET_ARCH_x86
	"-I${CMAKE_CURRENT_SOURCE_DIR}/include")
if(CMAKE_LIBRARY_ARCHITECTURE)
	list(APPEND MRT_BPF_FLAGS -idirafter "/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}") # <asm/types.h>
endif()
if(MRT_WERROR)
	list(APPEND MRT_BPF_FLAGS -Werror)
endif()
foreach(dir ${LIBBPF_INCLUDE_DIRS})
	list(APPEND MRT_BPF_FLAGS "-I${dir}")
endforeach()

set(MRT_BPF_DIR "${CMAKE_BINARY_DIR}/bpf")
file(MAKE_DIRECTORY "${MRT_BPF_DIR}")
file(GLOB MRT_BPF_PROGRAMS CONFIGURE_DEPENDS bpf/*.bpf.c)
set(MRT_BPF_SKELETONS)
foreach(program ${MRT_BPF_PROGRAMS})
	get_filename_component(name "${program}" NAME_WE)
	set(skeleton "${MRT_BPF_DIR}/mrt_${name}_bpf.skel.h")
	# `gen object` leaves the debug information out, but for the types.
	add_custom_command(OUTPUT "${skeleton}"
		COMMAND "${MRT_BPF_CLANG}" ${MRT_BPF_FLAGS} -MD -MF "${MRT_BPF_DIR}/${name}.d" -MT "${skeleton}"
			-c "${program}" -o "${MRT_BPF_DIR}/${name}.tmp.o"
		COMMAND "${MRT_BPFTOOL}" gen object "${MRT_BPF_DIR}/${name}.o" "${MRT_BPF_DIR}/${name}.tmp.o"
		COMMAND "${MRT_BPFTOOL}" gen skeleton "${MRT_BPF_DIR}/${name}.o" name "mrt_${name}_bpf" > "${skeleton}"
		DEPENDS "${program}"
		DEPFILE "${MRT_BPF_DIR}/${name}.d"
		COMMENT "BPF program ${name}"
		VERBATIM)
	list(APPEND MRT_BPF_SKELETONS "${skeleton}")
endforeach()
list(APPEND MRT_BPF_SOURCES "${CMAKE_CURRENT_SOURCE_DIR}/bpf/tracer.c" ${MRT_BPF_SKELETONS})
target_include_directories(martlet_bpf SYSTEM INTERFACE "${MRT_BPF_DIR}")
target_link_libraries(martlet_bpf INTERFACE PkgConfig::LIBBPF)
