package e2e

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// outcome is what a finished command left behind.
type outcome struct {
	status         int
	stdout, stderr string
}

// runToEnd runs a command without standard input and waits for it.
func runToEnd(tb testing.TB, name string, args ...string) outcome {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(name), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || !exit.Exited()) {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// worker is a worker process that the test owns.
type worker struct {
	admin string // its admin address

	cmd    *exec.Cmd
	output testkit.Buffer
	exited chan struct{} // closed once the process is gone and waited for
}

// adminLine is how a worker says where its admin address is.
var adminLine = regexp.MustCompile(`http://([0-9.:]+)/healthz`)

// startWorker returns once the worker says that it is ready. Extra variables
// go into its environment.
func startWorker(tb testing.TB, config string, env ...string) *worker {
	tb.Helper()
	return startProgram(tb, binary("worker"), config, env...)
}

// startProgram does that with a worker of any version.
func startProgram(tb testing.TB, program, config string, env ...string) *worker {
	tb.Helper()
	w := &worker{exited: make(chan struct{})}
	w.cmd = exec.Command(program, "--config", config, "--admin-addr", "127.0.0.1:0")
	w.cmd.Env = append(os.Environ(), env...)
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := w.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(w.exited)
		_ = w.cmd.Wait()
	}()
	tb.Cleanup(func() {
		if tb.Failed() {
			_ = w.cmd.Process.Signal(syscall.SIGQUIT)
			<-w.exited
		}
		w.kill()
		if tb.Failed() {
			tb.Logf("a worker said:\n%s", w.output.String())
		}
	})
	testkit.Eventually(tb, 20*time.Second, "worker ready", func() bool {
		select {
		case <-w.exited:
			tb.Fatalf("worker ended at once:\n%s", w.output.String())
		default:
		}
		said := adminLine.FindStringSubmatch(w.output.String())
		if said == nil {
			return false
		}
		w.admin = said[1]
		resp, err := http.Get("http://" + w.admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	http.DefaultClient.CloseIdleConnections()
	return w
}

// kill ends the process as a power cut would, and waits for it.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.exited
}

// terminate asks the process to drain.
func (w *worker) terminate(tb testing.TB) {
	tb.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tb.Fatal(err)
	}
}

// wait returns the exit status of a process that was asked to end.
func (w *worker) wait(tb testing.TB) int {
	tb.Helper()
	select {
	case <-w.exited:
	case <-time.After(30 * time.Second):
		tb.Fatalf("worker did not end within 30 s:\n%s", w.output.String())
	}
	return w.cmd.ProcessState.ExitCode()
}
