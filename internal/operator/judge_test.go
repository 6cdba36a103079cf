package operator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

const s = time.Second

// at is a start that ran to its end.
func at(t time.Duration) Start { return Start{Job: "a", At: t, Done: true} }

func ran(begin, end time.Duration) act { return act{true, yes, begin, end} }

// TestJudge: what an operator did to one job, when it started, and what is wrong about that.
func TestJudge(t *testing.T) {
	shelved := act{false, yes, 1 * s, 2 * s}
	for _, tt := range []struct {
		name   string
		job    job
		starts []Start
		causes []Cause
		why    string // it started again
		wrong  string
	}{
		{name: "one start", starts: []Start{at(s)}},
		{name: "again", starts: []Start{at(1 * s), at(5 * s)}, wrong: "a started at 1s and again at 5s without a cause"},
		{name: "again, out of order", starts: []Start{at(5 * s), at(1 * s)}, wrong: "a started at 1s and again at 5s without a cause"},
		{name: "failed", starts: []Start{at(1 * s), at(5 * s)}, causes: []Cause{{Job: "a", At: 2 * s, Why: "failed"}}, why: "failed"},
		{name: "failed before", starts: []Start{at(3 * s), at(5 * s)}, causes: []Cause{{Job: "a", At: 2 * s, Why: "failed"}}, wrong: "without a cause"},
		{name: "another failed", starts: []Start{at(1 * s), at(5 * s)}, causes: []Cause{{Job: "b", At: 2 * s, Why: "failed"}}, wrong: "without a cause"},
		{name: "run", job: job{acts: []act{ran(3*s, 4*s)}}, starts: []Start{at(1 * s), at(5 * s)}, why: Ran},
		{name: "run while it starts", job: job{acts: []act{ran(4*s, 6*s)}}, starts: []Start{at(1 * s), at(5 * s)}, why: Ran},
		{name: "run later", job: job{acts: []act{ran(6*s, 7*s)}}, starts: []Start{at(1 * s), at(5 * s)}, wrong: "without a cause"},
		{name: "archived", job: job{acts: []act{shelved}}, starts: []Start{at(5 * s)}, wrong: "a started at 5s, though it was deleted or archived"},
		{name: "archived later", job: job{acts: []act{shelved}}, starts: []Start{at(2 * s)}},
		{name: "perhaps archived", job: job{acts: []act{{false, perhaps, 1 * s, 2 * s}}}, starts: []Start{at(5 * s)}},
		{name: "archived and run", job: job{acts: []act{shelved, ran(3*s, 4*s)}}, starts: []Start{at(5 * s)}},
		{name: "early", job: job{due: 3 * s}, starts: []Start{at(1 * s)}, wrong: "a started 2s before it was due"},
		{name: "early, but run", job: job{due: 3 * s, acts: []act{ran(0, s)}}, starts: []Start{at(1 * s)}},
		{name: "early with a cause", job: job{due: 3 * s}, starts: []Start{at(1 * s)}, causes: []Cause{{Job: "a", Early: true}}},
		{name: "early and again", job: job{due: 3 * s}, starts: []Start{at(1 * s), at(2 * s)}, causes: []Cause{{Job: "a", Early: true}}, wrong: "without a cause"},
		{name: "early, and run later", job: job{due: 3 * s, acts: []act{ran(2*s, 2*s)}}, starts: []Start{at(1 * s)}, wrong: "before it was due"},
		{name: "completed", job: job{completed: true}, starts: []Start{at(s)}},
		{name: "never done", job: job{completed: true}, starts: []Start{{Job: "a", At: s}}, wrong: "a is completed, and never ran"},
		{name: "a stranger", starts: []Start{{Job: "b", At: s}}, wrong: "b started, and nobody enqueued it"},
	} {
		o := New(Options{})
		o.Add("a", "default", 0)
		o.jobs["a"] = &tt.job
		again, err := o.Judge(tt.starts, tt.causes)
		if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.wrong)
		}
		if (len(again) == 1) != (tt.why != "") || len(again) > 0 && again[0].Why != tt.why {
			t.Errorf("%s: %+v, want %q", tt.name, again, tt.why)
		}
	}
}

// TestOutcome: only what asynq refused was certainly not done.
func TestOutcome(t *testing.T) {
	for err, want := range map[error]answer{
		nil: yes,
		fmt.Errorf("asynq: %w", asynq.ErrTaskNotFound):                             no,
		errors.New("asynq: FAILED_PRECONDITION: task is already in pending state"): no,
		errors.New("asynq: UNKNOWN: redis eval error: i/o timeout"):                perhaps,
	} {
		if got := outcome(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
