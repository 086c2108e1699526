/* SPDX-License-Identifier: MIT */
/* See notes.h. 64-bit ELF of this machine's byte order; the file is trusted, being ours. */
#include "notes.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u

struct elf {
	const char *mem;
	size_t bytes;
	const Elf64_Ehdr *eh;
	const Elf64_Phdr *ph;
	const Elf64_Shdr *sh;
};

static const Elf64_Shdr *section(const struct elf *e, const char *name)
{
	const char *names = e->mem + e->sh[e->eh->e_shstrndx].sh_offset;
	unsigned i;

	for (i = 0; i < e->eh->e_shnum; i++)
		if (strcmp(names + e->sh[i].sh_name, name) == 0)
			return &e->sh[i];
	return NULL;
}

static uint64_t to_offset(const struct elf *e, uint64_t address)
{
	unsigned i;

	for (i = 0; i < e->eh->e_phnum; i++)
		if (e->ph[i].p_type == PT_LOAD && address >= e->ph[i].p_vaddr &&
		    address < e->ph[i].p_vaddr + e->ph[i].p_filesz)
			return address - e->ph[i].p_vaddr + e->ph[i].p_offset;
	return 0;
}

static unsigned writable_segments(const struct elf *e, uint64_t offset)
{
	uint64_t page = offset / PAGE * PAGE;
	unsigned i, nr = 0;

	for (i = 0; i < e->eh->e_phnum; i++) {
		const Elf64_Phdr *p = &e->ph[i];

		if (p->p_type == PT_LOAD && p->p_flags & PF_W && p->p_filesz > 0 &&
		    p->p_offset / PAGE * PAGE <= page && page < p->p_offset + p->p_filesz)
			nr++;
	}
	return nr;
}

static bool is_alone(const struct elf *e, uint64_t address)
{
	const Elf64_Shdr *s = section(e, ".probes");

	return s && s->sh_addr % PAGE == 0 && s->sh_size % PAGE == 0 && address >= s->sh_addr &&
	       address < s->sh_addr + s->sh_size;
}

static void read_note(const struct elf *e, const char *desc, uint64_t base_now, struct note *ret)
{
	uint64_t words[3];
	const char *s = desc + sizeof(words);

	memcpy(words, desc, sizeof(words));
	memset(ret, 0, sizeof(*ret));
	ret->address = words[0] + base_now - words[1];
	ret->sem_address = words[2] ? words[2] + base_now - words[1] : 0;
	ret->offset = to_offset(e, ret->address);
	ret->sem_offset = ret->sem_address ? to_offset(e, ret->sem_address) : 0;
	ret->sem_alone = is_alone(e, ret->sem_address);
	ret->sem_segments = writable_segments(e, ret->sem_offset);
	memcpy(ret->code, e->mem + ret->offset, sizeof(ret->code));
	snprintf(ret->provider, sizeof(ret->provider), "%s", s);
	s += strlen(s) + 1;
	snprintf(ret->name, sizeof(ret->name), "%s", s);
	s += strlen(s) + 1;
	snprintf(ret->args, sizeof(ret->args), "%s", s);
}

static int read_notes(const struct elf *e, struct note ret[NOTES_MAX])
{
	const Elf64_Shdr *notes = section(e, ".note.stapsdt"), *base = section(e, ".stapsdt.base");
	size_t at = 0;
	int nr = 0;

	if (!notes || !base)
		return -ENOENT;
	while (at + sizeof(Elf64_Nhdr) <= notes->sh_size && nr < NOTES_MAX) {
		const char *mem = e->mem + notes->sh_offset + at;
		Elf64_Nhdr h;

		memcpy(&h, mem, sizeof(h));
		if (h.n_type == 3)
			read_note(e, mem + sizeof(h) + (h.n_namesz + 3) / 4 * 4, base->sh_addr, &ret[nr++]);
		at += sizeof(h) + (h.n_namesz + 3) / 4 * 4 + (h.n_descsz + 3) / 4 * 4;
	}
	return nr;
}

int notes_read(const char *path, struct note ret[NOTES_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), nr;
	struct elf e = { 0 };
	struct stat st;
	void *mem;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		nr = -errno;
		close(fd);
		return nr;
	}
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (mem == MAP_FAILED)
		return -errno;
	e.mem = mem;
	e.bytes = (size_t)st.st_size;
	e.eh = (const void *)e.mem;
	e.ph = (const void *)(e.mem + e.eh->e_phoff);
	e.sh = (const void *)(e.mem + e.eh->e_shoff);
	nr = read_notes(&e, ret);
	munmap(mem, e.bytes);
	return nr;
}
