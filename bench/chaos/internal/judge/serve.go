//go:build unix

package judge

import (
	"bufio"
	"context"
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

// The parameters of a request, beside its job: how long its answer takes, and that the first request
// of the job is refused with status 500.
const (
	Takes  = "takes"
	Refuse = "refuse"
)

// Serve is the judge's process. It says on out where it listens, and answers 200 to everything that
// does not ask for something else. It returns when in ends, and has then written all arrivals to file.
func Serve(file string, in io.Reader, out io.Writer) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, f.Close())
	}
	c := &clerk{out: bufio.NewWriter(f), refused: map[string]bool{}}
	server := http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintln(out, listener.Addr())
	_, _ = io.Copy(io.Discard, in) // an error is an end, too
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err = errors.Join(server.Shutdown(ctx), server.Close()) // the callers are gone: requests end soon
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, c.close(), f.Close())
}

// clerk writes down requests.
type clerk struct {
	mu      sync.Mutex
	out     *bufio.Writer
	refused map[string]bool // jobs
	failed  error
}

func (c *clerk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	a := record.Arrival{At: record.Now(), Worker: r.UserAgent(), Job: query.Get("job")}
	if takes, err := time.ParseDuration(query.Get(Takes)); err == nil {
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Context().Err() != nil:
	case query.Has(Refuse) && !c.refused[a.Job]:
		a.Status = http.StatusInternalServerError
		c.refused[a.Job] = true
	default:
		a.Status = http.StatusOK
	}
	a.Ended = record.Now()
	if err := record.Write(c.out, a); err != nil && c.failed == nil {
		c.failed = err
	}
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
}

// close writes what is left.
func (c *clerk) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.failed, c.out.Flush())
}
