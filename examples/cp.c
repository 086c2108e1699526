/* SPDX-License-Identifier: MIT */
/*
 * cp FROM TO: copies a file with 16 reads and writes in flight. Each slot is a task that takes the next block, reads it
 * and writes it; a scope keeps them together, and the first error ends the others.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <martlet/martlet.h>

#define DEPTH 16
#define BLOCK_BYTES 65536

/* What the slots share; in the parent's frame, which outlives them. Slots may run on different workers. */
struct job {
	int in, out;
	int64_t size;
	int64_t next;           /* the next block's offset; taken atomically */
};

struct slot {
	struct job *job;
	int64_t off;
	struct mrt_op op;
	char buf[BLOCK_BYTES];
};

static enum mrt_poll slot_poll(struct mrt_task *self, void *frame)
{
	struct slot *s = frame;

	MRT_BEGIN(self);
	for (;;) {
		s->off = __atomic_fetch_add(&s->job->next, BLOCK_BYTES, __ATOMIC_RELAXED);
		if (s->off >= s->job->size)
			break;
		MRT_AWAIT(self, mrt_read_exact(&s->op, s->job->in, s->buf, BLOCK_BYTES, s->off));
		if (s->op.res <= 0)
			break;
		MRT_AWAIT(self, mrt_write_all(&s->op, s->job->out, s->buf, (size_t)s->op.res, s->off));
		if (s->op.res < 0 || s->op.why)
			break;
	}
	MRT_RETURN(self, s->op.why ? s->op.why : s->op.res < 0 ? s->op.res : 0);
}

struct copy {
	const char *from, *to;
	struct job job;
	struct mrt_op op;
	struct mrt_scope scope;
	struct mrt_op *joined;
	struct stat st;
	int64_t err;
};

static enum mrt_poll copy_poll(struct mrt_task *self, void *frame)
{
	struct slot init = { 0 };
	struct mrt_spawn_opts opts = { .size = sizeof(opts), .name = "slot", .frame_bytes = sizeof(struct slot) };
	struct copy *c = frame;
	int i;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_open(&c->op, MRT_AT_FDCWD, c->from, O_RDONLY, 0));
	if (c->op.res < 0)
		MRT_RETURN(self, c->op.res);
	c->job.in = (int)c->op.res;
	MRT_AWAIT(self, mrt_open(&c->op, MRT_AT_FDCWD, c->to, O_WRONLY | O_CREAT | O_TRUNC, 0666));
	c->job.out = (int)c->op.res;
	c->err = c->op.res < 0 ? c->op.res : 0;
	if (!c->err && fstat(c->job.in, &c->st) < 0)
		c->err = -errno;
	if (!c->err) {
		c->job.size = c->st.st_size;
		mrt_scope_init(&c->scope, MRT_SCOPE_FAIL_FAST);
		init.job = &c->job;
		for (i = 0; i < DEPTH && !c->err; i++)
			c->err = mrt_scope_spawn(&c->scope, slot_poll, &init, offsetof(struct slot, buf), &opts);
		c->joined = mrt_scope_join(&c->scope);
		MRT_AWAIT(self, c->joined);
		if (!c->err)
			c->err = c->joined->res;
	}
	if (c->job.out >= 0) {
		MRT_AWAIT(self, mrt_close(&c->op, c->job.out));
		if (!c->err)
			c->err = c->op.res;
	}
	MRT_AWAIT(self, mrt_close(&c->op, c->job.in));
	MRT_RETURN(self, c->err);
}

int main(int argc, char **argv)
{
	const char *flavour = getenv("MRT_EXAMPLE_FLAVOUR");
	struct copy frame = { .from = argc == 3 ? argv[1] : NULL, .to = argc == 3 ? argv[2] : NULL };
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;
	int64_t result = 0;
	int err;

	if (argc != 3) {
		fprintf(stderr, "usage: cp FROM TO\n");
		return 2;
	}
	mrt_runtime_opts_init(&opts);
	if (flavour && strcmp(flavour, "current-thread") == 0)
		opts.flavour = MRT_FLAVOUR_CURRENT_THREAD;
	err = mrt_runtime_create(&opts, &rt);
	if (!err) {
		err = mrt_block_on(rt, copy_poll, &frame, sizeof(frame), &result);
		mrt_runtime_destroy(rt);
	}
	if (err || result < 0)
		fprintf(stderr, "cp: %s\n", strerror(-(err ? err : (int)result)));
	return err || result < 0;
}
