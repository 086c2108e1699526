/* SPDX-License-Identifier: MIT */
/* `martlet top --json`: one document, whose members are the columns of the tables. */
#include "top_view.h"

#include <errno.h>
#include <json-c/json.h>
#include <string.h>

#include "opcode.h"
#include "output.h"

/* NULL members are no memory; json-c frees what was added. */
static int add(struct json_object *o, const char *key, struct json_object *value)
{
	return value && json_object_object_add(o, key, value) == 0 ? 0 : -ENOMEM;
}

static struct json_object *make_row(const struct top_table *t, const void *row)
{
	struct json_object *o = json_object_new_object();
	char cell[TOP_CELL_BYTES];
	unsigned i;

	for (i = 0; o && i < t->nr; i++) {
		const struct top_column *c = &t->columns[i];
		struct json_object *value;

		if (!c->key)
			continue;
		if (c->format == TOP_TEXT) {
			top_cell(c, row, cell);
			value = json_object_new_string(cell);
		} else if (c->format == TOP_NUMBER || c->format == TOP_NS) {
			value = json_object_new_int64((int64_t)c->value(row));
		} else {
			value = json_object_new_double(c->value(row));
		}
		if (add(o, c->key, value)) {
			json_object_put(o);
			return NULL;
		}
	}
	return o;
}

static int add_rows(struct json_object *o, const char *key, const struct top_table *t, const void *rows, size_t row_bytes,
		    unsigned nr)
{
	struct json_object *array = json_object_new_array();
	unsigned i;

	if (add(o, key, array))
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		struct json_object *row = make_row(t, (const char *)rows + i * row_bytes);

		if (!row || json_object_array_add(array, row))
			return -ENOMEM;
	}
	return 0;
}

static int add_warnings(struct json_object *o, const struct top_runtime *r)
{
	struct json_object *array = json_object_new_array(), *w;
	unsigned i;

	if (add(o, "warnings", array))
		return -ENOMEM;
	for (i = 0; i < r->warnings_nr; i++) {
		w = json_object_new_object();
		if (!w || json_object_array_add(array, w) || add(w, "worker", json_object_new_int(r->warnings[i].worker)) ||
		    add(w, "text", json_object_new_string(r->warnings[i].text)))
			return -ENOMEM;
	}
	return 0;
}

static int add_punts(struct json_object *o, const struct top_tasks *t)
{
	struct json_object *punts = json_object_new_object();
	char name[OPCODE_NAME_MAX];
	unsigned i;

	if (add(o, "io_wq_ops", punts))
		return -ENOMEM;
	for (i = 0; i < TRACE_OPCODES; i++) {
		if (t->punts[i] && add(punts, opcode_text(i, name), json_object_new_int64((int64_t)t->punts[i])))
			return -ENOMEM;
	}
	return 0;
}

static int add_tasks(struct json_object *o, const struct top_runtime *r, const struct top_listings *l)
{
	const struct top_listing *item = top_listing_of(l, r);
	const char *why = top_listing_why(l, r);
	const struct task_list *list = item ? &item->tasks.list : NULL;
	struct json_object *array, *row;
	unsigned i;

	if (why)
		return json_object_object_add(o, "tasks", NULL) || add(o, "tasks_why", json_object_new_string(why)) ? -ENOMEM : 0;
	array = json_object_new_array();
	if (add(o, "tasks", array))
		return -ENOMEM;
	for (i = 0; i < item->rows_nr; i++) {
		row = make_row(&top_task_rows, item->rows[i]);
		if (!row || json_object_array_add(array, row))
			return -ENOMEM;
	}
	if (item->tasks.why[0] && add(o, "tasks_why", json_object_new_string(item->tasks.why)))
		return -ENOMEM;
	return add(o, "tasks_interval_ns", json_object_new_int64((int64_t)item->span_ns)) ||
	       add(o, "tasks_nr", json_object_new_int64(list->nr)) ||
	       add(o, "tasks_dropped", json_object_new_int64((int64_t)list->dropped)) ||
	       add(o, "tasks_not_shown", json_object_new_int64((int64_t)list->hidden)) ||
	       add(o, "task_events_lost", json_object_new_int64((int64_t)item->tasks.lost)) || add_punts(o, &item->tasks) ? -ENOMEM : 0;
}

static int add_runtime(struct json_object *array, const struct top_runtime *r, const struct top_listings *l)
{
	struct json_object *o = make_row(&top_runtimes, r);

	if (!o || json_object_array_add(array, o))
		return -ENOMEM;
	if (add(o, "interval_ns", json_object_new_int64((int64_t)r->span_ns)) ||
	    add_rows(o, "workers", &top_workers, r->workers, sizeof(*r->workers), r->workers_nr) ||
	    add_rows(o, "ops", &top_ops, r->ops, sizeof(*r->ops), r->ops_nr))
		return -ENOMEM;
	if (l && add_tasks(o, r, l))
		return -ENOMEM;
	return add_warnings(o, r);
}

int top_print_json(FILE *out, const struct top_model *m, const struct top_listings *l)
{
	struct json_object *doc = json_object_new_object(), *array = json_object_new_array();
	int err = doc ? add(doc, "runtimes", array) : -ENOMEM;
	unsigned i;

	for (i = 0; i < m->nr && !err; i++)
		err = add_runtime(array, m->items[i], l);
	if (!err)
		err = fprintf(out, "%s\n", json_object_to_json_string_ext(doc, JSON_C_TO_STRING_PRETTY)) < 0 ? -errno :
		      output_flush(out);
	json_object_put(doc);
	return err;
}
