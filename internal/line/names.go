package line

import "strings"

func lineKey(queue, name string) string { return queuePrefix(queue) + "jt:line:" + name }

func blockedKey(queue string) string { return queuePrefix(queue) + "jt:blocked" }

func sorterKey(queue string) string { return queuePrefix(queue) + "jt:sorter" }

func roomKey(queue string) string { return queuePrefix(queue) + "jt:room" }

// linesKey is the key under which a queue has the names of its lines.
func linesKey(queue, name string) string {
	if IsBlocked(name) {
		return blockedKey(queue)
	}
	return queuePrefix(queue) + "jt:lines"
}

// Blocked begins the names of lines that do not belong to a limiter.
const Blocked = "!"

// InFlight begins the names of the lines of tasks that wait for a slot of a limit in flight.
const InFlight = Blocked + "in_flight:"

// MaxInFlight begins the names of the lines of tasks that wait until fewer tasks of their pattern
// run in a process.
const MaxInFlight = Blocked + "max_in_flight:"

// IsWait reports whether the tasks of a line only wait: for a slot, or for max_in_flight. They
// can run as things stand.
func IsWait(name string) bool {
	return strings.HasPrefix(name, InFlight) || strings.HasPrefix(name, MaxInFlight)
}

// SlotLimit returns the limit in flight for whose slots the tasks of a line wait.
func SlotLimit(name string) (limiter string, ok bool) { return strings.CutPrefix(name, InFlight) }

// IsBlocked reports whether a line does not belong to a limiter: its tasks cannot run as things
// stand, or wait for a slot or for max_in_flight.
func IsBlocked(name string) bool { return strings.HasPrefix(name, Blocked) }

// queuesKey is in the limiter's own Cluster slot. A name with a hash tag is its own prefix.
func queuesKey(limiter string) string { return ofLimiter(limiter, "queues") }

// ownQueuesKey is the same for the permits that one process has for itself.
func ownQueuesKey(limiter, client string) string { return ofLimiter(limiter, "queues:"+client) }

func calledKey(queue, name string) string { return ofLine(queue, "called", name) }
func askingKey(queue, name string) string { return ofLine(queue, "asking", name) }

// ofLine is a key for the tasks of a line, or for those of all tenants that share its limiter.
func ofLine(queue, what, name string) string {
	limiter, _, _ := Split(name)
	return queuePrefix(queue) + "jt:" + what + ":" + limiter
}
