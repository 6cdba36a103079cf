package jobview

import (
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/producer"
)

// jobOf makes the Job of a task on a shelf. It returns false if the task has left the shelf
// meanwhile.
func jobOf(s stop, e line.Entry, t line.Stored, queuePaused bool) (Job, bool) {
	j := Job{ID: e.ID, Queue: s.Queue, Type: t.Type, State: Waiting, Retried: t.Retried, MaxRetry: t.MaxRetry, Error: clip(t.LastError)}
	if most, ours := producer.MaxRetry(t.Headers); ours {
		j.MaxRetry = most
	}
	if t.Err != nil {
		j.Error = t.Err.Error()
	}
	if s.Shelf != line.Room {
		j.seen = line.Seen{ID: e.ID, State: t.State, Score: e.Score}
	}
	waits := func(why string) (Job, bool) {
		if j.Why = why; t.Wait.Since > 0 {
			j.Since = time.UnixMicro(t.Wait.Since)
		}
		if limiter, inFlight := line.SlotLimit(t.Wait.Line); inFlight {
			j.Limit = limiter
		} else if t.Wait.Line != "" && !line.IsBlocked(t.Wait.Line) {
			j.Limit, _, j.shared = line.Split(t.Wait.Line)
			j.line, j.Cost = t.Wait.Line, max(t.Wait.Cost, 1)
		}
		return j, true
	}
	switch s.Shelf {
	case line.Pending:
		switch {
		case queuePaused:
			return waits(WhyQueue)
		case t.State == "pending" && t.Wait.State == line.Called:
			return waits(WhyCalled)
		}
		j, _ := waits(WhySlot)
		j.Limit, j.Cost = "", 0 // these are from an earlier wait
		return j, t.State == "pending"
	case line.Room:
		return waitsIn(waits, t)
	case line.Archived, line.Oldest:
		j.State, j.Since = Archived, time.Unix(int64(e.Score), 0)
		return j, t.State == "archived" || t.Err != nil
	case line.Retrying:
		return retrying(j, e, t, waits)
	}
	e.Score = float64(t.Wait.Score) // the score of a line is a time of arrival
	j.seen.Score = e.Score
	if !t.InLine(e) {
		return Job{}, false
	}
	return retrying(j, e, t, waits)
}

func waitsIn(waits func(string) (Job, bool), t line.Stored) (Job, bool) {
	j, _ := waits(WhyWorker)
	return j, t.State == "active"
}

// retrying makes the Job of a task in asynq's retry set: it waits, or it failed.
func retrying(j Job, e line.Entry, t line.Stored, waits func(string) (Job, bool)) (Job, bool) {
	if t.State != "retry" && t.Err == nil {
		return Job{}, false
	}
	if t.InLine(e) {
		if reason, _, blocked := BlockedFor(t.LastError); blocked && line.IsBlocked(t.Wait.Line) {
			return waits(string(reason))
		}
		if line.IsBlocked(t.Wait.Line) {
			reason, _, _ := strings.Cut(strings.TrimPrefix(t.Wait.Line, "!"), ":")
			return waits(reason)
		}
		return waits(WhyLimit)
	}
	j.Next, j.Since = time.Unix(int64(e.Score), 0), t.FailedAt
	if _, _, blocked := BlockedFor(t.LastError); blocked || WasPutOff(t.LastError) || t.Alone(e) {
		next := j.Next
		j, ok := waits(WhyRefused)
		j.Limit, j.Cost, j.Next = "", 0, next
		return j, ok
	}
	j.State = Failed
	return j, true
}
