// SPDX-License-Identifier: MIT
//! Tokio in the shapes of docs/bench-peers.md. Arguments, output and sizes are those of bench/peers/peer.h.
use std::alloc::{alloc, Layout};
use std::fs::File;
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{oneshot, Notify};
use tokio::time::Sleep;

const SPAWN_ROUND: usize = 10_000;
const JOIN_ROUND: usize = 1000;
const PING_ROUND: usize = 1000;
const YIELDERS: usize = 200;
const BLOCKING_ROUND: usize = 16;
const FAIR_TASKS: usize = 1000;
const FAIR_WARM: Duration = Duration::from_millis(100);
const ACC_MS_MAX: u64 = 50;
const BLOCK: usize = 4096;
const ECHO_BUF: usize = 1024;
const NO_SUCH_SHAPE: i32 = 77;
const LIMIT_S: u32 = 120;

struct Args {
    shape: String,
    workers: usize,
    n: u64,
    arg: u64,
    file: Option<String>,
    direct: bool,
}

fn die(why: &str) -> ! {
    eprintln!("{}", why);
    std::process::exit(1)
}

// ---- clocks and output ----

fn cpu_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// A measured stretch.
struct Span {
    wall: Instant,
    cpu: u64,
}

/// Wall and CPU time of a stretch, in ns.
#[derive(Clone, Copy)]
struct Cost {
    wall: u64,
    cpu: u64,
}

impl Span {
    fn start() -> Span {
        let cpu = cpu_ns();
        Span { wall: Instant::now(), cpu }
    }

    fn stop(self) -> Cost {
        let wall = self.wall.elapsed().as_nanos() as u64;
        Cost { wall, cpu: cpu_ns() - self.cpu }
    }
}

fn print(a: &Args, ops: u64, cost: Cost, extra: &str) {
    if ops == 0 {
        die(&format!("tokio {}: nothing was done", a.shape));
    }
    println!(
        "{{\"shape\":\"{}\",\"peer\":\"tokio\",\"workers\":{},\"ops\":{},\"wall_ns\":{:.3},\"cpu_ns\":{:.3},\"extra\":{{{}}}}}",
        a.shape,
        a.workers,
        ops,
        cost.wall as f64 / ops as f64,
        cost.cpu as f64 / ops as f64,
        extra
    );
}

/// How late sleeps were, in ns: the inside of "extra".
fn lateness(late: &mut [u64]) -> String {
    late.sort_unstable();
    let at = |p: usize| late[(late.len() * p / 100).min(late.len() - 1)] as f64 / 1e3;
    format!(
        "\"p50_us\":{:.2},\"p99_us\":{:.2},\"max_us\":{:.2}",
        at(50),
        at(99),
        late[late.len() - 1] as f64 / 1e3
    )
}

/// The same xorshift64* as in bench/machine.h.
struct Rand(u64);

impl Rand {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn rss_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc/self/statm");
    let pages = text.split(' ').nth(1).expect("two numbers");
    pages.parse::<u64>().expect("a number") * 4096
}

// ---- runtimes ----

fn cpus() -> Vec<usize> {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, std::mem::size_of_val(&set), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&c| libc::CPU_ISSET(c, &set)).collect()
    }
}

fn pin(cpu: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
}

/// 0 workers is the current-thread flavour. One worker is pinned to the last CPU, and the caller to the first, as in
/// Martlet's program; two float.
fn runtime(a: &Args) -> Runtime {
    let mut b = match a.workers {
        0 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if a.workers > 0 {
        b.worker_threads(a.workers);
    }
    if a.workers == 1 {
        let all = cpus();
        let last = all[all.len() - 1];
        pin(all[0]);
        b.on_thread_start(move || pin(last));
    }
    b.enable_all().build().expect("a runtime")
}

/// Run on a worker; on the current thread that is the caller.
fn on_worker<F>(rt: &Runtime, body: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    rt.block_on(async { tokio::spawn(body).await.expect("the body") })
}

/// Twice on one runtime; the second pass counts. The body gives what was done.
fn run_twice<F, B>(a: &Args, body: B)
where
    B: Fn(u64) -> F,
    F: Future<Output = u64> + Send + 'static,
{
    let rt = runtime(a);
    on_worker(&rt, body(a.n));
    let span = Span::start();
    let done = on_worker(&rt, body(a.n));
    print(a, done, span.stop(), "");
}

// ---- spawn ----

async fn spawn_join(n: u64) -> u64 {
    let mut done = 0;
    while done < n {
        done += tokio::spawn(async { 1 }).await.expect("a task");
    }
    done
}

async fn spawn_join_many(n: u64) -> u64 {
    let mut done = 0;
    let mut tasks = Vec::with_capacity(JOIN_ROUND);
    while done < n {
        for _ in 0..JOIN_ROUND {
            tasks.push(tokio::spawn(async { 1u64 }));
        }
        for task in tasks.drain(..) {
            done += task.await.expect("a task");
        }
    }
    done
}

struct Countdown {
    left: AtomicUsize,
    notify: Notify,
}

impl Countdown {
    fn new() -> Arc<Countdown> {
        Arc::new(Countdown { left: AtomicUsize::new(0), notify: Notify::new() })
    }

    fn hit(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.notify.notify_one();
        }
    }
}

async fn spawn_worker(n: u64) -> u64 {
    let c = Countdown::new();
    let mut done = 0;
    while done < n {
        c.left.store(SPAWN_ROUND, Ordering::Relaxed);
        for _ in 0..SPAWN_ROUND {
            let c = c.clone();
            tokio::spawn(async move { c.hit() });
        }
        c.notify.notified().await;
        done += SPAWN_ROUND as u64;
    }
    done
}

/// Counts down for a plain thread.
struct Gate {
    left: AtomicUsize,
    done: mpsc::SyncSender<()>,
}

fn spawn_counted(rt: &Handle, gate: &Arc<Gate>, n: usize) {
    for _ in 0..n {
        let gate = gate.clone();
        rt.spawn(async move {
            if gate.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                gate.done.send(()).expect("the receiver");
            }
        });
    }
}

fn spawn_outside(a: &Args) {
    let rt = runtime(a);
    let (send, receive) = mpsc::sync_channel(1);
    let gate = Arc::new(Gate { left: AtomicUsize::new(0), done: send });
    let pass = || {
        let span = Span::start();
        let mut done = 0;
        while done < a.n {
            gate.left.store(SPAWN_ROUND, Ordering::Relaxed);
            spawn_counted(rt.handle(), &gate, SPAWN_ROUND);
            receive.recv().expect("the sender");
            done += SPAWN_ROUND as u64;
        }
        (done, span.stop())
    };
    pass();
    let (done, cost) = pass();
    print(a, done, cost, "");
}

fn spawn_threads(a: &Args) {
    let rt = runtime(a);
    let threads = a.arg as usize;
    let each = a.n as usize / threads;
    let ops = (each * threads) as u64;
    let pass = || {
        let (send, receive) = mpsc::sync_channel(1);
        let gate = Arc::new(Gate { left: AtomicUsize::new(each * threads), done: send });
        let barrier = Arc::new(Barrier::new(threads + 1));
        let spawners: Vec<_> = (0..threads)
            .map(|_| {
                let (gate, barrier, rt) = (gate.clone(), barrier.clone(), rt.handle().clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    spawn_counted(&rt, &gate, each);
                    Instant::now()
                })
            })
            .collect();
        let start = Instant::now();
        let span = Span::start();
        barrier.wait();
        receive.recv().expect("the sender");
        let cost = span.stop();
        let ends = spawners.into_iter().map(|s| s.join().expect("a spawner"));
        (cost, ends.max().expect("a spawner") - start)
    };
    pass();
    let (cost, spawned) = pass();
    print(a, ops, cost, &format!("\"spawned\":{:.3}", spawned.as_nanos() as f64 / ops as f64));
}

fn chain(c: Arc<Countdown>, left: u64) {
    tokio::spawn(async move {
        if left > 1 {
            chain(c, left - 1);
        } else {
            c.hit();
        }
    });
}

async fn chained(n: u64) -> u64 {
    let c = Countdown::new();
    c.left.store(1, Ordering::Relaxed);
    chain(c.clone(), n);
    c.notify.notified().await;
    n
}

// ---- yields and wakes ----

async fn yields(n: u64) -> u64 {
    let each = n / YIELDERS as u64;
    let mut tasks = Vec::with_capacity(YIELDERS);
    let mut done = 0;
    for _ in 0..YIELDERS {
        tasks.push(tokio::spawn(async move {
            let mut done = 0u64;
            for _ in 0..each {
                tokio::task::yield_now().await;
                done += 1;
            }
            done
        }));
    }
    for task in tasks {
        done += task.await.expect("a task");
    }
    done
}

async fn ping_pong(n: u64) -> u64 {
    let c = Countdown::new();
    let mut done = 0;
    while done < n {
        c.left.store(2 * PING_ROUND, Ordering::Relaxed);
        for _ in 0..PING_ROUND {
            let c = c.clone();
            tokio::spawn(async move {
                let (there, at_there) = oneshot::channel::<i64>();
                let (back, at_back) = oneshot::channel::<i64>();
                let partner = c.clone();
                tokio::spawn(async move {
                    let value = at_there.await.expect("the ping");
                    back.send(value).expect("the pinger");
                    partner.hit();
                });
                there.send(7).expect("the partner");
                assert_eq!(at_back.await.expect("the pong"), 7);
                c.hit();
            });
        }
        c.notify.notified().await;
        done += PING_ROUND as u64;
    }
    done
}

fn wake_idle(a: &Args) {
    let rt = runtime(a);
    let notify = Arc::new(Notify::new());
    let woken = Arc::new(AtomicU64::new(0));
    let zero = Instant::now();
    let (n, pause) = (a.n, Duration::from_micros(a.arg));
    let task = {
        let (notify, woken) = (notify.clone(), woken.clone());
        rt.spawn(async move {
            for _ in 0..n {
                notify.notified().await;
                woken.store(zero.elapsed().as_nanos() as u64, Ordering::Release);
            }
        })
    };
    let mut ns = vec![1u64; n as usize];
    let span = Span::start();
    for one in ns.iter_mut() {
        let from = Instant::now();
        while from.elapsed() < pause {}
        let start = zero.elapsed().as_nanos() as u64;
        notify.notify_one();
        *one = loop {
            let end = woken.load(Ordering::Acquire);
            if end >= start {
                break end - start;
            }
        };
    }
    let cost = span.stop();
    rt.block_on(task).expect("the task");
    print(a, n, cost, &lateness(&mut ns));
}

async fn spawn_blocking(n: u64) -> u64 {
    let mut done = 0;
    let mut calls = Vec::with_capacity(BLOCKING_ROUND);
    while done < n {
        for _ in 0..BLOCKING_ROUND {
            calls.push(tokio::task::spawn_blocking(|| 1u64));
        }
        for call in calls.drain(..) {
            done += call.await.expect("a call");
        }
    }
    done
}

// ---- timers ----

/// Polls a sleep once; a future that is ready at once.
struct PollOnce<'a>(Pin<&'a mut Sleep>);

impl Future for PollOnce<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(self.0.as_mut().poll(cx).is_pending())
    }
}

async fn timer_arm_cancel(n: u64) -> u64 {
    let mut rand = Rand(1);
    let mut done = 0;
    for _ in 0..n {
        let sleep = tokio::time::sleep(Duration::from_nanos(10_000_000_000 + rand.next() % 1_000_000_000));
        tokio::pin!(sleep);
        done += PollOnce(sleep.as_mut()).await as u64;
    }
    done
}

async fn timer_live_pass(n: u64) -> (u64, Cost, Cost) {
    let mut rand = Rand(1);
    let mut sleeps = Vec::with_capacity(n as usize);
    let mut done = 0;
    let span = Span::start();
    for _ in 0..n {
        let ns = 60_000_000_000 + rand.next() % 10_000_000_000;
        sleeps.push(Box::pin(tokio::time::sleep(Duration::from_nanos(ns))));
        let last = sleeps.len() - 1;
        done += PollOnce(sleeps[last].as_mut()).await as u64;
    }
    let arm = span.stop();
    let span = Span::start();
    drop(sleeps);
    (done, arm, span.stop())
}

fn timer_live(a: &Args) {
    let rt = runtime(a);
    on_worker(&rt, timer_live_pass(a.n));
    let (done, arm, cancel) = on_worker(&rt, timer_live_pass(a.n));
    let each = |ns: u64| ns as f64 / a.n as f64;
    print(
        a,
        done,
        arm,
        &format!("\"cancel\":{:.3},\"cancel_cpu\":{:.3}", each(cancel.wall), each(cancel.cpu)),
    );
}

async fn timer_expire_pass(n: u64, lead: Duration) -> Vec<(Instant, u64)> {
    let first = Instant::now() + lead;
    let mut rand = Rand(1);
    let late: Arc<Vec<AtomicU64>> = Arc::new((0..n).map(|_| AtomicU64::new(1)).collect());
    let mut due = Vec::with_capacity(n as usize);
    let c = Countdown::new();
    c.left.store(n as usize, Ordering::Relaxed);
    for i in 0..n as usize {
        let at = first + Duration::from_nanos(rand.next() % 1_000_000_000);
        let (late, c) = (late.clone(), c.clone());
        due.push(at);
        tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            let now = Instant::now();
            if now < at {
                die("timer_expire: a sleep ended early");
            }
            late[i].store((now - at).as_nanos() as u64, Ordering::Relaxed);
            c.hit();
        });
    }
    if Instant::now() > first {
        die(&format!("timer_expire: {} ms do not suffice to start them", lead.as_millis()));
    }
    c.notify.notified().await;
    due.into_iter().zip(late.iter().map(|l| l.load(Ordering::Relaxed))).collect()
}

fn timer_expire(a: &Args) {
    let rt = runtime(a);
    let span = Span::start();
    let fired = on_worker(&rt, timer_expire_pass(a.n, Duration::from_millis(a.arg)));
    let cost = span.stop();
    let last_due = fired.iter().map(|f| f.0).max().expect("a sleep");
    let end = fired.iter().map(|f| f.0 + Duration::from_nanos(f.1)).max().expect("a sleep");
    let mut late: Vec<u64> = fired.iter().map(|f| f.1).collect();
    let extra = format!("{},\"last_us\":{:.2}", lateness(&mut late), (end - last_due).as_nanos() as f64 / 1e3);
    print(a, fired.len() as u64, cost, &extra);
}

fn timer_accuracy(a: &Args) {
    let rt = runtime(a);
    let n = a.n;
    let span = Span::start();
    let mut late = on_worker(&rt, async move {
        let mut late = Vec::with_capacity(n as usize);
        for i in 0..n {
            let due = Instant::now() + Duration::from_millis(i % ACC_MS_MAX + 1);
            tokio::time::sleep_until(due.into()).await;
            late.push(due.elapsed().as_nanos() as u64);
        }
        late
    });
    let cost = span.stop();
    print(a, late.len() as u64, cost, &lateness(&mut late));
}

// ---- memory ----

/// A copy that the compiler does not look through.
fn opaque<T: Copy>(from: &T) -> T {
    unsafe { std::ptr::read_volatile(from) }
}

fn memory_of(a: &Args, sleeping: bool) {
    let rt = runtime(a);
    let n = a.n as usize;
    let span = Span::start();
    let (before, done) = on_worker(&rt, async move {
        // leaked: the tasks borrow them, as a frame points to them in C
        let never: &'static Notify = Box::leak(Box::new(Notify::new()));
        let count: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
        tokio::time::sleep(Duration::from_millis(5)).await;
        let before = rss_bytes();
        for _ in 0..n {
            let user = opaque(&[0u64; 4]);
            if sleeping {
                tokio::spawn(async move {
                    count.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    opaque(&user);
                });
            } else {
                tokio::spawn(async move {
                    count.fetch_add(1, Ordering::Relaxed);
                    never.notified().await;
                    opaque(&user);
                });
            }
        }
        while count.load(Ordering::Relaxed) < n {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (before, count.load(Ordering::Relaxed))
    });
    let cost = span.stop();
    let bytes = (rss_bytes() - before) as f64 / n as f64;
    print(a, done as u64, cost, &format!("\"bytes\":{:.1}", bytes));
    std::process::exit(0); // not a million drops
}

// ---- fairness ----

fn fair_yield(a: &Args) {
    const COUNT: u32 = 1;
    const STOP: u32 = 2;
    let rt = runtime(a);
    let phase = Arc::new(AtomicU32::new(0));
    let window = Duration::from_millis(a.n);
    let watch = {
        let phase = phase.clone();
        std::thread::spawn(move || {
            std::thread::sleep(FAIR_WARM);
            phase.store(COUNT, Ordering::Relaxed);
            std::thread::sleep(window);
            phase.store(STOP, Ordering::Relaxed);
        })
    };
    let span = Span::start();
    let polls = on_worker(&rt, async move {
        let tasks: Vec<_> = (0..FAIR_TASKS)
            .map(|_| {
                let phase = phase.clone();
                tokio::spawn(async move {
                    let mut polls = 0u64;
                    while phase.load(Ordering::Relaxed) != STOP {
                        polls += (phase.load(Ordering::Relaxed) == COUNT) as u64;
                        tokio::task::yield_now().await;
                    }
                    polls
                })
            })
            .collect();
        let mut polls = Vec::with_capacity(FAIR_TASKS);
        for task in tasks {
            polls.push(task.await.expect("a task"));
        }
        polls
    });
    let cost = span.stop();
    watch.join().expect("the watch");
    let sum: u64 = polls.iter().sum();
    let share = |p: u64| (p * FAIR_TASKS as u64) as f64 / sum as f64;
    let (min, max) = (polls.iter().min().expect("a task"), polls.iter().max().expect("a task"));
    print(a, sum, cost, &format!("\"slowest\":{:.4},\"fastest\":{:.4}", share(*min), share(*max)));
}

// ---- I/O ----

fn echo(a: &Args) {
    let rt = runtime(a);
    on_worker(&rt, async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("bind");
        let listener = socket.listen(4096).expect("listen");
        println!("port {}", listener.local_addr().expect("an address").port());
        std::io::stdout().flush().expect("stdout");
        loop {
            let (mut conn, _) = listener.accept().await.expect("accept");
            conn.set_nodelay(true).expect("TCP_NODELAY");
            tokio::spawn(async move {
                let mut buf = [0u8; ECHO_BUF];
                loop {
                    match conn.read(&mut buf).await {
                        Ok(0) | Err(_) => break,
                        Ok(n) => {
                            if conn.write_all(&buf[..n]).await.is_err() {
                                break;
                            }
                        }
                    }
                }
            });
        }
    })
}

/// Positional reads through the blocking pool: Tokio has no other.
fn read(a: &Args) {
    let rt = runtime(a);
    let path = a.file.clone().unwrap_or_else(|| die("read wants a file"));
    let flags = if a.direct { libc::O_DIRECT } else { 0 };
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&path);
    let file: Arc<File> = Arc::new(file.unwrap_or_else(|e| die(&format!("{}: {}", path, e))));
    let blocks = file.metadata().expect("metadata").len() / BLOCK as u64;
    let (depth, window) = (a.arg, Duration::from_millis(a.n));
    let span = Span::start();
    let done = on_worker(&rt, async move {
        let end = Instant::now() + window;
        let tasks: Vec<_> = (0..depth)
            .map(|i| {
                let file = file.clone();
                tokio::spawn(async move {
                    let layout = Layout::from_size_align(BLOCK, BLOCK).expect("a layout");
                    let buf = unsafe { alloc(layout) } as usize;
                    let mut rand = Rand(i + 1);
                    let mut done = 0u64;
                    while Instant::now() < end {
                        let (file, off) = (file.clone(), rand.next() % blocks * BLOCK as u64);
                        let got = tokio::task::spawn_blocking(move || {
                            let buf = unsafe { std::slice::from_raw_parts_mut(buf as *mut u8, BLOCK) };
                            file.read_at(buf, off).expect("a read")
                        });
                        done += (got.await.expect("a call") == BLOCK) as u64;
                    }
                    done
                })
            })
            .collect();
        let mut done = 0;
        for task in tasks {
            done += task.await.expect("a task");
        }
        done
    });
    print(a, done, span.stop(), "");
}

// ---- all ----

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| {
        eprintln!("'{}' is no number", text);
        std::process::exit(2)
    })
}

fn main() {
    let argv: Vec<String> = std::env::args().collect();
    if argv.len() < 4 {
        eprintln!("usage: {} SHAPE WORKERS N [ARG [FILE [direct]]]", argv[0]);
        std::process::exit(2);
    }
    let a = Args {
        shape: argv[1].clone(),
        workers: number(&argv[2]) as usize,
        n: number(&argv[3]),
        arg: argv.get(4).map_or(0, |t| number(t)),
        file: argv.get(5).cloned(),
        direct: argv.len() > 6,
    };
    unsafe { libc::alarm(LIMIT_S) };
    match a.shape.as_str() {
        "spawn_join" => run_twice(&a, spawn_join),
        "spawn_join_many" => run_twice(&a, spawn_join_many),
        "spawn_worker" => run_twice(&a, spawn_worker),
        "spawn_outside" => spawn_outside(&a),
        "spawn_threads" => spawn_threads(&a),
        "yield" => run_twice(&a, yields),
        "ping_pong" => run_twice(&a, ping_pong),
        "chained" => run_twice(&a, chained),
        "spawn_blocking" => run_twice(&a, spawn_blocking),
        "timer_arm_cancel" => run_twice(&a, timer_arm_cancel),
        "timer_live" => timer_live(&a),
        "timer_expire" => timer_expire(&a),
        "timer_accuracy" => timer_accuracy(&a),
        "mem_parked" => memory_of(&a, false),
        "mem_sleeping" => memory_of(&a, true),
        "wake_idle" => wake_idle(&a),
        "fair_yield" => fair_yield(&a),
        "echo" => echo(&a),
        "read" => read(&a),
        shape => {
            eprintln!("tokio has no shape '{}'", shape);
            std::process::exit(NO_SUCH_SHAPE);
        }
    }
}
