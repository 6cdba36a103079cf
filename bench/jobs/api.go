package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// apiArg, and a number of requests, make this program the API that HTTP jobs call. As for users, that is a process of its
// own: in that of the workers a request would wait for their goroutines before it counts as arrived.
const apiArg = "api"

// api is the process that HTTP jobs call. It records when requests arrive.
type api struct {
	addr string // its host:port
	cmd  *exec.Cmd
	in   io.Closer // it serves until that is closed
	out  *bufio.Reader
}

// startAPI starts an API that expects so many requests. The caller has to stop it.
func startAPI(ctx context.Context, want int) (a *api, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a = &api{cmd: exec.CommandContext(ctx, exe, apiArg, strconv.Itoa(want))}
	a.cmd.Stderr = os.Stderr
	in, err := a.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	a.in, a.out = in, bufio.NewReader(out)
	if err := a.read(&a.addr); err != nil {
		a.in.Close()
		return nil, errors.Join(err, a.cmd.Wait())
	}
	return a, nil
}

func (a *api) read(v any) error {
	line, err := a.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the API: %w", err)
	}
	return json.Unmarshal(line, v)
}

// wait returns the arrivals when all requests have come.
func (a *api) wait() (starts []start, err error) {
	var all []arrival
	if err := a.read(&all); err != nil {
		return nil, err
	}
	for _, one := range all {
		starts = append(starts, start{at: time.Unix(0, one.At), worker: one.Agent})
	}
	return starts, nil
}

// stop ends the API. Heard is closed when wait has returned, which it does now in any case.
func (a *api) stop(heard <-chan struct{}) error {
	a.in.Close()
	<-heard
	return a.cmd.Wait()
}

// arrival is a request, as one process tells the other.
type arrival struct {
	At    int64 // Unix time in ns
	Agent string
}

// ServeHTTP records an arrival.
func (f *fleet) ServeHTTP(_ http.ResponseWriter, r *http.Request) { f.started(r.UserAgent(), "") }

// serveAPI is the API's process. It prints its address and, when so many requests have come, their arrivals.
func serveAPI(want string) error {
	n, err := strconv.Atoi(want)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(listener.Addr().String()); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		listener.Close()
	}()
	f := &fleet{want: n, done: make(chan struct{})}
	go func() {
		<-f.done
		var all []arrival
		for _, s := range f.seen() {
			all = append(all, arrival{s.at.UnixNano(), s.worker.(string)})
		}
		_ = out.Encode(all) // if it fails, who started it has gone
	}()
	if err := http.Serve(listener, f); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
