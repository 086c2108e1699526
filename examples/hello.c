/* SPDX-License-Identifier: MIT */
/* Reads a file through a worker's ring and prints it: the smallest whole program. */
/* README-begin */
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <martlet/martlet.h>

struct hello {                          /* the frame: all that lives across a wait */
	const char *path;
	struct mrt_op op;
	int fd;
	int64_t got;
	char buf[4096];
};

static enum mrt_poll hello_poll(struct mrt_task *self, void *frame)
{
	struct hello *h = frame;

	MRT_BEGIN(self);
	MRT_AWAIT(self, mrt_open(&h->op, MRT_AT_FDCWD, h->path, O_RDONLY, 0));
	if (h->op.res < 0)
		MRT_RETURN(self, h->op.res);
	h->fd = (int)h->op.res;
	MRT_AWAIT(self, mrt_read_exact(&h->op, h->fd, h->buf, sizeof(h->buf), 0));
	h->got = h->op.res;                     /* bytes, or a negative errno; the close has a result of its own */
	if (h->got > 0)
		fwrite(h->buf, 1, (size_t)h->got, stdout);
	MRT_AWAIT(self, mrt_close(&h->op, h->fd));
	MRT_RETURN(self, h->got < 0 ? h->got : h->op.res);
}

int main(int argc, char **argv)
{
	struct hello frame = { .path = argc > 1 ? argv[1] : "/etc/hostname" };
	struct mrt_runtime_opts opts;
	struct mrt_runtime *rt;
	int64_t result = 0;
	int err;

	mrt_runtime_opts_init(&opts);
	opts.flavour = MRT_FLAVOUR_CURRENT_THREAD;      /* this thread is the only worker */
	err = mrt_runtime_create(&opts, &rt);
	if (!err) {
		err = mrt_block_on(rt, hello_poll, &frame, sizeof(frame), &result);
		mrt_runtime_destroy(rt);
	}
	if (err || result < 0)
		fprintf(stderr, "hello: %s\n", strerror(-(err ? err : (int)result)));
	return err || result < 0;
}
/* README-end */
