# SPDX-License-Identifier: MIT
# MRT_SANITIZE=none|address|thread. "address" means address and undefined behaviour together. The flags hold for the
# whole build: one uninstrumented object would blind the tool to what it does.

set(MRT_SANITIZE "none" CACHE STRING "none, address (with undefined) or thread")
set_property(CACHE MRT_SANITIZE PROPERTY STRINGS none address thread)

if(MRT_SANITIZE STREQUAL "address")
	set(MRT_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(MRT_SANITIZE STREQUAL "thread")
	set(MRT_SANITIZE_FLAGS -fsanitize=thread -fno-omit-frame-pointer)
elseif(MRT_SANITIZE STREQUAL "none")
	set(MRT_SANITIZE_FLAGS)
else()
	message(FATAL_ERROR "MRT_SANITIZE is '${MRT_SANITIZE}'; it may be none, address or thread")
endif()

add_compile_options(${MRT_SANITIZE_FLAGS})
add_link_options(${MRT_SANITIZE_FLAGS})
