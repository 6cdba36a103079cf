// Package testkit has what tests of several packages need to watch something that happens at
// the same time.
package testkit

import (
	"bytes"
	"flag"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// WaitMostly lets twice as many of a program's parallel tests run at a time as there are processors: half of them
// wait. The flag -parallel counts first. Call it in TestMain.
func WaitMostly() {
	flag.Parse()
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })
	if told {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
}

// Eventually polls until the condition holds. It fails the test if it does not hold within that
// time. The failure then says what the functions of state return.
func Eventually(tb testing.TB, within time.Duration, what string, holds func() bool, state ...func() string) {
	tb.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline.C:
			for _, say := range state {
				what += "; " + say()
			}
			tb.Fatalf("not within %v: %s", within, what)
		}
	}
}

// Buffer is an output that is read while it is written.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
