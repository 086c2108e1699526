/* SPDX-License-Identifier: MIT */
/*
 * See notes.h. It may be any file that some process has mapped, whose owner may change and truncate it meanwhile: so the few parts
 * that are looked at are read, not mapped, and every place in them is checked before it is looked at.
 */
#include "notes.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u
#define NOTE_TYPE 3u            /* of SystemTap's notes */
#define NOTE_WORDS 3u           /* place, base, semaphore */
#define PART_MAX (16u << 20)    /* bytes of a part: headers, names of sections, notes */

struct elf {
	int fd;
	Elf64_Ehdr eh;
	Elf64_Phdr *ph;         /* [eh.e_phnum] */
	Elf64_Shdr *sh;         /* [eh.e_shnum] */
	char *names;            /* [names_bytes] of the sections */
	uint64_t names_bytes;
};

static bool read_at(const struct elf *e, uint64_t offset, void *buf, uint64_t bytes)
{
	return offset <= INT64_MAX && pread(e->fd, buf, (size_t)bytes, (off_t)offset) == (ssize_t)bytes;
}

/* [bytes] of the file, the caller's; NULL: it does not have them, or they are too many. */
static void *copy_at(const struct elf *e, uint64_t offset, uint64_t bytes)
{
	void *copy = bytes <= PART_MAX ? malloc((size_t)bytes + 1) : NULL; /* + 1: of nothing it may be NULL */

	if (copy && read_at(e, offset, copy, bytes))
		return copy;
	free(copy);
	return NULL;
}

/* A string that ends before `end`; NULL: none does. */
static const char *string_at(const char *s, const char *end)
{
	return s < end && memchr(s, '\0', (size_t)(end - s)) ? s : NULL;
}

/* On failure close_elf() frees what there is. */
static int open_elf(struct elf *e)
{
	const Elf64_Ehdr *eh = &e->eh;

	if (!read_at(e, 0, &e->eh, sizeof(*eh)) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 ||
	    eh->e_ident[EI_DATA] != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB) ||
	    eh->e_shstrndx >= eh->e_shnum)
		return -ENOEXEC;
	e->ph = copy_at(e, eh->e_phoff, (uint64_t)eh->e_phnum * sizeof(*e->ph));
	e->sh = copy_at(e, eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(*e->sh));
	if (!e->ph || !e->sh)
		return -ENOEXEC;
	e->names_bytes = e->sh[eh->e_shstrndx].sh_size;
	e->names = copy_at(e, e->sh[eh->e_shstrndx].sh_offset, e->names_bytes);
	return e->names ? 0 : -ENOEXEC;
}

static void close_elf(struct elf *e)
{
	free(e->ph);
	free(e->sh);
	free(e->names);
	(void)close(e->fd); /* only read */
}

static const Elf64_Shdr *section(const struct elf *e, const char *name)
{
	unsigned i;

	for (i = 0; i < e->eh.e_shnum; i++) {
		const char *s = e->sh[i].sh_name < e->names_bytes ?
				string_at(e->names + e->sh[i].sh_name, e->names + e->names_bytes) : NULL;

		if (s && strcmp(s, name) == 0)
			return &e->sh[i];
	}
	return NULL;
}

static uint64_t to_offset(const struct elf *e, uint64_t address)
{
	unsigned i;

	for (i = 0; i < e->eh.e_phnum; i++)
		if (e->ph[i].p_type == PT_LOAD && address >= e->ph[i].p_vaddr &&
		    address - e->ph[i].p_vaddr < e->ph[i].p_filesz)
			return address - e->ph[i].p_vaddr + e->ph[i].p_offset;
	return 0;
}

static unsigned writable_segments(const struct elf *e, uint64_t offset)
{
	uint64_t page = offset / PAGE * PAGE;
	unsigned i, nr = 0;

	for (i = 0; i < e->eh.e_phnum; i++) {
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
	const char *provider, *name = NULL, *args = NULL;
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
	(void)snprintf(ret->provider, sizeof(ret->provider), "%.31s", provider); /* cut: then it is not ours */
	(void)snprintf(ret->name, sizeof(ret->name), "%.31s", name);
	(void)snprintf(ret->args, sizeof(ret->args), "%.63s", args);
	ret->address = words[0] + base_now - words[1];
	ret->sem_address = words[2] ? words[2] + base_now - words[1] : 0;
	ret->offset = to_offset(e, ret->address);
	ret->sem_offset = ret->sem_address ? to_offset(e, ret->sem_address) : 0;
	ret->sem_alone = is_alone(e, ret->sem_address);
	ret->sem_segments = writable_segments(e, ret->sem_offset);
	if (!read_at(e, ret->offset, ret->code, sizeof(ret->code)))
		memset(ret->code, 0, sizeof(ret->code)); /* none that is known */
	return 0;
}

/* @param mem  [bytes] of notes */
static int parse_notes(const struct elf *e, const char *mem, uint64_t bytes, uint64_t base_now, struct note ret[NOTES_MAX])
{
	uint64_t pos = 0;
	int nr = 0;

	while (bytes - pos >= sizeof(Elf64_Nhdr) && nr < NOTES_MAX) {
		uint64_t name_bytes, desc_bytes, left = bytes - pos - sizeof(Elf64_Nhdr);
		const char *desc;
		Elf64_Nhdr h;

		memcpy(&h, mem + pos, sizeof(h));
		name_bytes = ((uint64_t)h.n_namesz + 3) / 4 * 4;
		desc_bytes = ((uint64_t)h.n_descsz + 3) / 4 * 4;
		if (name_bytes > left || desc_bytes > left - name_bytes)
			return -ENOEXEC;
		desc = mem + pos + sizeof(h) + name_bytes;
		if (h.n_type == NOTE_TYPE && read_note(e, desc, desc + h.n_descsz, base_now, &ret[nr]) == 0)
			nr++;
		pos += sizeof(h) + name_bytes + desc_bytes;
	}
	return nr;
}

static int read_notes(const struct elf *e, struct note ret[NOTES_MAX])
{
	const Elf64_Shdr *notes = section(e, ".note.stapsdt"), *base = section(e, ".stapsdt.base");
	char *mem;
	int nr;

	if (!notes)
		return 0;
	mem = base ? copy_at(e, notes->sh_offset, notes->sh_size) : NULL;
	nr = mem ? parse_notes(e, mem, notes->sh_size, base->sh_addr, ret) : -ENOEXEC;
	free(mem);
	return nr;
}

int notes_read(const char *path, struct note ret[NOTES_MAX])
{
	struct elf e = { .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
	struct stat st;
	int nr;

	if (e.fd < 0)
		return -errno;
	if (fstat(e.fd, &st))
		nr = -errno;
	else
		nr = S_ISREG(st.st_mode) ? open_elf(&e) : -ENOEXEC;
	if (!nr)
		nr = read_notes(&e, ret);
	close_elf(&e);
	return nr;
}
