package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/producer"
)

// screen is standard error: messages, and below them a progress bar if it is a terminal. It is
// safe for concurrent use.
type screen struct {
	mu  sync.Mutex
	out io.Writer
	bar *progressbar.ProgressBar // nil without a terminal
}

func newScreen(out io.Writer) *screen { return &screen{out: out} }

// start shows a progress bar of bytes, or of jobs, up to total; -1 means an unknown total.
func (s *screen) start(total int64, jobs bool) {
	file, ok := s.out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return
	}
	s.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(file),
		progressbar.OptionSetDescription("enqueueing"),
		progressbar.OptionShowBytes(!jobs),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionFullWidth(),
		progressbar.OptionClearOnFinish(),
	)
}

func (s *screen) progress(offset int64) {
	if s.bar == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.bar.Set64(offset)
}

// stop removes the progress bar.
func (s *screen) stop() {
	if s.bar == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.bar.Clear()
	_ = s.bar.Exit()
}

// print writes a message as one line, because it may quote a bad job.
func (s *screen) print(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		_ = s.bar.Clear()
	}
	fmt.Fprintln(s.out, plain.Text(message))
}

func (s *screen) bad(line producer.Line) {
	s.print(fmt.Sprintf("line %d: %v", line.Number, line.Err))
}
