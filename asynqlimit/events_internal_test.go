package asynqlimit

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
)

// TestManyPausedLimits: an API pauses very many accounts again and again. The log has lines for a
// thousand of them, and one line a minute for the others. When pauses have ended there is room
// for others.
func TestManyPausedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l := &Limits{process: &process{logger: slog.New(slog.NewTextHandler(&log, nil))}}
		j := &job{l: l, a: &attempt{id: "id", queue: "default"}, task: asynq.NewTask("x", nil)}
		const limiters, rounds = 5 * maxPausedKnown, 60
		for range rounds {
			for i := range limiters {
				l.pausedBy(j, fmt.Sprint("account:", i), 3*time.Minute)
			}
			time.Sleep(time.Second)
		}
		// In these 60 s, each known pause gets longer by more than a second at most once a round.
		each, sums := strings.Count(log.String(), "is paused for"), strings.Count(log.String(), "logged together")
		if each > maxPausedKnown*rounds || each < maxPausedKnown || sums < 1 || sums > 2 {
			t.Errorf("%d pauses told, and %d lines of sums, want about %d each and 1 or 2", each, sums, maxPausedKnown)
		}
		time.Sleep(4 * time.Minute)
		log.Reset()
		l.pausedBy(j, "another", time.Minute)
		if !strings.Contains(log.String(), "limit=another") {
			t.Errorf("told %q", log.String())
		}
	})
}
