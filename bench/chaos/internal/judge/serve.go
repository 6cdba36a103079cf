//go:build unix

package judge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
)

// Serve is the judge's process. It says on out where it listens, and answers 200 to everything.
// It returns when in ends, and has then written all arrivals to file.
func Serve(file string, in io.Reader, out io.Writer) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, f.Close())
	}
	c := &clerk{out: bufio.NewWriter(f)}
	server := http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintln(out, listener.Addr())
	_, _ = io.Copy(io.Discard, in) // an error is an end, too
	err = server.Close()
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, c.close(), f.Close())
}

// clerk writes down requests.
type clerk struct {
	mu     sync.Mutex
	out    *bufio.Writer
	failed error
}

// ServeHTTP reads the clock under the lock, so that the record is in order.
func (c *clerk) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := record.Arrival{At: record.Now(), Worker: r.UserAgent(), Job: r.URL.Query().Get("job")}
	if err := record.Write(c.out, a); err != nil && c.failed == nil {
		c.failed = err
	}
}

// close writes what is left. Handlers that server.Close left behind may still come.
func (c *clerk) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.failed, c.out.Flush())
}
