package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/embedded"
	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// hidden is an adaptive demo. The workers begin far below what the API accepts, and the API
// does not say how much that is. When half of the jobs are done, it accepts half as many.
type hidden struct {
	jobs         int
	quota, start int64
}

// theHidden is what --demo --adaptive shows.
func theHidden() hidden { return hidden{jobs: 600, quota: 40, start: 5} }

// runAdaptiveDemo shows a limit that is found. It returns an error if a job failed.
func runAdaptiveDemo(ctx context.Context, h hidden, asJSON bool, stdout, stderr io.Writer) error {
	show := stdout
	if asJSON {
		show = stderr
	}
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	defer server.Close()
	limit, err := hiddenapi.NewLimit(hiddenapi.Sliding, h.quota, demoInterval, 0)
	if err != nil {
		return err
	}
	api, err := hiddenapi.Start(hiddenapi.NewHidden(limit))
	if err != nil {
		return err
	}
	defer api.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	fmt.Fprintf(show, `%d jobs on %d workers, for an API that takes %d requests in any %v, does not say so, and takes half
as many when half of the jobs are done. The workers begin with %d in %v.

`, h.jobs, demoWorkers, h.quota, demoInterval, h.start, demoInterval)
	apiAddr := api.URL()[len("http://"):]
	if err := enqueueDemo(ctx, rdb, apiAddr, h.jobs); err != nil {
		return err
	}
	search := &search{hidden: h, api: api, rdb: rdb, fleet: operate.NewFleet(rdb), screen: newScreen(show), takes: h.quota}
	if err := workDemo(ctx, h.config(server.Addr(), apiAddr), stderr, search.watch); err != nil {
		return err
	}
	found, err := search.summary()
	if err != nil {
		return err
	}
	fmt.Fprintln(show)
	found.writeText(show)
	if asJSON {
		if err := json.NewEncoder(stdout).Encode(found); err != nil {
			return err
		}
	}
	if found.Failed > 0 || found.Done < found.Jobs {
		return unfinished(ctx, fmt.Errorf("demo: %d of %d jobs done, %d failed", found.Done, found.Jobs, found.Failed))
	}
	return nil
}

func (h hidden) config(redisAddr, apiAddr string) *config.Config {
	return demoConfigWith(redisAddr, apiAddr, config.Limit{
		Rate: fmt.Sprintf("%d/%v", h.start, demoInterval), Guard: config.Duration(demoGuard),
		Adapt: &config.Adapt{Min: 1, Max: 1000},
	})
}

// search watches how the limit is found.
type search struct {
	hidden
	api   *hiddenapi.Server
	rdb   *redis.Client
	fleet *operate.Fleet
	screen
	takes  int64 // accepted by the API at present
	halved int64 // the limit when the API's was halved; 0: it was not yet
	limit  int64 // the latest
	cuts   int64
	last   time.Duration // when the last request was accepted
	seen   []taken       // what the API had accepted, over the last interval
}

type taken struct {
	at time.Duration
	n  int
}

// watch draws until all jobs have ended or ctx ends. It halves the API's limit when half of the
// jobs are done.
func (s *search) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*demoPatience)
	defer cancel()
	redraw := time.NewTicker(demoRedraw)
	defer redraw.Stop()
	inspector := asynq.NewInspectorFromRedisClient(s.rdb)
	for started := time.Now(); ; {
		learnt, _, err := s.fleet.Learnt(ctx, "api")
		if ctx.Err() != nil {
			return nil // the summary says what is missing
		}
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		r, elapsed := s.api.Report(), time.Since(started)
		s.saw(elapsed, r.Accepted)
		s.limit, s.cuts = learnt.Limit, learnt.Cuts
		if s.halved == 0 && r.Accepted >= s.jobs/2 {
			s.halved, s.takes = s.limit, s.quota/2
			s.api.SetQuota("hidden", s.takes)
		}
		s.draw(elapsed, r, learnt)
		if r.Accepted >= s.jobs {
			queue, err := inspector.GetQueueInfo(demoQueue)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			if queue.Completed+queue.Archived == s.jobs {
				return nil
			}
		}
		select {
		case <-redraw.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// saw records how many requests the API has accepted.
func (s *search) saw(elapsed time.Duration, n int) {
	if len(s.seen) == 0 || n > s.seen[len(s.seen)-1].n {
		s.last = elapsed
	}
	s.seen = append(s.seen, taken{elapsed, n})
	for len(s.seen) > 1 && elapsed-s.seen[1].at >= demoInterval {
		s.seen = s.seen[1:]
	}
}

// lately is how many it accepted in the last interval.
func (s *search) lately() int { return s.seen[len(s.seen)-1].n - s.seen[0].n }

func (s *search) draw(elapsed time.Duration, r hiddenapi.Report, l operate.Learnt) {
	api := fmt.Sprintf("the API takes %d", s.takes)
	if s.halved > 0 {
		api += ", half of before"
	}
	if s.terminal {
		s.replace(
			fmt.Sprintf("  limit     %s  %d; %s", s.bar(int(s.limit), int(s.quota)), s.limit, api),
			fmt.Sprintf("  last %-4v %s  %d taken", demoInterval, s.bar(s.lately(), int(s.quota)), s.lately()),
			fmt.Sprintf("  jobs      %s  %d of %d", s.bar(r.Accepted, s.jobs), r.Accepted, s.jobs),
			fmt.Sprintf("  %.1f s   refused %d   the workers know: %s", elapsed.Seconds(), r.Refused, knows(l)),
		)
		return
	}
	if s.due(elapsed) {
		fmt.Fprintf(s.out, "%5.1fs  %4d of %d jobs  limit %2d (%s)  %2d taken in the last %v  refused %d  known: %s\n",
			elapsed.Seconds(), r.Accepted, s.jobs, s.limit, api, s.lately(), demoInterval, r.Refused, knows(l))
	}
}

// knows says in words what is known about the API's limit.
func knows(l operate.Learnt) string {
	if l.Recovers {
		return "the API has just refused"
	}
	return l.Known()
}

// foundLimit is the result of the adaptive demo.
type foundLimit struct {
	Jobs       int     `json:"jobs"`
	Done       int     `json:"done"`
	Failed     int     `json:"failed"`
	Seconds    float64 `json:"seconds"`
	IntervalMS int64   `json:"interval_ms"`
	Start      int64   `json:"start"`  // the limit at the beginning
	Limits     []int64 `json:"limits"` // of the API: at first, and after it was halved
	Found      []int64 `json:"found"`  // the limit in force when the API changed its own, and at the end
	Cuts       int64   `json:"cuts"`
	Requests   int     `json:"requests"`
	Refused    int     `json:"refused"`
}

func (s *search) summary() (foundLimit, error) {
	queue, err := asynq.NewInspectorFromRedisClient(s.rdb).GetQueueInfo(demoQueue)
	if err != nil {
		return foundLimit{}, errors.Join(errors.New("demo"), err)
	}
	r := s.api.Report()
	f := foundLimit{
		Jobs: s.jobs, Done: queue.Completed, Failed: queue.Archived, Seconds: s.last.Seconds(), IntervalMS: demoInterval.Milliseconds(),
		Start: s.start, Limits: []int64{s.quota}, Found: []int64{s.limit}, Cuts: s.cuts, Requests: r.Accepted + r.Refused, Refused: r.Refused,
	}
	if s.halved > 0 {
		f.Limits, f.Found = append(f.Limits, s.quota/2), []int64{s.halved, s.limit}
	}
	return f, nil
}

// near reports whether a limit is close to the API's.
func near(limit, api int64) bool { return 10*limit >= 8*api && 10*limit <= 11*api }

// writeText writes it for people: the verdict, and why.
func (f foundLimit) writeText(w io.Writer) {
	verdict := "The limit was found, and found again when the API halved it."
	switch {
	case f.Failed > 0:
		verdict = "Some jobs failed."
	case f.Done < f.Jobs:
		verdict = "Stopped before all jobs were done."
	case len(f.Found) < 2 || !near(f.Found[0], f.Limits[0]) || !near(f.Found[1], f.Limits[1]):
		verdict = "All jobs are done, but the limit was not found: this machine was too busy."
	}
	fmt.Fprintf(w, "%s\n\n", verdict)
	fmt.Fprintf(w, "  jobs      %d of %d done, %d failed, in %.1f s\n", f.Done, f.Jobs, f.Failed, f.Seconds)
	for i, name := range []string{"at first", "then"}[:len(f.Found)] {
		fmt.Fprintf(w, "  %-8s  the API took %d, the workers found %d\n", name, f.Limits[i], f.Found[i])
	}
	fmt.Fprintf(w, "  refused   %d of %d requests, no job failed for them; %d cuts of the limit\n", f.Refused, f.Requests, f.Cuts)
}
