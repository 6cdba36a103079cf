package jobview

import (
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/plain"
)

// Text says in plain sentences what the explanation knows, one per line: where the job is,
// what holds it, and what else keeps it from running. Quoted parts of the job are escaped, so
// that the text is safe on any terminal or page.
func (e *Explanation) Text() []string {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, plain.Text(fmt.Sprintf(format, args...))) }
	if e.CopyOf != "" {
		say("Job %q goes on as %q: a limit put it off on its last attempt, where asynq archives.", e.CopyOf, e.ID)
	}
	job := fmt.Sprintf("Job %q (%s, queue %s)", e.ID, e.Type, e.Queue)
	switch e.State {
	case StateParked:
		e.sayParked(say, job)
	case asynq.TaskStatePending.String():
		e.sayPending(say, job)
	case asynq.TaskStateActive.String():
		e.sayActive(say, job)
	case asynq.TaskStateScheduled.String():
		say("%s is scheduled: it may start at %s.", job, e.when(e.ComesBack))
	case asynq.TaskStateRetry.String():
		e.sayRetry(say, job)
	case asynq.TaskStateArchived.String():
		e.sayArchived(say, job)
	case asynq.TaskStateCompleted.String():
		say("%s is completed: it was done %s.", job, e.when(e.Since))
	case asynq.TaskStateAggregating.String():
		say("%s waits in group %q until asynq aggregates it.", job, e.Group)
	default:
		say("%s is %s.", job, e.State)
	}
	if e.State == asynq.TaskStateCompleted.String() || e.State == asynq.TaskStateArchived.String() {
		return lines
	}
	if e.QueuePaused {
		say("Queue %s is paused in asynq: nothing of it starts until it is unpaused.", e.Queue)
	}
	if e.Servers == 0 {
		say("No running worker serves queue %s: start one that has it in its pools.", e.Queue)
	}
	e.sayWorkers(say)
	return lines
}

// sayWorkers tells what the workers of the queue lack, and how they differ.
func (e *Explanation) sayWorkers(say sayer) {
	switch {
	case e.NoHandler:
		say("No running worker that serves queue %s has a handler for type %s: start one that has, or correct the type.", e.Queue, e.Type)
	case e.Lacking > 0:
		say("%d of the workers that serve queue %s %s no handler for type %s.", e.Lacking, e.Queue, have(e.Lacking), e.Type)
	}
	if len(e.Configs) == 0 {
		return
	}
	most := e.Configs[0]
	for _, c := range e.Configs[1:] {
		say("%s (%s) %s another configuration (%s) than %s (%s; %s): limits, jobs or allowed hosts differ.",
			workers(c.Workers), c.Example, have(c.Workers), c.Config, workers(most.Workers), most.Example, most.Config)
	}
}

func have(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

type sayer func(format string, args ...any)

func (e *Explanation) sayParked(say sayer, job string) {
	if e.Slots != nil {
		e.saySlots(say, job)
		return
	}
	since := ""
	if !e.Since.IsZero() {
		since = " since " + e.when(e.Since)
	}
	say("%s is parked: limit %q holds it%s. It did not fail, and uses up no retry.", job, e.Limiter.Name, since)
	switch {
	case e.Called:
		say("The limit has called it just now: it is on its way back to its queue.")
	case e.Ahead != nil && e.Limiter.Broken != "":
		say("%s before it in line.", jobs(*e.Ahead))
	case e.Ahead != nil:
		say("%s before it in line; its turn comes in about %s.", jobs(*e.Ahead), e.in(e.ComesBack))
	}
	e.sayTenant(say)
	e.sayLimiter(say)
}

func (e *Explanation) saySlots(say sayer, job string) {
	s := e.Slots
	say("%s is parked: it waits for a slot of limit %q since %s. It did not fail, and uses up no retry.", job, s.Name, e.when(e.Since))
	if s.Broken != "" {
		say("The limit is broken, and its jobs wait until that is fixed: %s.", s.Broken)
		return
	}
	say("%d of %d slots are taken, and %d jobs wait for one in workers: throttle holders %s shows who has them.", s.Taken, s.InFlight, s.Waiting, s.Name)
	if s.Earlier != "" {
		say("Its jobs run in order: %q came earlier and has not ended (%s). It goes on when that is done, archived or deleted: throttle explain --task %s tells more.",
			s.Earlier, s.EarlierState, s.Earlier)
	}
}

func (e *Explanation) sayPending(say sayer, job string) {
	position := fmt.Sprintf("more than %d jobs come before it", maxPosition)
	if e.Ahead != nil {
		position = jobs(*e.Ahead) + " before it"
	}
	if e.Limiter == nil {
		say("%s is pending: it waits for a free slot of a worker, %s. No limit holds it.", job, position)
		if _, why, ok := BlockedFor(e.LastError); ok {
			say("When it was last tried, it could not run as things stood: %s.", why)
		}
		return
	}
	say("%s is pending, %s: it was parked for limit %q, which has called it as its permits come due.", job, position, e.Limiter.Name)
	e.sayLimiter(say)
}

func (e *Explanation) sayActive(say sayer, job string) {
	switch {
	case e.Orphaned:
		say("%s is active, but the worker that had it is gone: asynq brings it back within about two minutes.", job)
		return
	case e.Worker == "":
		say("%s is active: a worker has it in a slot.", job)
	default:
		say("%s is active: %s has it in a slot since %s.", job, e.Worker, e.when(e.Since))
	}
	say("Whether it runs or waits there for a permit (no longer than its job's hold) only that worker knows.")
}

func (e *Explanation) sayRetry(say sayer, job string) {
	if e.Blocked != "" {
		_, why, _ := BlockedFor(e.LastError)
		say("%s waits: it cannot run as things stand (%s). It did not fail, and uses up no retry.", job, e.Blocked)
		say("What to fix: %s.", why)
		say("It was tried %s. One job of its kind is tried every 30s at least, by each worker, and when one passes the others follow.", e.when(e.Since))
		return
	}
	if e.PutOff {
		back := "a worker brings it back when it has room"
		if !e.ComesBack.IsZero() {
			back = "asynq brings it back at " + e.when(e.ComesBack)
		}
		say("%s was put off %s and is in no limit's line; %s. It did not fail.", job, e.when(e.Since), back)
		say("What put it off: %s", e.LastError)
		return
	}
	say("%s failed %s, and asynq tries it again at %s: retry %d of %d. No limit holds it.", job, e.when(e.Since), e.when(e.ComesBack), e.Retried, e.MaxRetry)
	say("Its last error: %s", e.LastError)
}

func (e *Explanation) sayArchived(say sayer, job string) {
	if e.Since.IsZero() {
		say("%s is archived without having failed: somebody did that. asynq does not run it by itself.", job)
		return
	}
	say("%s is archived: it failed for good %s, after %d of %d retries. asynq does not run it again by itself.", job, e.when(e.Since), e.Retried, e.MaxRetry)
	say("Its last error: %s", e.LastError)
}

func (e *Explanation) sayLimiter(say sayer) {
	l := e.Limiter
	each := ""
	if l.PerClient {
		each = ", for each worker"
	}
	switch {
	case l.Broken != "":
		say("The limit is broken, and its jobs wait until that is fixed: %s. throttle set %s RATE fixes it, or throttle delete %s.", l.Broken, l.Name, l.Name)
	case l.Rate == "":
		say("Redis has no limit %q any more: the next job creates it.", l.Name)
	case !l.PausedUntil.IsZero():
		say("The limit (%s%s) is paused for another %s.", l.Rate, each, e.in(l.PausedUntil))
	case l.Available == 0 && !l.NextFree.IsZero():
		say("The limit (%s%s) is full: %d used, %d reserved; a permit is free in %s.", l.Rate, each, l.Used, l.Reserved, e.in(l.NextFree))
	default:
		say("The limit (%s%s) has %d free now: %d used, %d reserved.", l.Rate, each, l.Available, l.Used, l.Reserved)
	}
	if l.Known != "" {
		say("The limit finds by itself what its API takes: %s, as far as known.", l.Known)
	}
	if !l.OthersSeen.IsZero() {
		say("Somebody else uses the quota, or the API has lowered its limit: it refused far less than it had taken before, %s.", e.when(l.OthersSeen))
	}
	if l.Cost > 1 {
		say("The job costs %d of its permits.", l.Cost)
	}
}

// when writes a time and how far away it is.
func (e *Explanation) when(t time.Time) string {
	at := t.UTC().Format("2006-01-02 15:04:05 UTC")
	if d := t.Sub(e.At); d > 0 {
		return fmt.Sprintf("%s (in %s)", at, rounded(d))
	}
	return fmt.Sprintf("%s (%s ago)", at, rounded(e.At.Sub(t)))
}

func (e *Explanation) in(t time.Time) string { return rounded(max(t.Sub(e.At), 0)) }

func jobs(n int64) string {
	switch n {
	case 0:
		return "no job is"
	case 1:
		return "1 job is"
	}
	return fmt.Sprintf("%d jobs are", n)
}

// rounded writes a duration as precisely as a person needs it.
func rounded(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
