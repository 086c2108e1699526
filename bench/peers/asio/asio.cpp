/* SPDX-License-Identifier: MIT */
/*
 * Boost.Asio in the shapes of docs/bench-peers.md that it has. Its tasks are handlers: a spawn is a post, a yield posts the
 * handler again; none is awaited, parked or joined. 0 and 1 workers are one thread that runs the io_context.
 *
 * Built twice: on epoll, and (peer asio_uring) with its io_uring service, which alone has files.
 */
#include <boost/asio.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#if defined(BOOST_ASIO_HAS_IO_URING)
#include <boost/asio/random_access_file.hpp>
#endif

#include "../peer.h"

namespace asio = boost::asio;
using asio::ip::tcp;
using clock_type = std::chrono::steady_clock;

namespace {

asio::io_context context;

uint64_t now_ns()
{
	return bench_clock(CLOCK_MONOTONIC);
}

std::chrono::nanoseconds ns_of(uint64_t ns)
{
	return std::chrono::nanoseconds(static_cast<int64_t>(ns));
}

/* Threads that run the context until it is stopped. One alone runs on the last CPU, the caller then on the first. */
class workers {
public:
	explicit workers(unsigned nr) : guard_(asio::make_work_guard(context))
	{
		int cpus[CPU_SETSIZE];
		unsigned cpus_nr = bench_cpus(cpus);

		for (unsigned i = 0; i < (nr ? nr : 1); i++)
			threads_.emplace_back([=, last = cpus[cpus_nr - 1]] {
				if (nr == 1)
					bench_pin(&last, 1);
				context.run();
			});
		if (nr == 1)
			bench_pin(cpus, 1);
	}

	~workers()
	{
		guard_.reset();
		context.stop();
		for (auto &t : threads_)
			t.join();
	}

private:
	asio::executor_work_guard<asio::io_context::executor_type> guard_;
	std::vector<std::thread> threads_;
};

/* What a plain thread waits for. */
class gate {
public:
	void expect(uint64_t nr)
	{
		open_ = false;
		left_.store(nr, std::memory_order_release);
	}

	void hit()
	{
		if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1)
			return;
		std::lock_guard<std::mutex> lock(mutex_);
		open_ = true;
		opened_.notify_one();
	}

	void wait()
	{
		std::unique_lock<std::mutex> lock(mutex_);
		opened_.wait(lock, [this] { return open_; });
	}

private:
	std::atomic<uint64_t> left_{ 0 };
	std::mutex mutex_;
	std::condition_variable opened_;
	bool open_ = false;
};

/* Twice; the second pass counts. The body is handed the gate that opens when all is done, and gives what was done. */
template <typename Body> void run_twice(const peer_args *a, Body body)
{
	workers w(a->workers);
	peer_span s = { 0, 0 };
	uint64_t done = 0;
	gate all;

	for (unsigned i = 0; i < 2; i++) {
		s = peer_start();
		done = body(all);
		peer_stop(&s);
	}
	peer_print(a, nullptr, done, &s, "%s", "");
}

/* ---- spawn ---- */

void spawn_worker(const peer_args *a)
{
	run_twice(a, [a](gate &all) {
		uint64_t done = 0;

		for (; done < a->n; done += PEER_SPAWN_ROUND) {
			all.expect(PEER_SPAWN_ROUND);
			asio::post(context, [&all] {
				for (unsigned i = 0; i < PEER_SPAWN_ROUND; i++)
					asio::post(context, [&all] { all.hit(); });
			});
			all.wait();
		}
		return done;
	});
}

void spawn_outside(const peer_args *a)
{
	run_twice(a, [a](gate &all) {
		uint64_t done = 0;

		for (; done < a->n; done += PEER_SPAWN_ROUND) {
			all.expect(PEER_SPAWN_ROUND);
			for (unsigned i = 0; i < PEER_SPAWN_ROUND; i++)
				asio::post(context, [&all] { all.hit(); });
			all.wait();
		}
		return done;
	});
}

void spawn_threads(const peer_args *a)
{
	workers w(a->workers);
	uint64_t each = a->n / a->arg, ops = each * a->arg, spawned = 0;
	peer_span s = { 0, 0 };
	gate all;

	for (unsigned pass = 0; pass < 2; pass++) {
		std::vector<std::thread> threads;
		std::atomic<uint64_t> end{ 0 };
		pthread_barrier_t barrier;

		all.expect(ops);
		pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(a->arg) + 1);
		for (uint64_t t = 0; t < a->arg; t++)
			threads.emplace_back([&] {
				pthread_barrier_wait(&barrier);
				for (uint64_t i = 0; i < each; i++)
					asio::post(context, [&all] { all.hit(); });
				uint64_t now = now_ns(), seen = end.load();
				while (seen < now && !end.compare_exchange_weak(seen, now))
					;
			});
		uint64_t start = now_ns();
		s = peer_start();
		pthread_barrier_wait(&barrier);
		all.wait();
		peer_stop(&s);
		for (auto &t : threads)
			t.join();
		spawned = end.load() - start;
		pthread_barrier_destroy(&barrier);
	}
	peer_print(a, nullptr, ops, &s, "\"spawned\":%.3f", static_cast<double>(spawned) / static_cast<double>(ops));
}

void chain(uint64_t left, gate &all)
{
	if (left > 1)
		asio::post(context, [left, &all] { chain(left - 1, all); });
	else
		all.hit();
}

void chained(const peer_args *a)
{
	run_twice(a, [a](gate &all) {
		all.expect(1);
		asio::post(context, [a, &all] { chain(a->n, all); });
		all.wait();
		return a->n;
	});
}

/* ---- yields and wakes ---- */

void yield_again(uint64_t left, gate &all)
{
	if (left > 0)
		asio::post(context, [left, &all] { yield_again(left - 1, all); });
	else
		all.hit();
}

void yield(const peer_args *a)
{
	run_twice(a, [a](gate &all) {
		all.expect(PEER_YIELDERS);
		asio::post(context, [a, &all] {
			for (unsigned i = 0; i < PEER_YIELDERS; i++)
				yield_again(a->n / PEER_YIELDERS, all);
		});
		all.wait();
		return a->n / PEER_YIELDERS * PEER_YIELDERS;
	});
}

void wake_idle(const peer_args *a)
{
	workers w(1);
	std::atomic<uint64_t> woken{ 0 };
	std::vector<uint64_t> ns(a->n);
	peer_span s = peer_start();

	for (auto &one : ns) {
		bench_spin_ns(a->arg * 1000);
		uint64_t start = now_ns(), end;
		asio::post(context, [&woken] { woken.store(now_ns(), std::memory_order_release); });
		while ((end = woken.load(std::memory_order_acquire)) < start)
			;
		one = end - start;
	}
	peer_stop(&s);
	bench_sort_u64(ns.data(), ns.size());
	peer_print(a, nullptr, a->n, &s, PEER_LATENESS, PEER_LATENESS_OF(ns.data(), ns.size()));
}

void blocking_round(const peer_args *a, asio::thread_pool &pool, std::atomic<uint64_t> &done, gate &all)
{
	auto left = std::make_shared<unsigned>(PEER_BLOCKING_ROUND);

	for (unsigned i = 0; i < PEER_BLOCKING_ROUND; i++)
		asio::post(pool, [=, &pool, &done, &all] {
			done.fetch_add(1, std::memory_order_relaxed);
			/* back on the context, as a completion is */
			asio::post(context, [=, &pool, &done, &all] {
				if (--*left > 0)
					return;
				if (done.load(std::memory_order_relaxed) < a->n)
					blocking_round(a, pool, done, all);
				else
					all.hit();
			});
		});
}

void spawn_blocking(const peer_args *a)
{
	asio::thread_pool pool(PEER_BLOCKING_ROUND);
	peer_args one = *a;

	one.workers = 0; /* the count of a round is not shared between threads */
	run_twice(&one, [a, &pool](gate &all) {
		std::atomic<uint64_t> done{ 0 };

		all.expect(1);
		asio::post(context, [&] { blocking_round(a, pool, done, all); });
		all.wait();
		return done.load();
	});
	pool.join();
}

/* ---- timers: all on the calling thread ---- */

void timer_arm_cancel(const peer_args *a)
{
	asio::steady_timer t(context);
	uint64_t rand = 1, done = 0;
	peer_span s = { 0, 0 };

	for (unsigned pass = 0; pass < 2; pass++) {
		done = 0;
		s = peer_start();
		for (uint64_t i = 0; i < a->n; i++) {
			t.expires_after(ns_of(10000000000u + bench_rand(&rand) % 1000000000u));
			t.async_wait([](const boost::system::error_code &) {});
			t.cancel();
			done += context.poll(); /* the cancelled wait's handler */
			context.restart();
		}
		peer_stop(&s);
	}
	peer_print(a, nullptr, done, &s, "%s", "");
}

void timer_live(const peer_args *a)
{
	peer_span arm = { 0, 0 }, cancel = { 0, 0 };
	uint64_t rand = 1, done = 0;

	for (unsigned pass = 0; pass < 2; pass++) {
		std::vector<std::unique_ptr<asio::steady_timer>> timers;

		timers.reserve(a->n);
		for (uint64_t i = 0; i < a->n; i++)
			timers.push_back(std::make_unique<asio::steady_timer>(context));
		done = 0;
		arm = peer_start();
		for (auto &t : timers) {
			t->expires_after(ns_of(60000000000u + bench_rand(&rand) % 10000000000u));
			t->async_wait([&done](const boost::system::error_code &e) { done += e == asio::error::operation_aborted; });
		}
		peer_stop(&arm);
		cancel = peer_start();
		for (auto &t : timers)
			t->cancel();
		context.poll();
		context.restart();
		peer_stop(&cancel);
	}
	peer_print(a, nullptr, done, &arm, "\"cancel\":%.3f,\"cancel_cpu\":%.3f",
		   static_cast<double>(cancel.wall_ns) / static_cast<double>(a->n),
		   static_cast<double>(cancel.cpu_ns) / static_cast<double>(a->n));
}

void timer_expire(const peer_args *a)
{
	std::vector<std::unique_ptr<asio::steady_timer>> timers;
	std::vector<clock_type::time_point> due;
	std::vector<uint64_t> late(a->n, 1);
	uint64_t rand = 1;
	peer_span s = peer_start();
	auto first = clock_type::now() + std::chrono::milliseconds(a->arg);

	timers.reserve(a->n);
	due.reserve(a->n);
	for (uint64_t i = 0; i < a->n; i++) {
		due.push_back(first + ns_of(bench_rand(&rand) % 1000000000u));
		timers.push_back(std::make_unique<asio::steady_timer>(context, due[i]));
		timers[i]->async_wait([&due, &late, i](const boost::system::error_code &) {
			auto now = clock_type::now();

			if (now < due[i])
				bench_die("timer_expire: a timer fired early");
			late[i] = static_cast<uint64_t>((now - due[i]).count());
		});
	}
	if (clock_type::now() > first)
		bench_die("timer_expire: %llu ms do not suffice to start them", static_cast<unsigned long long>(a->arg));
	uint64_t fired = context.run();
	peer_stop(&s);
	auto last_due = due[0], end = due[0];
	for (uint64_t i = 0; i < a->n; i++) {
		last_due = std::max(last_due, due[i]);
		end = std::max(end, due[i] + ns_of(late[i]));
	}
	bench_sort_u64(late.data(), late.size());
	peer_print(a, nullptr, fired, &s, PEER_LATENESS ",\"last_us\":%.2f", PEER_LATENESS_OF(late.data(), late.size()),
		   static_cast<double>((end - last_due).count()) / 1e3);
}

void timer_accuracy(const peer_args *a)
{
	asio::steady_timer t(context);
	std::vector<uint64_t> late;
	peer_span s = peer_start();

	while (late.size() < a->n) {
		auto due = clock_type::now() + std::chrono::milliseconds(late.size() % PEER_ACC_MS_MAX + 1);

		t.expires_at(due);
		t.async_wait([&](const boost::system::error_code &) {
			late.push_back(static_cast<uint64_t>((clock_type::now() - due).count()));
		});
		context.run();
		context.restart();
	}
	peer_stop(&s);
	bench_sort_u64(late.data(), late.size());
	peer_print(a, nullptr, late.size(), &s, PEER_LATENESS, PEER_LATENESS_OF(late.data(), late.size()));
}

/* ---- fairness ---- */

struct fairness {
	enum { WARM, COUNT, STOP };
	std::atomic<int> phase{ WARM };
	std::vector<uint64_t> polls = std::vector<uint64_t>(PEER_FAIR_TASKS);
	gate all;

	void ready(unsigned i)
	{
		int p = phase.load(std::memory_order_relaxed);

		if (p == STOP)
			return all.hit();
		polls[i] += p == COUNT;
		asio::post(context, [this, i] { ready(i); });
	}
};

void fair_yield(const peer_args *a)
{
	workers w(a->workers);
	fairness f;
	peer_span s = peer_start();

	f.all.expect(PEER_FAIR_TASKS);
	for (unsigned i = 0; i < PEER_FAIR_TASKS; i++)
		asio::post(context, [&f, i] { f.ready(i); });
	bench_sleep_ns(PEER_FAIR_WARM_NS);
	f.phase = fairness::COUNT;
	bench_sleep_ns(a->n * 1000000);
	f.phase = fairness::STOP;
	f.all.wait();
	peer_stop(&s);
	peer_shares shares = peer_shares_of(f.polls.data(), f.polls.size());
	peer_print(a, nullptr, shares.sum, &s, PEER_SHARES, shares.slowest, shares.fastest);
}

/* ---- I/O: on the calling thread ---- */

class session : public std::enable_shared_from_this<session> {
public:
	explicit session(tcp::socket socket) : socket_(std::move(socket))
	{
	}

	void read()
	{
		auto self = shared_from_this();

		socket_.async_read_some(asio::buffer(buf_), [self](const boost::system::error_code &e, size_t bytes) {
			if (!e)
				self->write(bytes);
		});
	}

private:
	void write(size_t bytes)
	{
		auto self = shared_from_this();

		asio::async_write(socket_, asio::buffer(buf_, bytes), [self](const boost::system::error_code &e, size_t) {
			if (!e)
				self->read();
		});
	}

	tcp::socket socket_;
	char buf_[PEER_ECHO_BUF_BYTES];
};

void accept(tcp::acceptor &acceptor)
{
	acceptor.async_accept([&acceptor](const boost::system::error_code &e, tcp::socket socket) {
		if (e)
			bench_die("accept: %s", e.message().c_str());
		socket.set_option(tcp::no_delay(true));
		std::make_shared<session>(std::move(socket))->read();
		accept(acceptor);
	});
}

void echo(const peer_args *)
{
	tcp::acceptor acceptor(context, tcp::v4(), peer_listen());

	accept(acceptor);
	context.run(); /* until the process is ended */
}

#if defined(BOOST_ASIO_HAS_IO_URING)
struct reads {
	asio::random_access_file file;
	uint64_t blocks, end_ns, done;
};

struct reader {
	reads *all;
	void *buf;
	uint64_t rand;

	void next()
	{
		uint64_t off = bench_rand(&rand) % all->blocks * PEER_BLOCK_BYTES;

		all->file.async_read_some_at(off, asio::buffer(buf, PEER_BLOCK_BYTES),
			[this](const boost::system::error_code &e, size_t bytes) {
				if (e || bytes != PEER_BLOCK_BYTES)
					bench_die("read: %s", e.message().c_str());
				all->done++;
				if (now_ns() < all->end_ns)
					next();
			});
	}
};

void read_file(const peer_args *a)
{
	uint64_t blocks;
	int fd = peer_open(a, &blocks);
	reads all = { asio::random_access_file(context, fd), blocks, 0, 0 };
	std::vector<reader> readers(a->arg);
	void *memory;

	if (posix_memalign(&memory, PEER_BLOCK_BYTES, a->arg * PEER_BLOCK_BYTES))
		bench_die("no memory for blocks");
	peer_span s = peer_start();
	all.end_ns = now_ns() + a->n * 1000000;
	for (uint64_t i = 0; i < a->arg; i++) {
		readers[i] = { &all, static_cast<char *>(memory) + i * PEER_BLOCK_BYTES, i + 1 };
		readers[i].next();
	}
	context.run();
	peer_stop(&s);
	peer_print(a, nullptr, all.done, &s, "%s", "");
}
#endif

} // namespace

int main(int argc, char **argv)
{
	static const peer_shape shapes[] = {
#if defined(BOOST_ASIO_HAS_IO_URING)
		{ "read", read_file },
#endif
		{ "echo", echo },
		{ "spawn_worker", spawn_worker },
		{ "spawn_outside", spawn_outside },
		{ "spawn_threads", spawn_threads },
		{ "chained", chained },
		{ "yield", yield },
		{ "spawn_blocking", spawn_blocking },
		{ "timer_arm_cancel", timer_arm_cancel },
		{ "timer_live", timer_live },
		{ "timer_expire", timer_expire },
		{ "timer_accuracy", timer_accuracy },
		{ "wake_idle", wake_idle },
		{ "fair_yield", fair_yield },
	};
#if defined(BOOST_ASIO_HAS_IO_URING)
	const char *name = "asio_uring";
#else
	const char *name = "asio";
#endif

	return peer_main(name, shapes, sizeof(shapes) / sizeof(shapes[0]), argc, argv);
}
