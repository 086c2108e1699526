/* SPDX-License-Identifier: MIT */
/* See fn_names.h. A table of names that is searched from its end, since what was asked for last is asked for again. */
#include "fn_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbols.h"

struct process {
	int pid;
	struct symbols *symbols;        /* NULL: no memory for them */
};

struct name {
	int pid;
	uint64_t fn;
	char *text;
};

struct fn_names {
	struct process *processes;
	size_t processes_nr, names_nr;
	struct name *names;
};

struct fn_names *fn_names_create(void)
{
	return calloc(1, sizeof(struct fn_names));
}

void fn_names_destroy(struct fn_names *n)
{
	if (!n)
		return;
	for (size_t i = 0; i < n->processes_nr; i++)
		symbols_close(n->processes[i].symbols);
	for (size_t i = 0; i < n->names_nr; i++)
		free(n->names[i].text);
	free(n->processes);
	free(n->names);
	free(n);
}

static struct symbols *symbols_of(struct fn_names *n, int pid)
{
	struct process *grown, p = { .pid = pid };

	for (size_t i = 0; i < n->processes_nr; i++)
		if (n->processes[i].pid == pid)
			return n->processes[i].symbols;
	grown = realloc(n->processes, (n->processes_nr + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	n->processes = grown;
	(void)symbols_open(pid, &p.symbols); /* without mappings every function is an address */
	grown[n->processes_nr++] = p;
	return p.symbols;
}

const char *fn_name(struct fn_names *n, int pid, uint64_t fn)
{
	char text[SYMBOLS_NAME_MAX];
	struct symbols *symbols;
	struct name *grown;

	for (size_t i = n->names_nr; i > 0; i--)
		if (n->names[i - 1].fn == fn && n->names[i - 1].pid == pid)
			return n->names[i - 1].text;
	symbols = symbols_of(n, pid);
	grown = realloc(n->names, (n->names_nr + 1) * sizeof(*grown));
	if (!grown)
		return "?";
	n->names = grown;
	if (fn == 0)
		(void)snprintf(text, sizeof(text), "(others)"); /* fits */
	else if (symbols)
		(void)symbols_name(symbols, fn, text, sizeof(text));
	else
		(void)snprintf(text, sizeof(text), "0x%llx", (unsigned long long)fn); /* fits */
	grown[n->names_nr] = (struct name){ .pid = pid, .fn = fn, .text = strdup(text) };
	return grown[n->names_nr].text ? grown[n->names_nr++].text : "?";
}
