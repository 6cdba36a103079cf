// Package history keeps in Redis what the fleet did in the last hour, limit by limit: how many
// jobs started and failed, and how long they waited. Each process adds what it did since its
// last report. What did not happen takes no space and no call.
//
//	{jobthrottle:history}:<n>  hash: kind:limit -> number, for Span from n x Span after 1970 on
//
// Kinds: s jobs that started, f attempts that failed, r attempts that the API told to try
// later, w the sum of the waits of jobs that started, in milliseconds, m the longest of these
// waits. An empty limit means all jobs. Only this package uses these keys.
package history

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Span is how long a bucket is.
	Span = 30 * time.Second
	// Buckets is how many whole buckets an hour has.
	Buckets = int(time.Hour / Span)
	// Other is the name for limits beyond MaxLimits of a bucket.
	Other = "(other)"
	// MaxLimits is about how many limits a bucket has: the first ones.
	MaxLimits = 100

	// base has a hash tag, so that all buckets are in one slot.
	base = "{jobthrottle:history}"
	// kept is longer than an hour because of the bucket that is not yet over.
	kept = time.Hour + 2*Span
	// maxNumber is the largest number that is read.
	maxNumber = 1e15
)

// Keys are patterns of the keys that a worker writes, for ACLs.
func Keys() []string { return []string{base, base + ":*"} }

//go:embed lua/add.lua
var addLua string

// Counts is what happened to the jobs of a limit, or to all jobs.
type Counts struct {
	Started int64
	Failed  int64 // attempts
	Refused int64 // attempts that the API told to try later
	Waited  time.Duration
	Longest time.Duration // of the waits
}

// Add adds counts, by limit, to those of the fleet. It uses the caller's pipeline. It adds no
// command if there is nothing to add.
func Add(ctx context.Context, p redis.Pipeliner, counts map[string]Counts) {
	args := []any{int64(Span / time.Second), int64(kept / time.Second), 5 * MaxLimits, Other}
	add := func(op, kind, limit string, n int64) {
		if n > 0 {
			args = append(args, op, kind, limit, n)
		}
	}
	for limit, c := range counts {
		add("+", "s", limit, c.Started)
		add("+", "f", limit, c.Failed)
		add("+", "r", limit, c.Refused)
		add("+", "w", limit, c.Waited.Milliseconds())
		add("m", "m", limit, c.Longest.Milliseconds())
	}
	if len(args) > 4 {
		p.Eval(ctx, addLua, []string{base}, args...)
	}
}

// Past is the last hour.
type Past struct {
	At    time.Time           // when it was read, by Redis's clock
	First int64               // the number of the first bucket
	Spans []map[string]Counts // by limit; the last is not yet over
}

// Begins is when a bucket begins.
func (p Past) Begins(i int) time.Time {
	return time.Unix((p.First+int64(i))*int64(Span/time.Second), 0)
}

// Reader reads the last hour. It remembers the buckets that are over, so that the next call
// only reads what is new. Its methods may be called concurrently.
type Reader struct {
	rdb redis.UniversalClient

	mu   sync.Mutex
	over map[int64]map[string]Counts
}

// NewReader returns a Reader of what is in rdb.
func NewReader(rdb redis.UniversalClient) *Reader { return &Reader{rdb: rdb} }

// Read reads the last hour. Only one caller at a time asks Redis.
func (r *Reader) Read(ctx context.Context) (Past, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return Past{}, err
	}
	last := now.Unix() / int64(Span/time.Second)
	past := Past{At: now, First: last - int64(Buckets), Spans: make([]map[string]Counts, Buckets+1)}
	hashes := map[int64]*redis.MapStringStringCmd{}
	_, _ = r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		for n := past.First; n <= last; n++ {
			if _, known := r.over[n]; !known {
				hashes[n] = p.HGetAll(ctx, base+":"+strconv.FormatInt(n, 10))
			}
		}
		return nil
	})
	for _, hash := range hashes {
		if err := hash.Err(); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // somebody else's key is an empty bucket
			return Past{}, err
		}
	}
	over := make(map[int64]map[string]Counts, Buckets)
	for i := range past.Spans {
		n := past.First + int64(i)
		counts, known := r.over[n]
		if !known {
			counts = parse(hashes[n].Val())
		}
		if past.Spans[i] = counts; n < last-1 { // a Cluster node's clock may be behind the one that was asked
			over[n] = counts
		}
	}
	r.over = over
	return past, nil
}

// parse parses a bucket. It skips invalid fields, and numbers are bounded.
func parse(hash map[string]string) map[string]Counts {
	if len(hash) == 0 || len(hash) > 20*MaxLimits {
		return nil
	}
	all := make(map[string]Counts, len(hash)/5+1)
	for field, text := range hash {
		kind, limit, ok := strings.Cut(field, ":")
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || n < 0 || n > maxNumber {
			continue
		}
		c := all[limit]
		switch kind {
		case "s":
			c.Started = n
		case "f":
			c.Failed = n
		case "r":
			c.Refused = n
		case "w":
			c.Waited = milliseconds(n)
		case "m":
			c.Longest = milliseconds(n)
		}
		all[limit] = c
	}
	return all
}

// milliseconds is that duration, at most 1e12 ms.
func milliseconds(n int64) time.Duration { return time.Duration(min(n, 1e12)) * time.Millisecond }
