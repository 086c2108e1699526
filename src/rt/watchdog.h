/* SPDX-License-Identifier: MIT */
/*
 * The watchdog: a thread that looks at the workers' statistics now and then, and says through the log who has been in one poll for
 * too long. It exists only where it was asked for.
 */
#ifndef MRT_RT_WATCHDOG_H
#define MRT_RT_WATCHDOG_H

#include <stdint.h>

#define MRT__WATCHDOG_NS_MIN UINT64_C(1000000)
#define MRT__WATCHDOG_NS_MAX UINT64_C(86400000000000)

struct mrt__sched;
struct mrt__watchdog;

/**
 * Begin to watch.
 *
 * @thread  the builder
 * @param limit_ns  MRT__WATCHDOG_NS_MIN..MRT__WATCHDOG_NS_MAX
 * @param name      of the runtime: the thread is called "<name>-watch"
 * @return 0, -ENOMEM, -EAGAIN (no thread could be started)
 */
int mrt__watchdog_create(struct mrt__sched *s, uint64_t limit_ns, const char *name, struct mrt__watchdog **ret_watchdog);

/* Stop and free it; NULL is ignored. It says nothing afterwards. @blocks for a log call that is under way */
void mrt__watchdog_destroy(struct mrt__watchdog *d);

#endif
