# SPDX-License-Identifier: MIT
# The one list of warnings. mrt_warnings(<target>) turns them on for a target of ours; users of the library never
# see them, because they are private.

include(CheckCCompilerFlag)

set(MRT_WARNINGS
	-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Wcast-qual
	-Wpointer-arith -Wformat=2 -Wimplicit-fallthrough)

if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
	list(APPEND MRT_WARNINGS -Wlogical-op -Wduplicated-cond)
endif()

if(MRT_SANITIZE STREQUAL "none")
	list(APPEND MRT_WARNINGS -Wnull-dereference)
elseif(CMAKE_C_COMPILER_ID STREQUAL "GNU")
	# Instrumented code has paths that the programmer did not write; gcc warns about those too. -Wtsan is about
	# stand-alone fences, of which the kernel's ring needs one.
	list(APPEND MRT_WARNINGS -Wno-maybe-uninitialized -Wno-tsan)
endif()

if(MRT_WERROR)
	list(APPEND MRT_WARNINGS -Werror)
endif()

function(mrt_warnings target)
	target_compile_options(${target} PRIVATE ${MRT_WARNINGS})
endfunction()
