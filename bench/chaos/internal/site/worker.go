//go:build unix

package site

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/jobthrottle/jobthrottle/internal/wire"
)

// Worker is a worker of the site: its process may be killed and started again.
type Worker struct {
	Name string

	site   *Site
	wire   *wire.Wire
	config string
	log    string // file to which all its processes write

	cmd    *exec.Cmd     // nil before the first Start
	exited chan struct{} // closed once the process has ended and was waited for
	asked  bool          // it was asked to end, or killed
}

func newWorker(s *Site, i int) (*Worker, error) {
	name := fmt.Sprintf("worker-%d", i+1)
	wire, err := wire.New(s.Redis.Addr)
	if err != nil {
		return nil, err
	}
	w := &Worker{Name: name, site: s, wire: wire, log: filepath.Join(s.dir, name+".log")}
	if w.config, err = s.writeConfig(name+".yaml", wire.Addr); err != nil {
		return nil, errors.Join(err, wire.Close())
	}
	return w, nil
}

// Wire is the connection between the worker and Redis.
func (w *Worker) Wire() *wire.Wire { return w.wire }

// Start starts the process, and returns when the process says that it runs, or has ended. Extra
// variables go into its environment.
func (w *Worker) Start(env ...string) error { return w.start(w.site.programs.Worker, env...) }

// StartShifted starts a process whose wall clock is wrong by so many seconds.
func (w *Worker) StartShifted(seconds int) error {
	return w.start(w.site.programs.Shifted, fmt.Sprintf("%s=%d", shiftEnv, seconds))
}

func (w *Worker) start(program string, env ...string) error {
	log, err := os.OpenFile(w.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	says := &said{log: log, something: make(chan struct{})}
	cmd := exec.Command(program, "--config", w.config)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = says, says
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, and we stop it
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", w.Name, err), log.Close())
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
		_ = log.Close()
	}()
	w.cmd, w.exited, w.asked = cmd, exited, false
	select {
	case <-says.something: // now it can be asked to end: before, SIGTERM would kill it
	case <-exited:
	}
	return nil
}

// said is a log that tells when something is written to it.
type said struct {
	log       *os.File
	something chan struct{}
	once      sync.Once
}

func (s *said) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.something) })
	return s.log.Write(p)
}

// Kill ends the process as a power cut would, if it runs, and waits until it is gone.
func (w *Worker) Kill() {
	if w.cmd == nil {
		return
	}
	w.asked = true
	_ = w.cmd.Process.Kill() // an error means that it is gone already
	<-w.exited
}

// Freeze stops the process without ending it; Thaw lets it go on.
func (w *Worker) Freeze() error { return w.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw ends what Freeze began.
func (w *Worker) Thaw() error { return w.cmd.Process.Signal(syscall.SIGCONT) }

// Drain asks the process to end, and waits until it has.
func (w *Worker) Drain() error {
	w.terminate()
	return w.wait()
}

func (w *Worker) terminate() {
	select {
	case <-w.exited: // not asked: wait will say so
	default:
		w.asked = true
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// wait returns when the process has ended. It returns an error if nobody asked it to end, or if
// it failed.
func (w *Worker) wait() error {
	<-w.exited
	if w.asked && w.cmd.ProcessState.Success() {
		return nil
	}
	how := "ended by itself"
	if w.asked {
		how = "was asked to end and failed"
	}
	return fmt.Errorf("%s %s: %v, last saying:\n%s", w.Name, how, w.cmd.ProcessState, w.lastLines(5))
}

func (w *Worker) lastLines(n int) string {
	text, err := os.ReadFile(w.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
