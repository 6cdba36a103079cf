package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/worker/admin"
	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

// Collector returns the metrics of this process's limits, to register with Prometheus. They
// include those of [Limits.Another]: register one collector for each process. docs/metrics.md
// lists them.
func (l *Limits) Collector() prometheus.Collector { return metrics.NewCollector(l.source()) }

// Admin returns the page that shows the limits and their jobs and explains what a job waits for,
// with /metrics, /healthz and /readyz beside it. Serve it on an address of its own, or below a
// path with [http.StripPrefix], where strangers cannot reach it, because reading needs no token.
// Changes need admin.token of the configuration; without one the page is read-only. The Limits
// from [Limits.Another] show the same page.
func (l *Limits) Admin() http.Handler { return l.page.handler() }

// servers are the servers of a process, as it shows them.
type servers struct {
	mu  sync.Mutex
	all []*Limits
}

// add adds a server, under a name that no other server has.
func (s *servers) add(l *Limits, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.name = name
	for n := 2; slices.ContainsFunc(s.all, func(other *Limits) bool { return other.name == l.name }); n++ {
		l.name = fmt.Sprintf("%s-%d", name, n)
	}
	s.all = append(s.all, l)
}

// remove removes a server that has ended.
func (s *servers) remove(l *Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *Limits) bool { return other == l })
}

// list returns the servers that have not ended.
func (s *servers) list() []*Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// pools returns the servers as they are shown.
func (s *servers) pools() []jobview.Pool {
	var pools []jobview.Pool
	for _, l := range s.list() {
		pool := *l.pool.Load()
		pool.Name = l.name
		pools = append(pools, pool)
	}
	return pools
}

// source is what the metrics and the page show.
type source struct {
	*jobview.View
	p *process
}

func (p *process) source() source {
	return source{jobview.New(p.rdb, p.throttle, p.rules.plan, p.servers.pools), p}
}

// Stats returns the counters as they are now.
func (s source) Stats() Stats { return s.p.stats() }

// Ready returns nil while all servers of the process take jobs, or else the reason why not.
func (s source) Ready(ctx context.Context) error {
	if err := s.p.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("cannot reach Redis: %w", err)
	}
	all := s.p.servers.list()
	if len(all) == 0 {
		return errors.New("no server runs any more")
	}
	for _, l := range all {
		if !l.Takes() {
			return fmt.Errorf("server %q is starting or draining", l.name)
		}
	}
	return nil
}

// page is the page of a process. It is made when somebody first asks for it.
type page struct {
	handler func() *admin.Handler
	asked   chan struct{} // closed when somebody has asked for it
}

func newPage(p *process) page {
	asked := make(chan struct{})
	return page{asked: asked, handler: sync.OnceValue(func() *admin.Handler {
		defer close(asked)
		return admin.NewHandler(p.source(), admin.Options{Token: p.cfg.Admin.Token, Hosts: p.cfg.Admin.Hosts, Hide: p.cfg.Admin.Hide, Slog: p.logger})
	})}
}

// run keeps the history of limits while nobody reads the page, if the page exists, until ctx
// ends.
func (p page) run(ctx context.Context) {
	select {
	case <-p.asked:
		p.handler().Run(ctx)
	case <-ctx.Done():
	}
}
