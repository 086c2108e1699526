/* SPDX-License-Identifier: MIT */
/*
 * See symbols.h. From an address to the file: the mapping, and its offset. From there to the address that the file's symbol
 * table speaks of: the PT_LOAD that holds this offset of the file. (Not the mapping's start less the lowest p_vaddr: files
 * are mapped in several pieces, and some linkers put one page of a file into two of them, so an executable piece is looked
 * for first.)
 */
#include "symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef TOOLS_LIBELF
#include <gelf.h>
#include <libelf.h>
#endif

#include "clock.h"
#include "proc.h"

#define MAPPINGS_MAX 65536u     /* vm.max_map_count is 65,530 unless raised */
#define FUNCTIONS_MAX (4u << 20)
#define SECTION_MAX (256u << 20)        /* bytes: more is not read; a hostile file may say anything, and be sparse */
#define REREAD_NS 100000000u    /* the mappings are read again at most so often */

struct function {
	uint64_t addr, bytes;
	const char *name;       /* in the module's strings */
	uint8_t rank;           /* of several at one address the lowest is shown */
};

struct segment {
	uint64_t offset, bytes, vaddr;
	bool executable;
};

/* A file that is mapped. */
struct module {
	char *path;             /* as the mapping has it, without " (deleted)" */
	const char *name;       /* its last part */
	uint64_t inode;
	bool loaded;
	struct segment *segments;
	unsigned segments_nr;
	struct function *functions; /* by address */
	size_t functions_nr;
	void *elfs[2];          /* kept open, since names point into them: the file, its debug file */
	int fds[2];
};

struct mapping {
	uint64_t start, end, offset;
	bool executable;
	struct module *module;  /* NULL: no file */
	char special[16];       /* "[vdso]", or "" */
};

struct symbols {
	pid_t pid;
	struct mapping *mappings; /* by address */
	size_t mappings_nr;
	struct module **modules;
	size_t modules_nr;
	uint64_t read_ns;       /* when the mappings were read last */
};

bool symbols_has_names(void)
{
#ifdef TOOLS_LIBELF
	return true;
#else
	return false;
#endif
}

/* ---- the file of a mapping ---- */

/* false: fd is closed, this is another file. 0: the file system gives none, so it cannot be told. */
static bool is_inode(int fd, uint64_t inode)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (inode == 0 || st.st_ino == inode))
		return true;
	(void)close(fd); /* only read */
	return false;
}

static int try_open(const char *path, uint64_t inode)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd >= 0 && is_inode(fd, inode) ? fd : -1;
}

/*
 * The very file, also where its name is gone or leads to another one by now: map_files needs CAP_CHECKPOINT_RESTORE or
 * CAP_SYS_ADMIN; exe is for everybody who may look at the process. @return a descriptor; -1: none
 */
static int open_module(const struct symbols *s, const struct mapping *m)
{
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)s->pid, m->start, m->end);
	fd = try_open(path, m->module->inode);
	if (fd >= 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)s->pid, m->module->path);
	fd = try_open(path, m->module->inode);
	if (fd >= 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)s->pid);
	return try_open(path, m->module->inode);
}

/* ---- its symbols ---- */

#ifdef TOOLS_LIBELF

static void load_segments(struct module *mod, Elf *elf)
{
	size_t nr;

	if (elf_getphdrnum(elf, &nr) || nr == 0 || nr > UINT16_MAX)
		return;
	mod->segments = calloc(nr, sizeof(*mod->segments));
	for (size_t i = 0; mod->segments && i < nr; i++) {
		GElf_Phdr ph;

		if (!gelf_getphdr(elf, (int)i, &ph) || ph.p_type != PT_LOAD)
			continue;
		mod->segments[mod->segments_nr++] = (struct segment){ .offset = ph.p_offset, .bytes = ph.p_filesz,
			.vaddr = ph.p_vaddr, .executable = ph.p_flags & PF_X };
	}
}

static Elf_Scn *find_section(Elf *elf, uint32_t type)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr sh;

	while ((scn = elf_nextscn(elf, scn)) != NULL) {
		if (gelf_getshdr(scn, &sh) && sh.sh_type == type)
			return scn;
	}
	return NULL;
}

/* The library reads a section into memory whole. @return NULL: it cannot be read, or has no size that a file of code has */
static Elf_Data *read_section(Elf_Scn *scn)
{
	GElf_Shdr sh;

	return scn && gelf_getshdr(scn, &sh) && sh.sh_size <= SECTION_MAX ? elf_getdata(scn, NULL) : NULL;
}

/* Names that a reader knows before those that a linker made. */
static uint8_t rank_of(const GElf_Sym *sym)
{
	unsigned bind = GELF_ST_BIND(sym->st_info);

	return (uint8_t)((sym->st_size == 0) << 2 | (bind == STB_GLOBAL ? 0 : bind == STB_LOCAL ? 1 : 2));
}

/* Without a size, of assembly: to the end of its section, or to the next function. */
static uint64_t reach_of(Elf *elf, const GElf_Sym *sym)
{
	Elf_Scn *scn = sym->st_size ? NULL : elf_getscn(elf, sym->st_shndx);
	GElf_Shdr sh;

	if (!scn || !gelf_getshdr(scn, &sh) || sym->st_value - sh.sh_addr > sh.sh_size)
		return sym->st_size;
	return sh.sh_addr + sh.sh_size - sym->st_value;
}

static void load_table(struct module *mod, Elf *elf, uint32_t type)
{
	Elf_Scn *scn = find_section(elf, type);
	Elf_Data *data = read_section(scn);
	struct function *more;
	GElf_Shdr sh;
	size_t nr;

	if (!data || !gelf_getshdr(scn, &sh) || sh.sh_entsize == 0 || !read_section(elf_getscn(elf, sh.sh_link)))
		return;
	nr = data->d_size / sh.sh_entsize;
	if (nr > FUNCTIONS_MAX - mod->functions_nr)
		nr = FUNCTIONS_MAX - mod->functions_nr;
	if (nr == 0)
		return;
	more = realloc(mod->functions, (mod->functions_nr + nr) * sizeof(*more));
	if (!more)
		return;
	mod->functions = more;
	for (size_t i = 0; i < nr; i++) {
		const char *name;
		GElf_Sym sym;

		if (!gelf_getsym(data, (int)i, &sym) || sym.st_shndx == SHN_UNDEF)
			continue;
		if (GELF_ST_TYPE(sym.st_info) != STT_FUNC && GELF_ST_TYPE(sym.st_info) != STT_GNU_IFUNC)
			continue;
		name = elf_strptr(elf, sh.sh_link, sym.st_name);
		if (name && name[0])
			mod->functions[mod->functions_nr++] = (struct function){ .addr = sym.st_value,
				.bytes = reach_of(elf, &sym), .name = name, .rank = rank_of(&sym) };
	}
}

static int compare_functions(const void *a, const void *b)
{
	const struct function *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : strcmp(x->name, y->name);
}

/* One function an address. */
static void sort_functions(struct module *mod)
{
	size_t out = 0;

	if (mod->functions_nr == 0)
		return;
	qsort(mod->functions, mod->functions_nr, sizeof(*mod->functions), compare_functions);
	for (size_t i = 1; i < mod->functions_nr; i++) {
		if (mod->functions[i].addr != mod->functions[out].addr)
			mod->functions[++out] = mod->functions[i];
	}
	mod->functions_nr = out + 1;
}

/* "/usr/lib/debug/.build-id/ab/cdef.debug", of the process's root and of ours. @return a descriptor; -1: none */
static int open_debug(const struct symbols *s, Elf *elf)
{
	char path[256];
	Elf_Scn *scn = NULL;
	Elf_Data *data;
	GElf_Nhdr note;
	GElf_Shdr sh;
	size_t at, name, desc;

	while ((scn = elf_nextscn(elf, scn)) != NULL) {
		if (!gelf_getshdr(scn, &sh) || sh.sh_type != SHT_NOTE || !(data = read_section(scn)))
			continue;
		for (at = 0; (at = gelf_getnote(data, at, &note, &name, &desc)) > 0;) {
			const unsigned char *id = (const unsigned char *)data->d_buf + desc;
			int n, fd;

			if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || note.n_descsz < 2 ||
			    note.n_descsz > 64 || memcmp((const char *)data->d_buf + name, "GNU", 4) != 0)
				continue;
			n = snprintf(path, sizeof(path), "/proc/%d/root/usr/lib/debug/.build-id/%02x/", (int)s->pid, id[0]);
			for (unsigned i = 1; i < note.n_descsz; i++)
				n += snprintf(path + n, sizeof(path) - (size_t)n, "%02x", id[i]);
			snprintf(path + n, sizeof(path) - (size_t)n, ".debug");
			fd = try_open(path, 0);
			return fd >= 0 ? fd : try_open(strstr(path, "/usr/"), 0);
		}
	}
	return -1;
}

/* The library makes room for all sections that a header tells of: only where they are few, by the number in 16 bits. */
static bool has_few_sections(int fd)
{
	union {
		unsigned char ident[EI_NIDENT];
		Elf32_Ehdr h32;
		Elf64_Ehdr h64;
	} h = { 0 };

	if (pread(fd, &h, sizeof(h), 0) < (ssize_t)sizeof(h.h32))
		return false;
	if (h.ident[EI_CLASS] == ELFCLASS32)
		return h.h32.e_shnum || !h.h32.e_shoff;
	return h.h64.e_shnum || !h.h64.e_shoff;
}

static Elf *begin_elf(struct module *mod, unsigned i, int fd)
{
	Elf *elf = fd >= 0 && has_few_sections(fd) ? elf_begin(fd, ELF_C_READ, NULL) : NULL;

	mod->fds[i] = fd;
	mod->elfs[i] = elf;
	return elf && elf_kind(elf) == ELF_K_ELF ? elf : NULL;
}

static void load_module(const struct symbols *s, const struct mapping *m)
{
	struct module *mod = m->module;
	Elf *elf, *debug = NULL;

	mod->loaded = true;
	if (elf_version(EV_CURRENT) == EV_NONE)
		return;
	elf = begin_elf(mod, 0, open_module(s, m));
	if (!elf)
		return;
	load_segments(mod, elf);
	if (!find_section(elf, SHT_SYMTAB))
		debug = begin_elf(mod, 1, open_debug(s, elf));
	if (debug)
		load_table(mod, debug, SHT_SYMTAB);
	load_table(mod, elf, SHT_SYMTAB);
	load_table(mod, elf, SHT_DYNSYM);
	sort_functions(mod);
}

static void close_elfs(struct module *mod)
{
	for (unsigned i = 0; i < 2; i++) {
		(void)elf_end(mod->elfs[i]); /* takes NULL; the count of references is of no interest */
		if (mod->fds[i] >= 0)
			(void)close(mod->fds[i]); /* only read */
	}
}

#else /* no libelf */

static void load_module(const struct symbols *s, const struct mapping *m)
{
	(void)s;
	(void)open_module;
	m->module->loaded = true;
}

static void close_elfs(struct module *mod)
{
	(void)mod;
}

#endif

static void free_module(struct module *mod)
{
	if (!mod)
		return;
	close_elfs(mod);
	free(mod->segments);
	free(mod->functions);
	free(mod->path);
	free(mod);
}

/* ---- mappings ---- */

static struct module *get_module(struct symbols *s, const char *path, uint64_t inode)
{
	struct module **more, *mod;

	/* the pieces of a file are neighbours */
	for (size_t i = s->modules_nr; i-- > 0;) {
		if (s->modules[i]->inode == inode && strcmp(s->modules[i]->path, path) == 0)
			return s->modules[i];
	}
	more = realloc(s->modules, (s->modules_nr + 1) * sizeof(*more));
	if (!more)
		return NULL;
	s->modules = more;
	mod = calloc(1, sizeof(*mod));
	if (!mod || !(mod->path = strdup(path))) {
		free(mod);
		return NULL;
	}
	mod->name = strrchr(mod->path, '/') + 1;
	mod->inode = inode;
	mod->fds[0] = mod->fds[1] = -1;
	s->modules[s->modules_nr++] = mod;
	return mod;
}

/* "55d0-55d4 r-xp 00002000 fe:00 1234   /usr/bin/cat (deleted)", a newline in a name as \012 */
static bool parse_mapping(struct symbols *s, char *line, struct mapping *m)
{
	char perms[5], *path, *end;
	uint64_t inode;
	int at = 0;

	memset(m, 0, sizeof(*m));
	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %" SCNu64 " %n", &m->start, &m->end, perms, &m->offset,
		   &inode, &at) != 5 || at == 0)
		return false;
	m->executable = perms[2] == 'x';
	path = line + at;
	if (path[0] == '[')
		snprintf(m->special, sizeof(m->special), "%s", path);
	if (path[0] != '/')
		return true;
	end = path + strlen(path);
	if (end - path > 10 && strcmp(end - 10, " (deleted)") == 0)
		end[-10] = '\0';
	m->module = get_module(s, path, inode);
	return m->module != NULL;
}

/* On failure, what was there stays. */
static int read_mappings(struct symbols *s)
{
	struct mapping *found = NULL, *more, m;
	size_t nr = 0, room = 0, line_room = 0;
	char path[64], *line = NULL;
	int err = 0;
	FILE *f;

	s->read_ns = clock_ns();
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)s->pid);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	while (nr < MAPPINGS_MAX && getline(&line, &line_room, f) > 0) {
		if (!parse_mapping(s, line, &m))
			continue;
		if (nr == room) {
			room = room ? 2 * room : 64;
			more = realloc(found, room * sizeof(*more));
			if (!more)
				break;
			found = more;
		}
		found[nr++] = m;
	}
	if (nr == 0)
		err = ferror(f) ? -EACCES : -ENOENT; /* it has ended, or is a kernel's thread */
	free(line);
	(void)fclose(f); /* only read */
	if (err) {
		free(found);
		return err;
	}
	free(s->mappings);
	s->mappings = found;
	s->mappings_nr = nr;
	return 0;
}

static const struct mapping *find_mapping(const struct symbols *s, uint64_t addr)
{
	size_t low = 0, high = s->mappings_nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (addr >= s->mappings[middle].end)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->mappings_nr && addr >= s->mappings[low].start ? &s->mappings[low] : NULL;
}

int symbols_open(pid_t pid, struct symbols **ret_symbols)
{
	struct symbols *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->pid = pid;
	*ret_symbols = s;
	return read_mappings(s);
}

void symbols_close(struct symbols *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->modules_nr; i++)
		free_module(s->modules[i]);
	free(s->modules);
	free(s->mappings);
	free(s);
}

/* ---- look up ---- */

/* The address that the file's tables have for this offset of the file. */
static uint64_t to_module_addr(const struct module *mod, const struct mapping *m, uint64_t offset)
{
	for (int pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < mod->segments_nr; i++) {
			const struct segment *seg = &mod->segments[i];

			if (offset - seg->offset < seg->bytes && offset >= seg->offset &&
			    (pass == 1 || seg->executable == m->executable))
				return offset - seg->offset + seg->vaddr;
		}
	}
	return offset; /* of most libraries it is the same */
}

/* The last one that begins at or before addr and reaches so far. */
static const struct function *find_function(const struct module *mod, uint64_t addr)
{
	size_t low = 0, high = mod->functions_nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (mod->functions[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = low; i-- > 0 && low - i <= 8;) { /* a small one may lie inside a larger one */
		const struct function *f = &mod->functions[i];

		if (addr - f->addr < f->bytes)
			return f;
	}
	return NULL;
}

bool symbols_find(struct symbols *s, uint64_t addr, struct symbol *ret_symbol)
{
	const struct mapping *m = find_mapping(s, addr);
	const struct function *f;

	*ret_symbol = (struct symbol){ 0 };
	if (!m && clock_ns() - s->read_ns > REREAD_NS && read_mappings(s) == 0)
		m = find_mapping(s, addr);
	if (!m)
		return false;
	if (!m->module) {
		ret_symbol->module = m->special[0] ? m->special : NULL;
		ret_symbol->module_addr = addr - m->start;
		return false;
	}
	if (!m->module->loaded && m->executable)
		load_module(s, m);
	ret_symbol->module = m->module->name;
	ret_symbol->module_addr = to_module_addr(m->module, m, addr - m->start + m->offset);
	f = m->executable ? find_function(m->module, ret_symbol->module_addr) : NULL;
	if (!f)
		return false;
	ret_symbol->function = f->name;
	ret_symbol->offset = ret_symbol->module_addr - f->addr;
	return true;
}

const char *symbols_name(struct symbols *s, uint64_t addr, char *buf, size_t buf_bytes)
{
	struct symbol sym;

	if (symbols_find(s, addr, &sym) && sym.offset)
		snprintf(buf, buf_bytes, "%s+0x%" PRIx64, sym.function, sym.offset);
	else if (sym.function)
		snprintf(buf, buf_bytes, "%s", sym.function);
	else if (sym.module)
		snprintf(buf, buf_bytes, "%s+0x%" PRIx64, sym.module, sym.module_addr);
	else
		snprintf(buf, buf_bytes, "0x%" PRIx64, addr);
	proc_printable(buf); /* whatever its file calls it, or is called */
	return buf;
}
