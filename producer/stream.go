package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/refusal"
)

const (
	batchJobs  = 256     // per round trip: more would gain little, and block Redis longer
	batchBytes = 4 << 20 // of all parts of a job, to limit memory
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// Result is the result of one job of a [Stream].
type Result struct {
	Line int
	Err  error // nil: enqueued; else AlreadyThere(Err), and perhaps ErrArchived
}

// StreamEvents are called when something happens to a [Stream], by one goroutine, in the order of
// the events. Both must be set.
type StreamEvents struct {
	Done   func(Result)    // the result of one job is certain; called in the order of Add
	Outage func(err error) // Redis failed, and the Stream tries again until the context ends; once per outage
}

// StreamError says how far a [Stream] came that ended early. Jobs after Line may or may not have
// been written. Adding them again makes no duplicates if they have IDs.
type StreamError struct {
	Line int   // the last line for which it and all lines before it are certain; 0 if there is none
	Err  error // why it ended
}

// Error says how far the Stream came, and why it ended.
func (e *StreamError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("ended before any line was certain: %v", e.Err)
	}
	return fmt.Sprintf("ended after line %d, the last that is certain: %v", e.Line, e.Err)
}

// Unwrap makes errors.Is and errors.As see why it ended.
func (e *StreamError) Unwrap() error { return e.Err }

// Stream enqueues many jobs in the order in which they are added. A round trip has as many jobs
// as were added during the last one. A Stream waits until an outage of Redis is over. Then it
// writes unanswered jobs again. This makes no duplicates, because each job has an id. The only
// exception is a job without ID and Retention that a worker had finished meanwhile. If the
// reply to the first write of a job with an ID or UniqueFor was lost, the job counts as already
// there.
//
// [Stream.Add] is for one goroutine. [Stream.Close] must be called.
type Stream struct {
	producer *Producer
	events   StreamEvents
	done     chan struct{}

	mu      sync.Mutex
	changed sync.Cond // waiting, closed or err changed
	waiting []item
	bytes   int
	closed  bool
	err     error // set once: no more jobs will be written
}

type item struct {
	line  int
	entry entry
}

// Stream starts a [Stream], which ends early when ctx ends.
func (p *Producer) Stream(ctx context.Context, events StreamEvents) *Stream {
	s := &Stream{producer: p, events: events, done: make(chan struct{})}
	s.changed.L = &s.mu
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
	return s
}

// ErrStreamClosed is the error of a job that is added to a [Stream] after [Stream.Close].
var ErrStreamClosed = errors.New("producer: the stream is closed")

// Add hands over the job of a line. It blocks while as many jobs wait as fit into one round trip.
// It returns a [*JobError] if the job is invalid, the [*StreamError] if the Stream has ended
// early, and [ErrStreamClosed] if it is closed.
func (s *Stream) Add(line int, job Job) error {
	e, err := newEntry(job)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && !s.closed && (len(s.waiting) >= batchJobs || s.bytes >= batchBytes) {
		s.changed.Wait()
	}
	switch {
	case s.err != nil:
		return s.err
	case s.closed:
		return ErrStreamClosed
	}
	s.waiting = append(s.waiting, item{line, e})
	s.bytes += e.size()
	s.changed.Signal()
	return nil
}

// Close returns once all added jobs are certain, or with the [*StreamError] if the Stream has
// ended early.
func (s *Stream) Close() error {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	<-s.done
	return s.err
}

// run writes batch after batch until the Stream is closed or ends early.
func (s *Stream) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	var certain int
	for {
		batch := s.take(ctx)
		if batch == nil && ctx.Err() == nil {
			return
		}
		err := ctx.Err()
		if err == nil {
			certain, err = s.writeBatch(ctx, batch, certain)
		}
		if err != nil {
			s.end(&StreamError{Line: certain, Err: err})
			return
		}
	}
}

// take returns the jobs that were added, and waits for at least one. It returns nil when ctx
// has ended or no job will come.
func (s *Stream) take(ctx context.Context) []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) == 0 && !s.closed && ctx.Err() == nil {
		s.changed.Wait()
	}
	batch := s.waiting
	s.waiting, s.bytes = nil, 0
	s.changed.Signal()
	return batch
}

func (s *Stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.changed.Signal()
}

// writeBatch writes the batch, and what has failed again, until all of it is certain. It
// returns the last certain line.
func (s *Stream) writeBatch(ctx context.Context, batch []item, certain int) (int, error) {
	results := make([]error, len(batch))
	unsure := make([]int, len(batch)) // positions in batch, ascending
	for i := range unsure {
		unsure[i] = i
	}
	reported := 0
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		failed, cause := s.writeOnce(ctx, batch, unsure, results)
		unsure = failed
		sure := len(batch)
		if len(unsure) > 0 {
			sure = unsure[0]
		}
		for ; reported < sure; reported++ {
			certain = batch[reported].line
			s.events.Done(Result{certain, results[reported]})
		}
		switch {
		case len(unsure) == 0:
			return certain, nil
		case ctx.Err() != nil:
			return certain, ctx.Err()
		case !refusal.Passes(cause), refusal.Says(cause, "MOVED"), refusal.Says(cause, "ASK"): // a client of one node of a Cluster
			return certain, cause
		case backoff == minBackoff:
			s.events.Outage(cause)
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return certain, ctx.Err()
		}
	}
}

// writeOnce writes the jobs of batch at the positions unsure. It stores the results of those
// that did not fail. It returns the positions that failed, with the error of the first.
func (s *Stream) writeOnce(ctx context.Context, batch []item, unsure []int, results []error) (failed []int, cause error) {
	entries := make([]entry, len(unsure))
	for k, i := range unsure {
		entries[k] = batch[i].entry
	}
	_, errs := s.producer.write(ctx, entries)
	s.producer.tellArchived(ctx, entries, errs)
	for k, err := range errs {
		switch i := unsure[k]; {
		case err == nil || AlreadyThere(err):
			results[i] = err
		default:
			if failed = append(failed, i); cause == nil {
				cause = err
			}
		}
	}
	return failed, cause
}
