package worker

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// BlockReason is why a job cannot run as things stand.
type BlockReason string

// The reasons of a BlockedError.
const (
	NoHandler      BlockReason = "no_handler"              // this worker has none for the type
	BadKey         BlockReason = BlockReason(plan.BadKey)  // the job has no usable value where a limit's key reads one
	BadCost        BlockReason = BlockReason(plan.BadCost) // nor where the job's permits do
	CostAboveLimit BlockReason = "cost_above_limit"        // it costs more than a limit, as it is in Redis, ever gives at once
	HostNotAllowed BlockReason = "host_not_allowed"        // its first request goes where http.allow_hosts does not let it
	UnknownField   BlockReason = "unknown_field"           // its payload has a field that the configuration does not read
)

// BlockedError says that a job cannot run as things stand: because of the
// configuration, of a limit, or of what this worker does not know and another
// may. It is Err of a *ThrottledError and no failure: the job waits, in no
// limit's line, and goes on by itself when what blocks it is mended.
type BlockedError struct {
	Reason BlockReason
	Err    error
	Mend   string // what to change
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("blocked (%s): %v: %s", e.Reason, e.Err, e.Mend)
}

// Unwrap makes errors.Is and errors.As see the cause.
func (e *BlockedError) Unwrap() error { return e.Err }

// blockedReason returns the reason in the text of a BlockedError, and the rest of it.
func blockedReason(text string) (reason BlockReason, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, "blocked (")
	if !ok {
		return "", "", false
	}
	before, rest, ok := strings.Cut(text, "): ")
	return BlockReason(before), rest, ok
}

// asBlocked returns the *BlockedError in what an attempt ended with, or nil.
// Handlers that are themselves an asynq.ServeMux may have none for the type.
func asBlocked(err error) *BlockedError {
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		return blocked
	}
	if errors.Is(err, asynq.ErrHandlerNotFound) {
		return &BlockedError{Reason: NoHandler, Err: err, Mend: "run a worker that has a handler for this type"}
	}
	return nil
}

// blockedByLimit turns what the throttle never grants into a *BlockedError. It
// returns nil for other errors.
func blockedByLimit(err error) error {
	switch {
	case errors.Is(err, throttle.ErrExceedsRate):
		return &BlockedError{Reason: CostAboveLimit, Err: err, Mend: "raise the limit (throttle set NAME RATE --pin), or lower what the job costs"}
	case errors.Is(err, throttle.ErrInvalidName), errors.Is(err, throttle.ErrInvalidGroup):
		return &BlockedError{Reason: BadKey, Err: err, Mend: "correct the key of the limit, or the job"}
	}
	return nil
}

func blockedHost(err error) error {
	return &BlockedError{Reason: HostNotAllowed, Err: err, Mend: "correct http.allow_hosts, or the job"}
}

// block makes a job wait that cannot run as things stand, and says so once a
// minute for each reason and type.
func (p *pool) block(t *turn, blocked *BlockedError) *ThrottledError {
	of, wait, jobs := p.w.blocks.add(time.Now(), cause{blocked.Reason, t.task.Type()})
	if jobs > 0 {
		p.w.logger.Warn("jobs wait for something to be mended", zap.String("reason", string(blocked.Reason)), zap.String("type", of.taskType),
			zap.Int("attempts", jobs), zap.String("task_id", t.entry.id), zap.String("queue", t.entry.queue), zap.Error(blocked))
	}
	return &ThrottledError{RetryAfter: wait, Err: blocked}
}

const (
	// Blocked jobs of one cause come back one by one, however many there are: a
	// backlog of 100,000 goes round in 200 s, and costs no more attempts a second
	// than one of 10,000. Only beyond the longest wait, which takes 1.8 million jobs,
	// do they begin at the front again.
	blockedInterval = 2 * time.Millisecond
	blockedLongest  = time.Hour
	// The shortest wait grows with the time for which jobs have been blocked:
	// what nobody mends costs less and less.
	blockedShortest = 2 * time.Second
	blockedSettled  = 15 * time.Second
	blockedGrowth   = 10
	// blockedReport is how often each cause is logged. One that has not been
	// seen for so long is over. That a job of the type runs does not end it: it may
	// be the others that are wrong.
	blockedReport = time.Minute
	// maxCauses bounds what a worker remembers and logs: types come from producers.
	// The types beyond share one cause.
	maxCauses  = 100
	otherTypes = "other types"
)

// blocks paces the jobs of this process that cannot run as things stand.
type blocks struct {
	mu     sync.Mutex
	causes map[cause]*blocking
}

type cause struct {
	reason   BlockReason
	taskType string
}

// blocking is what a worker remembers of a cause.
type blocking struct {
	since, seen time.Time
	back        time.Time // when the last job comes back
	reported    time.Time
	attempts    int // since it was reported
}

// add returns after how long the next job of a cause comes back, and how many
// attempts there are to report: zero if there was a report within a minute. It
// counts them under the cause that it returns, which others may share.
func (b *blocks) add(now time.Time, c cause) (of cause, wait time.Duration, report int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	over := func(_ cause, s *blocking) bool { return now.Sub(s.seen) > blockedReport }
	if b.causes == nil {
		b.causes = map[cause]*blocking{}
	}
	if b.causes[c] == nil && len(b.causes) >= maxCauses {
		if maps.DeleteFunc(b.causes, over); len(b.causes) >= maxCauses {
			c = cause{taskType: otherTypes}
		}
	}
	s := b.causes[c]
	if s == nil || over(c, s) {
		s = &blocking{since: now}
		b.causes[c] = s
	}
	s.seen = now
	s.attempts++
	if now.Sub(s.reported) >= blockedReport {
		report, s.attempts, s.reported = s.attempts, 0, now
	}
	soonest := now.Add(min(max(now.Sub(s.since)/blockedGrowth, blockedShortest), blockedSettled))
	s.back = s.back.Add(blockedInterval)
	if s.back.Before(soonest) || s.back.After(now.Add(blockedLongest)) {
		s.back = soonest
	}
	return c, s.back.Sub(now), report
}
