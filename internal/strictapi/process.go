package strictapi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// asked is the environment variable that asks a program to be an API: its limit and its interval.
const asked = "JOBTHROTTLE_STRICT_API"

// Process is an API in a process of its own, as the APIs of others are. Whatever keeps the caller's process busy, the API
// notes a request when it comes. It is safe for concurrent use.
type Process struct {
	addr string
	cmd  *exec.Cmd

	mu      sync.Mutex // one question and its answer after the other
	in      io.WriteCloser
	answers *json.Decoder
}

// Spawn starts this program once more, as an API. Its main function has to call ServeIfAsked. The caller closes the
// Process. If the caller is killed, the Process ends, too.
func Spawn(limit int, interval time.Duration) (*Process, error) {
	p, err := spawn(limit, interval)
	if err != nil {
		return nil, fmt.Errorf("strict api: start its process: %w", err)
	}
	return p, nil
}

func spawn(limit int, interval time.Duration) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %v", asked, limit, interval))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, in: in, answers: json.NewDecoder(out)}
	if err := p.answers.Decode(&p.addr); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Addr is the API's host:port.
func (p *Process) Addr() string { return p.addr }

// Report asks the API what it has seen so far.
func (p *Process) Report() (r Report, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err = fmt.Fprintln(p.in, "report"); err == nil {
		err = p.answers.Decode(&r)
	}
	if err != nil {
		return Report{}, fmt.Errorf("strict api: its process does not answer: %w", err)
	}
	return r, nil
}

// Close ends the process, and waits for it.
func (p *Process) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.in.Close(), p.cmd.Wait())
}

// ServeIfAsked makes this process an API and ends it when its parent does, if Spawn has started it. Else it does nothing.
func ServeIfAsked() {
	of := os.Getenv(asked)
	if of == "" {
		return
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // a Ctrl-C comes to both: the parent decides
	if err := serve(of, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve tells the address of an API, and then, for each line that it reads, what the API has seen.
func serve(of string, in io.Reader, out io.Writer) error {
	var limit int
	var interval string
	if _, err := fmt.Sscan(of, &limit, &interval); err != nil {
		return fmt.Errorf("strict api: %s=%q: %w", asked, of, err)
	}
	d, err := time.ParseDuration(interval)
	if err != nil {
		return fmt.Errorf("strict api: %s=%q: %w", asked, of, err)
	}
	s, err := Start(limit, d)
	if err != nil {
		return err
	}
	answers := json.NewEncoder(out)
	err = answers.Encode(s.Addr())
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		err = answers.Encode(s.Report())
	}
	return errors.Join(err, s.Close())
}
