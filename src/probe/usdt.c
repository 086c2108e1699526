/* SPDX-License-Identifier: MIT */
/*
 * The probes' stubs, notes and semaphores, in the assembler's own words.
 *
 * A stub is a 5-byte nop and a return. Not inline nops as <sys/sdt.h> makes them: the kernel turns a traced 5-byte nop
 * into a call, which writes 8 bytes below the stack pointer. In the middle of a leaf function that is the caller's data
 * (the red zone); at the entry of a function of its own nothing lives there. It also gives one place per probe, fixed
 * registers for the arguments, and 16-byte alignment, so that the nop never crosses a page.
 *
 * The semaphores have pages of their own. uprobes work on file offsets; a linker that maps one page of the file through
 * several segments (lld does) would let the kernel's increment go to another copy than the one that we read.
 *
 * No sources but the list in usdt.h and the format of notes (https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation).
 */
#include "probe/usdt.h"

#if MRT__USDT

#define NOTE_1 "8@%rdi"
#define NOTE_2 NOTE_1 " 8@%rsi"
#define NOTE_3 NOTE_2 " 8@%rdx"
#define NOTE_4 NOTE_3 " 8@%rcx"
#define NOTE_5 NOTE_4 " 8@%r8"
#define NOTE_6 NOTE_5 " 8@%r9"

#define SEMAPHORE(name, text, ...)                                      \
	".hidden mrt__sem_" #name "\n.globl mrt__sem_" #name "\n"       \
	".type mrt__sem_" #name ", @object\n"                           \
	".size mrt__sem_" #name ", 2\n"                                 \
	"mrt__sem_" #name ": .2byte 0\n"

__asm__(".pushsection .probes,\"aw\",@progbits\n.balign 4096\n" MRT__PROBES(SEMAPHORE) ".balign 4096\n.popsection\n");

#define STUB(name, text, ...)                                                                           \
	".balign 16\n.hidden mrt__usdt_" #name "\n.globl mrt__usdt_" #name "\n"                         \
	".type mrt__usdt_" #name ", @function\n"                                                        \
	"mrt__usdt_" #name ":\n990: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\nret\n"                          \
	".size mrt__usdt_" #name ", .-mrt__usdt_" #name "\n"                                            \
	".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n"                                         \
	".4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n"                                     \
	"992: .balign 4\n993: .8byte 990b, _.stapsdt.base, mrt__sem_" #name "\n"                        \
	".asciz \"martlet\"\n.asciz \"" #name "\"\n"                                                    \
	".asciz \"" MRT__PASTE(NOTE_, MRT__ARGS_NR(__VA_ARGS__)) "\"\n"                                 \
	"994: .balign 4\n.popsection\n"

__asm__(".pushsection .text\n" MRT__PROBES(STUB) ".popsection\n"
	".ifndef _.stapsdt.base\n.pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
	".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n"
	".size _.stapsdt.base, 1\n.popsection\n.endif\n");

#else

typedef int mrt__no_probes_on_this_machine;

#endif
