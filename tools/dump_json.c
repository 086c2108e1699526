/* SPDX-License-Identifier: MIT */
/*
 * A dump for programs. Addresses are strings in hex, since readers of JSON make doubles of numbers; what is unknown is null.
 * json-c aborts where it has no memory, so that its results need no look.
 */
#include "dump.h"

#include <inttypes.h>
#include <json-c/json.h>

#include "opcode.h"

typedef struct json_object json;

static void add(json *o, const char *key, json *value)
{
	(void)json_object_object_add(o, key, value);
}

static void add_u64(json *o, const char *key, uint64_t n)
{
	add(o, key, json_object_new_uint64(n));
}

static void add_text(json *o, const char *key, const char *text)
{
	add(o, key, text ? json_object_new_string(text) : NULL);
}

static void add_bool(json *o, const char *key, bool b)
{
	add(o, key, json_object_new_boolean(b));
}

static void add_addr(json *o, const char *key, uint64_t addr)
{
	char text[32];

	snprintf(text, sizeof(text), "%#" PRIx64, addr);
	add_text(o, key, addr ? text : NULL);
}

/* An address as function, offset, module and address in it. */
static void add_fn(struct dump *d, json *o, uint64_t addr)
{
	struct symbol sym;

	add_addr(o, "function_addr", addr);
	add_text(o, "function", symbols_find(d->symbols, addr, &sym) ? sym.function : NULL);
	add_text(o, "module", sym.module);
	add_addr(o, "module_addr", sym.module ? sym.module_addr : 0);
}

/* Nanoseconds, and what they are worth. */
static void add_age(const struct dump *d, json *o, enum walk_age age, uint64_t began_ns)
{
	static const char *const names[] = { [WALK_AGE_UNKNOWN] = "unknown", [WALK_AGE_ABOUT] = "about",
					     [WALK_AGE_EXACT] = "exact" };
	uint64_t ns = d->now_ns > began_ns ? d->now_ns - began_ns : 0;

	add(o, "age_ns", age == WALK_AGE_UNKNOWN ? NULL : json_object_new_uint64(ns));
	add_text(o, "age_is", names[age]);
}

static json *new_worker(struct dump *d, const struct dump_worker *w)
{
	json *o = json_object_new_object();
	char state[2] = { w->thread_state, '\0' };

	add_u64(o, "index", w->stats->index);
	add(o, "tid", json_object_new_int(w->stats->tid));
	add(o, "cpu", json_object_new_int(w->stats->cpu));
	add_u64(o, "state", w->stats->state);
	add_bool(o, "polling", w->is_polling);
	add_bool(o, "stuck", w->is_stuck);
	add_u64(o, "polls", w->stats->polls);
	add_u64(o, "polls_moved", w->polls_moved);
	add(o, "since_ns", w->since_ns ? json_object_new_uint64(d->now_ns > w->since_ns ? d->now_ns - w->since_ns : 0) : NULL);
	add_text(o, "since_is", !w->since_ns ? "unknown" : w->is_exact ? "exact" : "at_most");
	add_text(o, "thread_state", state);
	add_text(o, "wchan", w->wchan[0] ? w->wchan : NULL);
	if (w->is_polling) {
		add_addr(o, "task", w->stats->poll_task);
		add_fn(d, o, w->stats->poll_fn);
	}
	return o;
}

static json *new_op(struct dump *d, const struct dump_op *k)
{
	json *o = json_object_new_object();
	char what[256];

	add_age(d, o, k->op.age, k->op.began_ns);
	add_text(o, "op", k->op.kind);
	if (k->op.is_ring) {
		add_u64(o, "opcode", k->op.opcode);
		add_text(o, "opcode_name", opcode_name(k->op.opcode));
		add(o, k->op.is_handle ? "file" : "fd", json_object_new_int(k->op.fd));
		if (!k->op.is_handle && k->op.fd >= 0)
			add_text(o, "fd_is", dump_fd(d, k->op.fd, what, sizeof(what)));
		add_u64(o, "len", k->op.len);
		add_u64(o, "offset", k->op.off);
		add_u64(o, "worker", k->op.worker);
		add_bool(o, "submitted", !k->op.is_queued);
		add_bool(o, "over", k->op.is_ended);
	}
	add_bool(o, "cancelled", k->op.is_cancelled);
	add_addr(o, "object", k->op.object);
	if (k->op.deadline_ns)
		add(o, "due_ns", json_object_new_int64((int64_t)(k->op.deadline_ns - d->now_ns)));
	add_addr(o, "addr", k->op.addr);
	add_addr(o, "task", k->task);
	add_fn(d, o, k->fn);
	return o;
}

static json *new_task(struct dump *d, const struct dump_task *t)
{
	json *o = json_object_new_object();

	add_addr(o, "addr", t->task.addr);
	add_addr(o, "id", t->task.id);
	add_text(o, "name", t->task.name[0] ? t->task.name : NULL);
	add_fn(d, o, t->task.fn);
	add(o, "worker", t->task.worker >= 0 ? json_object_new_int(t->task.worker) : NULL);
	add_text(o, "for", t->wait);
	add_addr(o, "object", t->object);
	add_bool(o, "aborted", t->task.is_aborted);
	add_age(d, o, t->age, t->began_ns);
	return o;
}

static json *new_group(struct dump *d, const struct dump_group *g)
{
	json *o = json_object_new_object();

	add_u64(o, "nr", g->nr);
	add_fn(d, o, g->fn);
	add_text(o, "for", g->wait);
	add_age(d, o, g->age, g->began_ns);
	return o;
}

static void add_memory(struct dump *d, json *o)
{
	json *list, *states = json_object_new_object();

	for (unsigned i = 0; i < WALK_STATES_NR; i++)
		add_u64(states, walk_state_name((enum walk_state)i), d->tasks_nr[i]);
	add(o, "tasks", states);
	add_u64(o, "ops_nr", d->ops_nr);
	add_u64(o, "ops_out_nr", d->ops_out_nr);
	list = json_object_new_array();
	for (unsigned i = 0; i < d->ops_kept; i++)
		(void)json_object_array_add(list, new_op(d, &d->ops[i]));
	add(o, "ops", list);
	list = json_object_new_array();
	for (unsigned i = 0; i < d->groups_nr; i++)
		(void)json_object_array_add(list, new_group(d, &d->groups[i]));
	add(o, "waiting", list);
	add_u64(o, "waiting_left", d->groups_left);
	list = json_object_new_array();
	for (unsigned i = 0; i < d->tasks_kept; i++)
		(void)json_object_array_add(list, new_task(d, &d->tasks[i]));
	add(o, "waiting_tasks", list);
	add_u64(o, "changed", d->walk.changed_nr);
	add_u64(o, "torn", d->walk.torn_nr);
	add_text(o, "torn_first", d->walk.torn_nr ? d->walk.torn : NULL);
}

void dump_json(struct dump *d, FILE *out)
{
	json *o = json_object_new_object(), *workers = json_object_new_array();
	char state[2] = { d->state, '\0' };

	add(o, "pid", json_object_new_int(d->a->pid));
	add_text(o, "process", d->process);
	add_text(o, "process_state", state);
	add_text(o, "runtime", d->a->label);
	add_text(o, "backend", d->a->backend);
	add_u64(o, "created_ns", d->a->global.created_ns);
	add_u64(o, "now_ns", d->now_ns);
	add_u64(o, "look_ns", d->look_ns);
	for (unsigned i = 0; i < d->a->workers_nr; i++)
		(void)json_object_array_add(workers, new_worker(d, &d->workers[i]));
	add(o, "workers", workers);
	add_text(o, "names_missing", d->symbols_why);
	add_text(o, "memory_missing", d->memory_why);
	if (!d->memory_why)
		add_memory(d, o);
	fputs(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE), out);
	(void)json_object_put(o);
}
