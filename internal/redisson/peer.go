// Package redisson runs real Redisson clients, each in a JVM of its own, for tests and
// benchmarks that compare this project with Redisson. The JVM runs the program of
// interop/redisson, which is built with Maven when it is first needed. The first build
// downloads Redisson from Maven Central.
package redisson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// closeTimeout is how long a JVM may take to end.
const closeTimeout = 10 * time.Second

// Peer is a JVM with a Redisson client. Its methods, and those of its limiters, may be called
// concurrently. They take turns: the JVM does one thing at a time.
type Peer struct {
	id, version string

	mu      sync.Mutex // held while the JVM works
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	replies *json.Decoder
	stderr  bytes.Buffer // read it only once the JVM has ended
}

// Start builds the program if necessary, and starts a JVM whose Redisson client uses the Redis
// at addr (host:port). The end of ctx kills the JVM. The caller must Close the Peer. The error
// is ErrNoJava if java or mvn is missing.
func Start(ctx context.Context, addr string) (*Peer, error) {
	jar, err := build(ctx)
	if err != nil {
		return nil, err
	}
	p := &Peer{cmd: exec.CommandContext(ctx, "java", "-jar", jar, "--redis", "redis://"+addr)}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("redisson: %w", err)
	}
	p.replies = json.NewDecoder(stdout)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("redisson: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redisson: start the JVM: %w", err)
	}
	hello, err := p.reply()
	if err == nil && hello.Hello == nil {
		err = errors.New("no hello from the JVM")
	}
	if err != nil {
		return nil, fmt.Errorf("redisson: start a client of %s: %w", addr, errors.Join(err, p.Close()))
	}
	p.id, p.version = hello.Hello.ID, hello.Hello.Version
	return p, nil
}

// ID is the id of the Redisson client. The names of its PER_CLIENT keys end with it.
func (p *Peer) ID() string { return p.id }

// Version is Redisson's version.
func (p *Peer) Version() string { return p.version }

// Limiter is the RRateLimiter of that name.
func (p *Peer) Limiter(name string) *Limiter { return &Limiter{p: p, name: name} }

// Close ends the JVM once it has finished its current work, and waits for it.
func (p *Peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stdin.Close()
	kill := time.AfterFunc(closeTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("redisson: the JVM ended: %w\n%s", err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}

// command is one line to the JVM: Peer.java's Command. Times are milliseconds.
type command struct {
	Command   string  `json:"command"`
	Limiter   string  `json:"limiter"`
	PerClient bool    `json:"perClient"`
	Permits   int64   `json:"permits"`
	Interval  int64   `json:"interval"`
	KeepAlive int64   `json:"keepAlive"`
	KeepState bool    `json:"keepState"`
	Timeout   int64   `json:"timeout"`
	Costs     []int64 `json:"costs,omitempty"`
	Clients   int     `json:"clients"`
}

// reply is one line from the JVM: Peer.java's Reply.
type reply struct {
	Hello *struct {
		ID      string `json:"id"`
		Version string `json:"version"`
	} `json:"hello"`
	Done    bool  `json:"done"`
	Permits int64 `json:"permits"`
	Rate    struct {
		PerClient bool  `json:"perClient"`
		Permits   int64 `json:"permits"`
		Interval  int64 `json:"interval"`
	} `json:"rate"`
	Grants [][3]int64 `json:"grants"`
	Error  string     `json:"error"`
}

// do makes the JVM run a command. Errors name the limiter and the command.
func (p *Peer) do(c command) (reply, error) {
	line, err := json.Marshal(c)
	if err != nil {
		return reply{}, fmt.Errorf("redisson: limiter %q: %s: %w", c.Limiter, c.Command, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		return reply{}, fmt.Errorf("redisson: limiter %q: %s: %w", c.Limiter, c.Command, err)
	}
	r, err := p.reply()
	if err != nil {
		return reply{}, fmt.Errorf("redisson: limiter %q: %s: %w", c.Limiter, c.Command, err)
	}
	return r, nil
}

// reply reads the next line from the JVM. If it reports an exception, that is the error.
func (p *Peer) reply() (reply, error) {
	var r reply
	if err := p.replies.Decode(&r); err != nil {
		return reply{}, fmt.Errorf("no reply from the JVM: %w", err)
	}
	if r.Error != "" {
		return reply{}, errors.New(r.Error)
	}
	return r, nil
}
