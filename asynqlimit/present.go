package asynqlimit

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/history"
	"github.com/jobthrottle/jobthrottle/internal/presence"
	"github.com/jobthrottle/jobthrottle/internal/version"
)

// present tells Redis what this process serves, how busy it is and what it did, as long as one of
// its servers runs. This is one call every few seconds, whatever the servers do.
type present struct {
	rdb      redis.UniversalClient
	logger   *slog.Logger
	describe func() presence.Worker
	past     func() map[string]history.Counts // what happened since it was last called
	telling  chan struct{}                    // has a value while a server tells for all
	wake     chan struct{}                    // there is something new to tell

	mu      sync.Mutex // held while Redis is told, so that "gone" arrives last
	servers int
	untold  bool      // the last try failed
	rests   time.Time // until when nothing is tried, because Redis refuses it
}

const (
	// presentTimeout is the time limit of one call.
	presentTimeout = 3 * time.Second
	// refusedRest is how long a process tells nothing after Redis has refused its user.
	refusedRest = 5 * time.Minute
)

func newPresent(p *process) *present {
	return &present{rdb: p.rdb, logger: p.logger, describe: p.present, past: p.tallies, telling: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// present describes this process as it is now.
func (p *process) present() presence.Worker {
	w := presence.Worker{ID: p.throttle.ID(), Version: version.String(), Config: p.cfg.Fingerprint(), PID: os.Getpid(), Started: p.started}
	w.Host, _ = os.Hostname()
	var serving []*Limits
	for _, l := range p.servers.list() {
		if !l.serving.Load() { // its size may still change
			continue
		}
		serving = append(serving, l)
		running, waiting := l.gate.load()
		w.Pools = append(w.Pools, presence.Pool{
			Name: l.name, Slots: l.gate.size.slots, MaxWaiting: l.gate.size.room, Strict: l.gate.size.strict, Queues: l.gate.size.weights,
			Running: running, Waiting: waiting, Takes: l.Takes(),
		})
	}
	w.Types, w.TypesKnown = typesOf(serving)
	w.Lacks = lackedBy(serving)
	return w
}

// typesOf returns the patterns of the servers' handlers, if all servers know them.
func typesOf(servers []*Limits) (types []string, known bool) {
	for _, l := range servers {
		if l.opts.HandlerPatterns == nil {
			return nil, false
		}
		types = append(types, l.opts.HandlerPatterns()...)
	}
	slices.Sort(types)
	return slices.Compact(types), len(servers) > 0
}

// lackedBy returns the types of the configuration for which none of the servers has a handler.
func lackedBy(servers []*Limits) (types []string) {
	for i, l := range servers {
		if i == 0 {
			types = slices.Clone(l.lacks)
			continue
		}
		types = slices.DeleteFunc(types, func(t string) bool { return !slices.Contains(l.lacks, t) })
	}
	return types
}

// run tells Redis until ctx ends, unless another server of the process does so.
func (p *present) run(ctx context.Context) {
	p.join(1)
	defer p.join(-1)
	select {
	case p.telling <- struct{}{}:
		defer func() { <-p.telling }()
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(presence.Every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		p.tell(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-p.wake:
		}
	}
}

// again makes run tell at once: a server has begun, or drains.
func (p *present) again() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *present) tell(ctx context.Context) {
	// It goes on when ctx ends: a call that is cut short would lose what the jobs did last.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), presentTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.rests) {
		return
	}
	_, err := p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		presence.Here(ctx, pipe, p.describe())
		history.Add(ctx, pipe, p.past()) // what cannot be told is lost: it is only for people to read
		return nil
	})
	if err != nil && !p.untold {
		p.logger.Warn("pages and commands do not see this worker", "error", err)
	}
	if p.untold = err != nil; redis.HasErrorPrefix(err, "NOPERM") {
		p.rests = time.Now().Add(refusedRest)
	}
}

// join counts the servers. When the last one has ended, it tells Redis that the process has gone.
func (p *present) join(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.servers += n; p.servers > 0 || time.Now().Before(p.rests) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), presentTimeout)
	defer cancel()
	if _, err := p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		presence.Gone(ctx, pipe, p.describe().ID)
		history.Add(ctx, pipe, p.past())
		return nil
	}); err != nil {
		p.logger.Debug("pages and commands see this worker for some seconds more", "error", err)
	}
}
