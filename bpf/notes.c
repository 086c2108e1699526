/* SPDX-License-Identifier: MIT */
/*
 * See notes.h. The file is mapped, and every place in it is checked before it is looked at: it may be any file that some
 * process has mapped. (A file that is truncated meanwhile would still kill us; so would it its own process.)
 */
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
#define NOTE_TYPE 3u            /* of SystemTap's notes */
#define NOTE_WORDS 3u           /* place, base, semaphore */

struct elf {
	const char *mem;
	uint64_t bytes;
	const Elf64_Phdr *ph;
	const Elf64_Shdr *sh;
	unsigned ph_nr, sh_nr;
};

/* [bytes] of the file; NULL: it does not have them. */
static const void *at(const struct elf *e, uint64_t offset, uint64_t bytes)
{
	return offset <= e->bytes && bytes <= e->bytes - offset ? e->mem + offset : NULL;
}

/* A string that ends before `end`; NULL: none does. */
static const char *string_at(const char *s, const char *end)
{
	return s < end && memchr(s, '\0', (size_t)(end - s)) ? s : NULL;
}

static int open_elf(struct elf *e)
{
	const Elf64_Ehdr *eh = at(e, 0, sizeof(*eh));

	if (!eh || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 || eh->e_ident[EI_CLASS] != ELFCLASS64 ||
	    eh->e_ident[EI_DATA] != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB) ||
	    eh->e_phoff % _Alignof(Elf64_Phdr) || eh->e_shoff % _Alignof(Elf64_Shdr))
		return -ENOEXEC;
	e->ph_nr = eh->e_phnum;
	e->ph = at(e, eh->e_phoff, (uint64_t)e->ph_nr * sizeof(*e->ph));
	e->sh_nr = eh->e_shnum;
	e->sh = at(e, eh->e_shoff, (uint64_t)e->sh_nr * sizeof(*e->sh));
	return e->ph && e->sh && eh->e_shstrndx < e->sh_nr ? 0 : -ENOEXEC;
}

static const Elf64_Shdr *section(const struct elf *e, const char *name)
{
	const Elf64_Shdr *strings = &e->sh[((const Elf64_Ehdr *)(const void *)e->mem)->e_shstrndx];
	const char *names = at(e, strings->sh_offset, strings->sh_size);
	unsigned i;

	for (i = 0; names && i < e->sh_nr; i++) {
		const char *s = e->sh[i].sh_name < strings->sh_size ?
				string_at(names + e->sh[i].sh_name, names + strings->sh_size) : NULL;

		if (s && strcmp(s, name) == 0)
			return &e->sh[i];
	}
	return NULL;
}

static uint64_t to_offset(const struct elf *e, uint64_t address)
{
	unsigned i;

	for (i = 0; i < e->ph_nr; i++)
		if (e->ph[i].p_type == PT_LOAD && address >= e->ph[i].p_vaddr &&
		    address - e->ph[i].p_vaddr < e->ph[i].p_filesz)
			return address - e->ph[i].p_vaddr + e->ph[i].p_offset;
	return 0;
}

static unsigned writable_segments(const struct elf *e, uint64_t offset)
{
	uint64_t page = offset / PAGE * PAGE;
	unsigned i, nr = 0;

	for (i = 0; i < e->ph_nr; i++) {
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
	       address - s->sh_addr < s->sh_size;
}

static int read_note(const struct elf *e, const char *desc, const char *end, uint64_t base_now, struct note *ret)
{
	const char *provider, *name = NULL, *args = NULL, *code;
	uint64_t words[NOTE_WORDS];

	if ((size_t)(end - desc) < sizeof(words))
		return -ENOEXEC;
	memcpy(words, desc, sizeof(words));
	provider = string_at(desc + sizeof(words), end);
	if (provider)
		name = string_at(provider + strlen(provider) + 1, end);
	if (name)
		args = string_at(name + strlen(name) + 1, end);
	if (!args)
		return -ENOEXEC;
	memset(ret, 0, sizeof(*ret));
	(void)snprintf(ret->provider, sizeof(ret->provider), "%s", provider); /* cut: then it is not ours */
	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	(void)snprintf(ret->args, sizeof(ret->args), "%s", args);
	ret->address = words[0] + base_now - words[1];
	ret->sem_address = words[2] ? words[2] + base_now - words[1] : 0;
	ret->offset = to_offset(e, ret->address);
	ret->sem_offset = ret->sem_address ? to_offset(e, ret->sem_address) : 0;
	ret->sem_alone = is_alone(e, ret->sem_address);
	ret->sem_segments = writable_segments(e, ret->sem_offset);
	code = at(e, ret->offset, sizeof(ret->code));
	if (code)
		memcpy(ret->code, code, sizeof(ret->code));
	return 0;
}

static int read_notes(const struct elf *e, struct note ret[NOTES_MAX])
{
	const Elf64_Shdr *notes = section(e, ".note.stapsdt"), *base = section(e, ".stapsdt.base");
	uint64_t pos = 0;
	const char *mem;
	int nr = 0;

	if (!notes)
		return 0;
	mem = at(e, notes->sh_offset, notes->sh_size);
	if (!mem || !base)
		return -ENOEXEC;
	while (notes->sh_size - pos >= sizeof(Elf64_Nhdr) && nr < NOTES_MAX) {
		uint64_t name_bytes, desc_bytes, left = notes->sh_size - pos - sizeof(Elf64_Nhdr);
		const char *desc;
		Elf64_Nhdr h;

		memcpy(&h, mem + pos, sizeof(h));
		name_bytes = ((uint64_t)h.n_namesz + 3) / 4 * 4;
		desc_bytes = ((uint64_t)h.n_descsz + 3) / 4 * 4;
		if (name_bytes > left || desc_bytes > left - name_bytes)
			return -ENOEXEC;
		desc = mem + pos + sizeof(h) + name_bytes;
		if (h.n_type == NOTE_TYPE && read_note(e, desc, desc + h.n_descsz, base->sh_addr, &ret[nr]) == 0)
			nr++;
		pos += sizeof(h) + name_bytes + desc_bytes;
	}
	return nr;
}

int notes_read(const char *path, struct note ret[NOTES_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), nr;
	struct elf e = { 0 };
	struct stat st;
	void *mem;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		nr = -errno;
		(void)close(fd); /* only read */
		return nr;
	}
	if (!S_ISREG(st.st_mode) || st.st_size == 0) {
		(void)close(fd); /* only read */
		return -ENOEXEC;
	}
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	nr = mem == MAP_FAILED ? -errno : 0;
	(void)close(fd); /* only read */
	if (nr)
		return nr;
	e.mem = mem;
	e.bytes = (uint64_t)st.st_size;
	nr = open_elf(&e);
	if (!nr)
		nr = read_notes(&e, ret);
	(void)munmap(mem, (size_t)st.st_size); /* as it was mapped */
	return nr;
}
