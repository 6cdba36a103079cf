package asynqlimit

import (
	"context"
	"errors"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

func TestFateOf(t *testing.T) {
	errRedis := errors.New("no answer")
	tests := []struct {
		name           string
		phase          phase
		err            error
		over, draining bool
		want           fate
	}{
		{"its time was over when it was taken", taken, context.DeadlineExceeded, true, false, asynqs},
		{"taken, given back before it began", taken, nil, false, true, returns},

		{"waits, no answer", waits, errRedis, false, false, parks},
		{"waits, its time is over", waits, context.DeadlineExceeded, true, false, parks},
		{"waits, cancelled", waits, context.Canceled, true, false, parks},
		{"waits, the process drains", waits, context.Canceled, false, true, returns},
		{"waits, given back", waits, nil, false, true, returns},

		{"prepares, no answer", prepares, errRedis, false, false, parks},
		{"prepares, its time is over", prepares, context.DeadlineExceeded, true, false, asynqs},
		{"prepares, cancelled", prepares, context.Canceled, true, false, asynqs},
		{"prepares, the process drains", prepares, context.Canceled, false, true, returns},
		{"prepares, given back", prepares, nil, false, true, returns},

		{"runs, no answer", runs, errRedis, false, false, asynqs},
		{"runs, its turn comes too late", runs, throttle.ErrExceedsDeadline, false, false, asynqs},
		{"runs, its time is over", runs, context.DeadlineExceeded, true, false, asynqs},
		{"runs, asks for more, the process drains", runs, context.Canceled, false, true, returns},
		{"runs, given back", runs, nil, false, true, asynqs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := fateOf(tt.phase, tt.err, tt.over, tt.draining); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestEnding: what becomes of a task when asynq ends its attempt, given what the middleware has
// decided.
func TestEnding(t *testing.T) {
	api := line.Parking{Line: "api"}
	tests := []struct {
		name    string
		phase   phase
		fate    fate
		parking line.Parking
		step    line.Step
		want    fate
	}{
		{"waits for a limit", waits, open, api, line.Retry, parks},
		{"waits for a slot", waits, open, line.Parking{}, line.Archive, returns},
		{"waits, shutdown", waits, open, api, line.Requeue, returns},
		{"put off", prepares, parks, api, line.Archive, parks},
		{"put off alone", runs, parks, line.Parking{Away: 1}, line.Retry, parks},
		{"put off, shutdown", runs, parks, api, line.Requeue, returns},
		{"handler failed", runs, asynqs, line.Parking{}, line.Retry, asynqs},
		{"dials", prepares, open, api, line.Archive, asynqs},
		{"runs, shutdown", runs, open, api, line.Requeue, asynqs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &attempt{phase: tt.phase, fate: tt.fate, parking: tt.parking}
			if got, _ := a.ending(tt.step); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
