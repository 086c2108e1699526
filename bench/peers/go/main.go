// SPDX-License-Identifier: MIT

// Go in the shapes of docs/bench-peers.md. Arguments, output and sizes are those of bench/peers/peer.h. Goroutines are the
// tasks; 0 workers is one P. The runtime ignores SIGALRM: the limit of time is the caller's.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	spawnRound  = 10000
	joinRound   = 1000
	pingRound   = 1000
	yielders    = 200
	fairTasks   = 1000
	fairWarm    = 100 * time.Millisecond
	accMsMax    = 50
	block       = 4096
	echoBuf     = 1024
	noSuchShape = 77
)

type args struct {
	shape   string
	workers int
	n       int
	arg     int
	file    string
	direct  bool
}

func die(format string, a ...interface{}) {
	fmt.Fprintf(os.Stderr, format+"\n", a...)
	os.Exit(1)
}

// ---- clocks and output ----

func cpuNs() int64 {
	const processCPU = 2
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, processCPU, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// A measured stretch: first where it starts, then its length.
type span struct {
	start time.Time
	wall  int64
	cpu   int64
}

func startSpan() span {
	cpu := cpuNs()
	return span{start: time.Now(), cpu: cpu}
}

func (s *span) stop() {
	s.wall = time.Since(s.start).Nanoseconds()
	s.cpu = cpuNs() - s.cpu
}

func print(a args, ops int, s span, extra string) {
	if ops == 0 {
		die("go %s: nothing was done", a.shape)
	}
	fmt.Printf("{\"shape\":\"%s\",\"peer\":\"go\",\"workers\":%d,\"ops\":%d,\"wall_ns\":%.3f,\"cpu_ns\":%.3f,\"extra\":{%s}}\n",
		a.shape, a.workers, ops, float64(s.wall)/float64(ops), float64(s.cpu)/float64(ops), extra)
}

// How late sleeps were, in ns: the inside of "extra".
func lateness(late []int64) string {
	sort.Slice(late, func(i, j int) bool { return late[i] < late[j] })
	at := func(p int) float64 {
		i := len(late) * p / 100
		if i >= len(late) {
			i = len(late) - 1
		}
		return float64(late[i]) / 1e3
	}
	return fmt.Sprintf("\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f", at(50), at(99), float64(late[len(late)-1])/1e3)
}

// The same xorshift64* as in bench/machine.h.
type rand uint64

func (r *rand) next() uint64 {
	*r ^= *r >> 12
	*r ^= *r << 25
	*r ^= *r >> 27
	return uint64(*r) * 0x2545f4914f6cdd1d
}

func rssBytes() int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		die("%v", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		die("%v", err)
	}
	return pages * os.Getpagesize()
}

// Twice; the second pass counts.
func runTwice(a args, body func(n int) int) {
	body(a.n)
	s := startSpan()
	done := body(a.n)
	s.stop()
	print(a, done, s, "")
}

// ---- spawn ----

func spawnJoin(n int) int {
	var wg sync.WaitGroup
	done := 0
	for done < n {
		result := 0
		wg.Add(1)
		go func() {
			result = 1
			wg.Done()
		}()
		wg.Wait()
		done += result
	}
	return done
}

func spawnJoinMany(n int) int {
	var wg sync.WaitGroup
	var ran int64
	for int(ran) < n {
		wg.Add(joinRound)
		for i := 0; i < joinRound; i++ {
			go func() {
				atomic.AddInt64(&ran, 1)
				wg.Done()
			}()
		}
		wg.Wait()
	}
	return int(ran)
}

func spawnWorker(n int) int {
	var left int64
	all := make(chan bool, 1)
	done := 0
	for done < n {
		atomic.StoreInt64(&left, spawnRound)
		for i := 0; i < spawnRound; i++ {
			go func() {
				if atomic.AddInt64(&left, -1) == 0 {
					all <- true
				}
			}()
		}
		<-all
		done += spawnRound
	}
	return done
}

func chain(left int, all chan bool) {
	if left > 1 {
		go chain(left-1, all)
	} else {
		all <- true
	}
}

func chained(n int) int {
	all := make(chan bool, 1)
	go chain(n, all)
	<-all
	return n
}

// ---- yields and wakes ----

func yields(n int) int {
	var wg sync.WaitGroup
	var sum int64
	wg.Add(yielders)
	for i := 0; i < yielders; i++ {
		go func() {
			done := 0
			for ; done < n/yielders; done++ {
				runtime.Gosched()
			}
			atomic.AddInt64(&sum, int64(done))
			wg.Done()
		}()
	}
	wg.Wait()
	return int(sum)
}

func pingPong(n int) int {
	var wg sync.WaitGroup
	done := 0
	for done < n {
		wg.Add(2 * pingRound)
		for i := 0; i < pingRound; i++ {
			go func() {
				there, back := make(chan int64, 1), make(chan int64, 1)
				go func() {
					back <- <-there
					wg.Done()
				}()
				there <- 7
				if <-back != 7 {
					die("ping_pong: something else came back")
				}
				wg.Done()
			}()
		}
		wg.Wait()
		done += pingRound
	}
	return done
}

// Two Ps: one is kept by the thread that wakes, the other one is woken.
func wakeIdle(a args) {
	runtime.GOMAXPROCS(2)
	runtime.LockOSThread()
	zero := time.Now()
	var woken int64
	wakes := make(chan bool)
	go func() {
		for range wakes {
			atomic.StoreInt64(&woken, time.Since(zero).Nanoseconds())
		}
	}()
	ns := make([]int64, a.n)
	s := startSpan()
	for i := range ns {
		pause := time.Now()
		for time.Since(pause) < time.Duration(a.arg)*time.Microsecond {
		}
		start := time.Since(zero).Nanoseconds()
		wakes <- true
		for {
			end := atomic.LoadInt64(&woken)
			if end >= start {
				ns[i] = end - start
				break
			}
		}
	}
	s.stop()
	print(a, a.n, s, lateness(ns))
}

// ---- timers ----

func timerArmCancel(n int) int {
	r := rand(1)
	done := 0
	for i := 0; i < n; i++ {
		if time.NewTimer(time.Duration(10_000_000_000 + r.next()%1_000_000_000)).Stop() {
			done++
		}
	}
	return done
}

func timerLivePass(n int) (int, span, span) {
	r := rand(1)
	timers := make([]*time.Timer, n)
	done := 0
	arm := startSpan()
	for i := range timers {
		timers[i] = time.NewTimer(time.Duration(60_000_000_000 + r.next()%10_000_000_000))
	}
	arm.stop()
	cancel := startSpan()
	for _, t := range timers {
		if t.Stop() {
			done++
		}
	}
	cancel.stop()
	return done, arm, cancel
}

func timerLive(a args) {
	timerLivePass(a.n)
	done, arm, cancel := timerLivePass(a.n)
	print(a, done, arm, fmt.Sprintf("\"cancel\":%.3f,\"cancel_cpu\":%.3f", float64(cancel.wall)/float64(a.n),
		float64(cancel.cpu)/float64(a.n)))
}

func timerExpire(a args) {
	late := make([]int64, a.n)
	due := make([]time.Time, a.n)
	var wg sync.WaitGroup
	s := startSpan()
	r := rand(1)
	first := time.Now().Add(time.Duration(a.arg) * time.Millisecond)
	wg.Add(a.n)
	for i := 0; i < a.n; i++ {
		i := i
		at := first.Add(time.Duration(r.next() % 1_000_000_000))
		due[i] = at
		go func() {
			time.Sleep(time.Until(at))
			late[i] = time.Since(at).Nanoseconds()
			if late[i] < 0 {
				die("timer_expire: a sleep ended early")
			}
			wg.Done()
		}()
	}
	if time.Now().After(first) {
		die("timer_expire: %d ms do not suffice to start them", a.arg)
	}
	wg.Wait()
	s.stop()
	var lastDue, end time.Time
	for i := range due {
		if due[i].After(lastDue) {
			lastDue = due[i]
		}
		if at := due[i].Add(time.Duration(late[i])); at.After(end) {
			end = at
		}
	}
	print(a, a.n, s, fmt.Sprintf("%s,\"last_us\":%.2f", lateness(late), float64(end.Sub(lastDue).Nanoseconds())/1e3))
}

func timerAccuracy(a args) {
	late := make([]int64, a.n)
	s := startSpan()
	for i := range late {
		due := time.Now().Add(time.Duration(i%accMsMax+1) * time.Millisecond)
		time.Sleep(time.Until(due))
		late[i] = time.Since(due).Nanoseconds()
	}
	s.stop()
	print(a, a.n, s, lateness(late))
}

// ---- memory ----

func memoryOf(a args, sleeping bool) {
	var started int64
	never := make(chan bool)
	s := startSpan()
	time.Sleep(5 * time.Millisecond)
	before := rssBytes()
	for i := 0; i < a.n; i++ {
		go func() {
			var user [4]uint64
			user[0] = uint64(atomic.AddInt64(&started, 1))
			if sleeping {
				time.Sleep(time.Hour)
			} else {
				<-never
			}
			runtime.KeepAlive(&user)
		}()
	}
	for int(atomic.LoadInt64(&started)) < a.n {
		time.Sleep(5 * time.Millisecond)
	}
	s.stop()
	print(a, int(started), s, fmt.Sprintf("\"bytes\":%.1f", float64(rssBytes()-before)/float64(a.n)))
}

// ---- fairness ----

func fairYield(a args) {
	const (
		count = 1
		stop  = 2
	)
	var phase int32
	polls := make([]int64, fairTasks)
	var wg sync.WaitGroup
	s := startSpan()
	wg.Add(fairTasks)
	for i := range polls {
		i := i
		go func() {
			for {
				p := atomic.LoadInt32(&phase)
				if p == stop {
					break
				}
				if p == count {
					polls[i]++
				}
				runtime.Gosched()
			}
			wg.Done()
		}()
	}
	time.Sleep(fairWarm)
	atomic.StoreInt32(&phase, count)
	time.Sleep(time.Duration(a.n) * time.Millisecond)
	atomic.StoreInt32(&phase, stop)
	wg.Wait()
	s.stop()
	var sum, max int64
	min := polls[0]
	for _, p := range polls {
		sum += p
		if p < min {
			min = p
		}
		if p > max {
			max = p
		}
	}
	print(a, int(sum), s, fmt.Sprintf("\"slowest\":%.4f,\"fastest\":%.4f", float64(min*fairTasks)/float64(sum),
		float64(max*fairTasks)/float64(sum)))
}

// ---- I/O ----

func echo(a args) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		die("%v", err)
	}
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	for {
		conn, err := listener.Accept() // with TCP_NODELAY, as all of Go's connections
		if err != nil {
			die("%v", err)
		}
		go func() {
			defer conn.Close()
			buf := make([]byte, echoBuf)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				if _, err := conn.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func alignedBlock() []byte {
	whole := make([]byte, 2*block)
	skip := block - int(uintptr(unsafe.Pointer(&whole[0]))%block)
	return whole[skip : skip+block]
}

func read(a args) {
	flags := os.O_RDONLY
	if a.direct {
		flags |= syscall.O_DIRECT
	}
	file, err := os.OpenFile(a.file, flags, 0)
	if err != nil {
		die("%v", err)
	}
	info, err := file.Stat()
	if err != nil {
		die("%v", err)
	}
	blocks := uint64(info.Size() / block)
	var wg sync.WaitGroup
	var sum int64
	s := startSpan()
	end := time.Now().Add(time.Duration(a.n) * time.Millisecond)
	wg.Add(a.arg)
	for i := 0; i < a.arg; i++ {
		r := rand(i + 1)
		go func() {
			buf := alignedBlock()
			done := 0
			for time.Now().Before(end) {
				got, err := file.ReadAt(buf, int64(r.next()%blocks*block))
				if got != block {
					die("read: %d bytes, %v", got, err)
				}
				done++
			}
			atomic.AddInt64(&sum, int64(done))
			wg.Done()
		}()
	}
	wg.Wait()
	s.stop()
	print(a, int(sum), s, "")
}

// ---- all ----

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		fmt.Fprintf(os.Stderr, "'%s' is no number\n", text)
		os.Exit(2)
	}
	return n
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintf(os.Stderr, "usage: %s SHAPE WORKERS N [ARG [FILE [direct]]]\n", os.Args[0])
		os.Exit(2)
	}
	a := args{shape: os.Args[1], workers: number(os.Args[2]), n: number(os.Args[3])}
	if len(os.Args) > 4 {
		a.arg = number(os.Args[4])
	}
	if len(os.Args) > 5 {
		a.file = os.Args[5]
	}
	a.direct = len(os.Args) > 6
	if a.workers < 2 {
		runtime.GOMAXPROCS(1)
	} else {
		runtime.GOMAXPROCS(a.workers)
	}
	debug.SetMaxThreads(100000)
	switch a.shape {
	case "spawn_join":
		runTwice(a, spawnJoin)
	case "spawn_join_many":
		runTwice(a, spawnJoinMany)
	case "spawn_worker":
		runTwice(a, spawnWorker)
	case "chained":
		runTwice(a, chained)
	case "yield":
		runTwice(a, yields)
	case "ping_pong":
		runTwice(a, pingPong)
	case "wake_idle":
		wakeIdle(a)
	case "timer_arm_cancel":
		runTwice(a, timerArmCancel)
	case "timer_live":
		timerLive(a)
	case "timer_expire":
		timerExpire(a)
	case "timer_accuracy":
		timerAccuracy(a)
	case "mem_parked":
		memoryOf(a, false)
	case "mem_sleeping":
		memoryOf(a, true)
	case "fair_yield":
		fairYield(a)
	case "echo":
		echo(a)
	case "read":
		read(a)
	default:
		fmt.Fprintf(os.Stderr, "go has no shape '%s'\n", a.shape)
		os.Exit(noSuchShape)
	}
}
