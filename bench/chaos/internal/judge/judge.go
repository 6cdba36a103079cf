//go:build unix

// Package judge is the API that all workers call. It is a process of its own and trusts nobody:
// it writes down what arrives and refuses nothing that does not ask for it. It knows neither the limit
// nor what is done to the others.
package judge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
)

// Subcommand is the argument with which Start runs its own program again. The program then has
// to call Serve, with the file that is the next argument.
const Subcommand = "judge"

// Judge is the process, as its parent sees it.
type Judge struct {
	// Addr is its host:port.
	Addr string

	file   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr strings.Builder
}

// Start runs this program's own Subcommand, and returns when it listens. The caller has to Stop
// it.
func Start(file string) (*Judge, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	j := &Judge{file: file, cmd: exec.Command(program, Subcommand, file)}
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for its parent, which stops it
	j.cmd.Stderr = &j.stderr
	stdin, err := j.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	j.stdin = stdin
	stdout, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the judge: %w", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the judge did not say where it listens: %w", err), j.end())
	}
	j.Addr = strings.TrimSpace(line)
	return j, nil
}

// Stop ends the process and returns all arrivals, in order.
func (j *Judge) Stop() ([]record.Arrival, error) {
	if err := j.end(); err != nil {
		return nil, err
	}
	return record.Read(j.file)
}

func (j *Judge) end() error {
	err := j.stdin.Close()
	if exit := j.cmd.Wait(); exit != nil {
		err = errors.Join(err, fmt.Errorf("the judge: %w: %s", exit, strings.TrimSpace(j.stderr.String())))
	}
	return err
}
