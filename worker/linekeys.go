package worker

import (
	"net/url"
	"strings"
)

const (
	// indexPrefix is what the keys of the indexes begin with: for each queue, the
	// limiters that have tasks of it in line. The tag has all in one slot.
	indexPrefix = "{jobthrottle:parked}:"
	// oldIndexKey is the one index, for all queues, of the version before this one.
	oldIndexKey = "jobthrottle:parked"

	// What the keys of a limiter's lines go on with, after its name in braces and
	// a colon. Package config refuses limits that are named like such a key.
	parkedKeys  = "parked"
	refusedKeys = "refused"
)

func indexOf(queue string) string { return indexPrefix + url.QueryEscape(queue) }

// indexesOf are those of the queues, and that of the version before this one.
func indexesOf(queues []string) []string {
	indexes := make([]string, 0, len(queues)+1)
	for _, queue := range queues {
		indexes = append(indexes, indexOf(queue))
	}
	return append(indexes, oldIndexKey)
}

// lineKeys are the keys of a limiter's lines, in the limiter's slot: see park.lua.
type lineKeys struct {
	lines                      string // what the keys of the lines begin with
	called, clock, costs, kept string
	refused                    string // see refused.lua
	old                        oldLineKeys
}

// oldLineKeys are those of the version before this one, which had one line for all queues.
type oldLineKeys struct{ line, called, clock, costs, since string }

func keysOf(limiter string) lineKeys {
	prefix := limiter
	if !strings.Contains(limiter, "{") {
		prefix = "{" + limiter + "}"
	}
	old := prefix + ":" + parkedKeys
	return lineKeys{
		lines: old + ":line:", called: old + ":away", clock: old + ":places", costs: old + ":cost", kept: old + ":kept",
		refused: prefix + ":" + refusedKeys,
		old:     oldLineKeys{old, old + ":called", old + ":clock", old + ":costs", old + ":since"},
	}
}

// line is the key of the line of a queue.
func (k lineKeys) line(queue string) string { return k.lines + url.QueryEscape(queue) }
