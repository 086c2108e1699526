// SPDX-License-Identifier: MIT
//! Tokio in the shapes of docs/bench-peers.md. Arguments and output are those of bench/peers/peer.h; sizes too.
use std::future::Future;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};

const JOIN_ROUND: usize = 1000;
const YIELDERS: usize = 200;
const NO_SUCH_SHAPE: i32 = 77;
const LIMIT_S: u32 = 120;

struct Args {
    shape: String,
    workers: usize,
    n: u64,
}

fn cpu_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// A measured stretch: wall and CPU time in ns.
struct Span {
    wall: Instant,
    cpu: u64,
}

impl Span {
    fn start() -> Span {
        let cpu = cpu_ns();
        Span { wall: Instant::now(), cpu }
    }

    fn stop(self) -> (u64, u64) {
        let wall = self.wall.elapsed().as_nanos() as u64;
        (wall, cpu_ns() - self.cpu)
    }
}

fn print(a: &Args, shape: &str, ops: u64, span: (u64, u64), extra: &str) {
    if ops == 0 {
        eprintln!("tokio {}: nothing was done", shape);
        std::process::exit(1);
    }
    println!(
        "{{\"shape\":\"{}\",\"peer\":\"tokio\",\"workers\":{},\"ops\":{},\"wall_ns\":{:.3},\"cpu_ns\":{:.3},\"extra\":{{{}}}}}",
        shape,
        a.workers,
        ops,
        span.0 as f64 / ops as f64,
        span.1 as f64 / ops as f64,
        extra
    );
}

/// 0 workers is the current-thread flavour.
fn runtime(a: &Args) -> Runtime {
    let mut b = match a.workers {
        0 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if a.workers > 0 {
        b.worker_threads(a.workers);
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
    print(a, &a.shape, done, span.stop(), "");
}

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
    };
    unsafe { libc::alarm(LIMIT_S) };
    match a.shape.as_str() {
        "spawn_join" => run_twice(&a, spawn_join),
        "spawn_join_many" => run_twice(&a, spawn_join_many),
        "yield" => run_twice(&a, yields),
        shape => {
            eprintln!("tokio has no shape '{}'", shape);
            std::process::exit(NO_SUCH_SHAPE);
        }
    }
}
