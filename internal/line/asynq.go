package line

import (
	"hash/fnv"
	"regexp"
	"strings"
)

// This file knows asynq's keys and scripts, those of v0.26: see TestScriptsOfAsynq.

// queuePrefix is what all keys of a queue begin with, asynq's and ours.
func queuePrefix(queue string) string { return "asynq:{" + queue + "}:" }

func pendingKey(queue string) string   { return queuePrefix(queue) + "pending" }
func pausedKey(queue string) string    { return queuePrefix(queue) + "paused" }
func activeKey(queue string) string    { return queuePrefix(queue) + "active" }
func leaseKey(queue string) string     { return queuePrefix(queue) + "lease" }
func retryKey(queue string) string     { return queuePrefix(queue) + "retry" }
func scheduledKey(queue string) string { return queuePrefix(queue) + "scheduled" }

// Servers is the key of the sorted set to which each server of asynq adds itself: when it starts, before its first handler,
// and every few seconds.
const Servers = "asynq:servers"

// LeasesOf returns the queue whose leases asynq has in that key, if it has some there.
func LeasesOf(key string) (queue string, ok bool) {
	rest, asynqs := strings.CutPrefix(key, "asynq:{")
	queue, leases := strings.CutSuffix(rest, "}:lease")
	return queue, asynqs && leases
}

// TaskKey is the key under which asynq has a task.
func TaskKey(queue, id string) string { return queuePrefix(queue) + "t:" + id }

// A Step is what one of asynq's scripts does with a task.
type Step int

// The steps of a task that a server takes. Other stands for scripts that move no task that a
// server has taken. Unknown stands for a script that may do so, and that is in no version of
// asynq known here.
const (
	Other Step = iota
	Dequeue
	Done // done, or completed and kept
	Requeue
	Retry
	Archive
	Unknown
)

// Call is a call of one of asynq's scripts.
type Call struct {
	Step  Step
	Queue string
	ID    string // of the task; empty for Dequeue and Other
	// Message is the task as Retry and Archive store it, with the error that ended the attempt.
	// Failure says that it counts one more retry.
	Message any
	Failure bool
	// LeaseEnds is when the lease of a Dequeue ends.
	LeaseEnds any
}

// Recognize finds out from its keys and arguments which of asynq's scripts is called.
func Recognize(keys []string, args []any) Call {
	if len(keys) == 0 {
		return Call{}
	}
	queue, ok := queueOf(keys[0])
	if !ok {
		return Call{}
	}
	prefix := keys[0][:len(queuePrefix(""))+len(queue)]
	is := func(i int, suffix string) bool {
		rest, ok := strings.CutPrefix(keys[i], prefix)
		return ok && rest == suffix
	}
	moves := false
	for i := range keys {
		moves = moves || is(i, "active") || is(i, "lease")
	}
	if !moves || len(keys) == 1 { // if its only key is that of the leases, it is asynq's list of lapsed leases
		return Call{Queue: queue}
	}
	c := Call{Step: Unknown, Queue: queue}
	task := -1
	switch {
	case len(keys) == 4 && len(args) == 2 && is(0, "pending") && is(1, "paused") && is(2, "active") && is(3, "lease"):
		return Call{Step: Dequeue, Queue: queue, LeaseEnds: args[0]}
	case (len(keys) == 5 || len(keys) == 6) && len(args) == 3 && is(0, "active") && is(1, "lease") && is(4, "processed"):
		c.Step, task = Done, 2
	case (len(keys) == 6 || len(keys) == 7) && len(args) == 5 && is(0, "active") && is(1, "lease") && is(2, "completed") && is(5, "processed"):
		c.Step, task = Done, 3
	case len(keys) == 4 && len(args) == 1 && is(0, "active") && is(1, "lease") && is(2, "pending"):
		c.Step, task = Requeue, 3
	case len(keys) == 8 && len(args) == 6 && is(1, "active") && is(2, "lease") && is(3, "retry"):
		c.Step, task = Retry, 0
		c.Message, c.Failure = args[1], args[4] == true
	case len(keys) == 9 && len(args) == 7 && is(1, "active") && is(2, "lease") && is(3, "archived"):
		c.Step, task = Archive, 0
		c.Message = args[1]
	}
	if task < 0 {
		return c
	}
	id, ok := args[0].(string)
	if !ok || keys[task] != TaskKey(queue, id) {
		return Call{Step: Unknown, Queue: queue}
	}
	c.ID = id
	return c
}

// takesOff is how asynq takes a task off the list of active tasks when an attempt ends: it reads the whole list.
var takesOff = regexp.MustCompile(`redis\.call\("LREM", (KEYS\[\d\]), 0, ARGV\[1\]\)`)

// OfAttempt returns a script of asynq's that ends an attempt so that it ends no other attempt. asynq asks for the task alone: if
// the answer is lost and the call is repeated, the task may have been enqueued again, or retried, and be in a later attempt.
// The script gets two more arguments at the end: the key of the task, and which take the attempt is.
//
// It reads the list of active tasks from the tail, where the oldest are, and no further than to the task. While many tasks
// wait in processes, this list is long, and those that end were taken before them. A script that does it in another way stays
// as it is.
func OfAttempt(script string) string {
	return ours + takesOff.ReplaceAllString(script, `(ours() and redis.call("LREM", $1, -1, ARGV[1]) or 0)`)
}

// ours says whether the task is in the attempt that the script ends. If somebody has deleted the task meanwhile, or has written
// something else there, it is in no later one.
const ours = `local function ours()
  local known = redis.pcall("HMGET", ARGV[#ARGV-1], "taken", "state")
  return known[1] == ARGV[#ARGV] or not known[2]
end
`

// queueOf returns the queue of one of asynq's keys.
func queueOf(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, "asynq:{")
	if !ok {
		return "", false
	}
	queue, _, ok := strings.Cut(rest, "}:")
	return queue, ok
}

// spread maps ids evenly to n values.
func spread(id string, n uint32) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int(h.Sum32() % n)
}
