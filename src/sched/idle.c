/* SPDX-License-Identifier: MIT */
/*
 * Idle bookkeeping after Tokio's idle.rs: a counter word that every publisher looks at, and a stack of sleepers behind
 * a lock that only wakes and parks take.
 *
 * The lost wake that this has to exclude: a worker looks at the queues, finds nothing, and goes to sleep, while a
 * publisher pushes and finds nobody to wake because that worker does not sleep yet or still searches. [IDLE.word.dekker]:
 * both sides go through a read-modify-write of the same word, after their push and before their last look:
 *
 *    publisher                                   worker
 *    push (release)                              word -= unparked, searching       (RMW)
 *    word += 0                        (RMW)      look at the queues
 *    nobody searches and one sleeps: wake it
 *
 * Read-modify-writes of one word have one order and each synchronises with those before it. If the publisher's comes
 * first, the worker's last look sees the push. If it comes second, the publisher sees the worker asleep, and wakes one
 * unless somebody searches; that searcher's own RMW comes later still, and whoever leaves no searcher behind looks at
 * all queues (parking) or wakes one more (found work). So responsibility for unseen work passes along the word and
 * is never dropped. tests/model/model_park.c tries the interleavings, and that each of these rules is needed.
 *
 * The publisher's RMW adds 0 where a fence and a load would do: ThreadSanitizer does not understand fences.
 *
 * Who is picked is counted as awake and searching by the picker, under the lock: a second publisher then does not wake
 * a second worker for the same work (thundering herd), though the first has not even opened its eyes.
 */
#include "sched/idle.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

#define SEARCHING_ONE 1u
#define SEARCHING_MASK 0xffffu
#define UNPARKED_SHIFT 16
#define UNPARKED_ONE (1u << UNPARKED_SHIFT)

_Static_assert(MRT__IDLE_WORKERS_MAX <= SEARCHING_MASK, "each count fits its half");

static unsigned searching_of(unsigned word)
{
	return word & SEARCHING_MASK;
}

static unsigned unparked_of(unsigned word)
{
	return word >> UNPARKED_SHIFT;
}

int mrt__idle_init(struct mrt__idle *idle, unsigned workers_nr)
{
	unsigned w;

	*idle = (struct mrt__idle){ .workers_nr = 0 };
	if (workers_nr == 0 || workers_nr > MRT__IDLE_WORKERS_MAX)
		return -EINVAL;
	idle->sleepers = calloc(workers_nr, sizeof(*idle->sleepers));
	idle->parked = calloc(workers_nr, sizeof(*idle->parked));
	if (idle->sleepers == NULL || idle->parked == NULL) {
		mrt__idle_fini(idle);
		return -ENOMEM;
	}
	for (w = 0; w < workers_nr; w++)
		atomic_init(&idle->parked[w], false);
	atomic_init(&idle->word, workers_nr << UNPARKED_SHIFT);
	idle->workers_nr = workers_nr;
	return 0;
}

void mrt__idle_fini(struct mrt__idle *idle)
{
	if (idle == NULL)
		return;
	free(idle->sleepers);
	free(idle->parked);
	idle->sleepers = NULL;
	idle->parked = NULL;
}

/* Worker at position pos of the stack is no sleeper any more. Under the lock. */
static unsigned remove_sleeper(struct mrt__idle *idle, unsigned pos)
{
	unsigned w;

	mrt__assert(pos < idle->sleepers_nr);
	w = idle->sleepers[pos];
	for (idle->sleepers_nr--; pos < idle->sleepers_nr; pos++)
		idle->sleepers[pos] = idle->sleepers[pos + 1];
	/* [IDLE.parked.clear] after the counts; pairs with [IDLE.parked.obs] */
	atomic_store_explicit(&idle->parked[w], false, memory_order_release);
	return w;
}

/* Pick the most recent sleeper and count it awake and searching. Under the lock, with a sleeper there. */
static int pick_sleeper(struct mrt__idle *idle)
{
	unsigned old;

	/* [IDLE.word.pick] seq_cst as all of this word: others see the pick before they see the sleeper gone; pairs
	 * with [IDLE.word.again] and, for the publishers that come later, with [IDLE.word.dekker] */
	old = atomic_fetch_add_explicit(&idle->word, UNPARKED_ONE + SEARCHING_ONE, memory_order_seq_cst);
	mrt__assert(unparked_of(old) < idle->workers_nr);
	return (int)remove_sleeper(idle, idle->sleepers_nr - 1);
}

int mrt__idle_worker_to_notify(struct mrt__idle *idle)
{
	unsigned word;
	int w = -1;

	/* [IDLE.word.dekker] publisher's side: a read-modify-write, see the top; pairs with the worker's in
	 * mrt__idle_park(), and with [IDLE.word.search] and [IDLE.word.found] */
	word = atomic_fetch_add_explicit(&idle->word, 0, memory_order_seq_cst);
	if (searching_of(word) != 0 || unparked_of(word) >= idle->workers_nr)
		return -1;
	mrt__lock(&idle->lock);
	/*
	 * Again, since another publisher may have picked meanwhile. A load will do: it is not older than our RMW, so
	 * a searcher that it shows will still pass the word after us. [IDLE.word.again] pairs with [IDLE.word.pick].
	 */
	word = atomic_load_explicit(&idle->word, memory_order_seq_cst);
	if (searching_of(word) == 0 && unparked_of(word) < idle->workers_nr)
		w = pick_sleeper(idle);
	mrt__unlock(&idle->lock);
	return w;
}

bool mrt__idle_unpark_worker(struct mrt__idle *idle, unsigned w)
{
	unsigned old, pos;
	bool found;

	mrt__assert(w < idle->workers_nr);
	/* only w sets this, so false stays false: the picked worker needs no lock */
	if (!mrt__idle_is_parked(idle, w))
		return false;
	mrt__lock(&idle->lock);
	for (pos = 0; pos < idle->sleepers_nr && idle->sleepers[pos] != w; pos++)
		;
	found = pos < idle->sleepers_nr;
	if (found) {
		/* [IDLE.word.unpark] before w looks whether there is a sentry; pairs with [IDLE.word.sentry] */
		old = atomic_fetch_add_explicit(&idle->word, UNPARKED_ONE, memory_order_seq_cst);
		mrt__assert(unparked_of(old) < idle->workers_nr);
		(void)remove_sleeper(idle, pos); /* it is w */
	}
	mrt__unlock(&idle->lock);
	return found;
}

bool mrt__idle_park(struct mrt__idle *idle, unsigned w, bool searching)
{
	unsigned mine = searching ? SEARCHING_ONE : 0, old;

	mrt__assert(w < idle->workers_nr);
	mrt__assert(!mrt__idle_is_parked(idle, w));
	mrt__lock(&idle->lock);
	/* [IDLE.word.dekker] worker's side: before the caller's last look at the queues; pairs with
	 * mrt__idle_worker_to_notify() */
	old = atomic_fetch_sub_explicit(&idle->word, UNPARKED_ONE + mine, memory_order_seq_cst);
	mrt__assert(unparked_of(old) != 0);
	mrt__assert(searching_of(old) >= mine);
	idle->sleepers[idle->sleepers_nr++] = (uint16_t)w;
	/* relaxed: w's own thread stores it, and pickers are under the lock */
	atomic_store_explicit(&idle->parked[w], true, memory_order_relaxed);
	mrt__unlock(&idle->lock);
	return searching_of(old) == mine;
}

bool mrt__idle_try_search(struct mrt__idle *idle)
{
	/* relaxed: a limit on effort that may be missed by a few */
	unsigned word = atomic_load_explicit(&idle->word, memory_order_relaxed);

	if (2 * searching_of(word) >= idle->workers_nr)
		return false;
	/* [IDLE.word.search] before the caller looks at the first queue: a publisher that sees us as a searcher
	 * relies on it; pairs with [IDLE.word.dekker] */
	word = atomic_fetch_add_explicit(&idle->word, SEARCHING_ONE, memory_order_seq_cst);
	mrt__assert(searching_of(word) < unparked_of(word));
	return true;
}

bool mrt__idle_end_search(struct mrt__idle *idle)
{
	/* [IDLE.word.found] after this no publisher relies on us; pairs with [IDLE.word.dekker] */
	unsigned old = atomic_fetch_sub_explicit(&idle->word, SEARCHING_ONE, memory_order_seq_cst);

	mrt__assert(searching_of(old) != 0);
	return searching_of(old) == 1;
}

bool mrt__idle_is_parked(const struct mrt__idle *idle, unsigned w)
{
	/* [IDLE.parked.obs] false: the counts already include w; pairs with [IDLE.parked.clear] */
	return atomic_load_explicit(&idle->parked[w], memory_order_acquire);
}

unsigned mrt__idle_unparked_nr(const struct mrt__idle *idle)
{
	/* [IDLE.word.sentry] seq_cst: the sentry decides by it whether to resign; pairs with [IDLE.word.unpark] and
	 * [IDLE.word.pick], see [SENTRY.dekker] */
	return unparked_of(atomic_load_explicit(&idle->word, memory_order_seq_cst));
}

unsigned mrt__idle_searching_nr(const struct mrt__idle *idle)
{
	/* relaxed: a figure */
	return searching_of(atomic_load_explicit(&idle->word, memory_order_relaxed));
}

int mrt__idle_appoint(struct mrt__idle *idle, int except, atomic_uint *post)
{
	unsigned pos, none = 0;
	int w = -1;

	mrt__lock(&idle->lock);
	for (pos = idle->sleepers_nr; pos > 0 && w < 0; pos--) {
		if ((int)idle->sleepers[pos - 1] != except)
			w = idle->sleepers[pos - 1];
	}
	/* [SENTRY.dekker] under the lock, so that whoever is appointed is still asleep, and sees it when it wakes;
	 * pairs with sentry.c's sentry_get() */
	if (w >= 0 && !atomic_compare_exchange_strong_explicit(post, &none, (unsigned)w + 1, memory_order_seq_cst,
							       memory_order_seq_cst))
		w = -1;
	mrt__unlock(&idle->lock);
	return w;
}

static bool complain(FILE *why, const char *what, unsigned a, unsigned b)
{
	if (why != NULL)
		(void)fprintf(why, "idle: %s (%u, %u)\n", what, a, b); /* best effort: a diagnosis */
	return false;
}

static bool check_locked(const struct mrt__idle *idle, FILE *why)
{
	unsigned word = atomic_load_explicit(&idle->word, memory_order_seq_cst);
	unsigned pos, w, parked_nr = 0;

	if (unparked_of(word) + idle->sleepers_nr != idle->workers_nr)
		return complain(why, "unparked and sleepers are not all workers", unparked_of(word),
				idle->sleepers_nr);
	if (searching_of(word) > unparked_of(word))
		return complain(why, "more search than are awake", searching_of(word), unparked_of(word));
	for (w = 0; w < idle->workers_nr; w++)
		parked_nr += mrt__idle_is_parked(idle, w);
	if (parked_nr != idle->sleepers_nr)
		return complain(why, "flags and stack differ", parked_nr, idle->sleepers_nr);
	for (pos = 0; pos < idle->sleepers_nr; pos++) {
		if (!mrt__idle_is_parked(idle, idle->sleepers[pos]))
			return complain(why, "a sleeper without its flag: position, worker", pos,
					idle->sleepers[pos]);
	}
	return true;
}

bool mrt__idle_check(struct mrt__idle *idle, FILE *why)
{
	bool ok;

	mrt__lock(&idle->lock);
	ok = check_locked(idle, why);
	mrt__unlock(&idle->lock);
	return ok;
}
