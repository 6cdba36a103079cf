package line

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A Shelf is where a queue keeps tasks.
type Shelf string

// The shelves that people read. ShelfOf returns that of a line.
const (
	Retrying Shelf = "retry"    // tasks that failed, and tasks in line; the next comes first
	Archived Shelf = "archived" // the newest comes first
	Pending  Shelf = "pending"  // the next comes first
	Room     Shelf = "jt:room"  // tasks that wait in processes, by id
	// Oldest is the archive, beginning at its other end.
	Oldest Shelf = "archived oldest first"
)

// ShelfOf is the shelf of a line, in the order of the line.
func ShelfOf(name string) Shelf { return Shelf("jt:line:" + name) }

func (s Shelf) key(queue string) string {
	if s == Oldest {
		s = Archived
	}
	return queuePrefix(queue) + string(s)
}

// Entry is a task on a shelf.
type Entry struct {
	ID    string
	Score float64 // its order there: when it is tried next or was archived, in seconds after 1970; in a line, its first arrival in microseconds
}

// Shelf returns n tasks of a shelf: those behind after, or the first ones if after has no ID. If
// after is gone, Shelf goes on where it was, and may repeat tasks that stood beside it. However
// many tasks move meanwhile, it leaves out none that stays.
func (l *Lines) Shelf(ctx context.Context, queue string, s Shelf, after Entry, n int64) ([]Entry, error) {
	way := "up"
	switch s {
	case Room:
		return l.roomAfter(ctx, queue, after, n)
	case Pending:
		way = "list"
	case Archived:
		way = "down"
	}
	found, err := l.shelf.Run(ctx, l.rdb, []string{s.key(queue)}, way, n, after.ID, scoreText(after.Score)).StringSlice()
	if err == nil && len(found)%2 != 0 {
		err = fmt.Errorf("shelf.lua: unexpected reply of %d values", len(found))
	}
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(found)/2)
	for i := range entries {
		entries[i].ID = found[2*i]
		if entries[i].Score, err = strconv.ParseFloat(found[2*i+1], 64); err != nil {
			return nil, fmt.Errorf("shelf.lua: a score of %q", found[2*i+1])
		}
	}
	return entries, nil
}

func (l *Lines) roomAfter(ctx context.Context, queue string, after Entry, n int64) ([]Entry, error) {
	ids, err := l.rdb.SMembers(ctx, roomKey(queue)).Result()
	slices.Sort(ids)
	at, there := slices.BinarySearch(ids, after.ID)
	if there {
		at++
	}
	ids = ids[at:]
	return entriesOf(ids[:min(int64(len(ids)), n)]), err
}

func entriesOf(ids []string) []Entry {
	entries := make([]Entry, len(ids))
	for i, id := range ids {
		entries[i].ID = id
	}
	return entries
}

// Stored is what Redis has of a task.
type Stored struct {
	State string // asynq's name for it; empty if there is no such task
	Wait  Wait   // zero if it never waited
	Message
	Err error // why its message cannot be read
}

// InLine reports whether a task of asynq's retry set is in a line.
func (s Stored) InLine(e Entry) bool {
	return s.Wait.State == Parked && s.Wait.Line != "" && s.since(e)
}

// Alone reports whether a task of asynq's retry set waits there alone, because its API told it to
// try later.
func (s Stored) Alone(e Entry) bool {
	return s.Wait.State == Arrived && s.Wait.Line == "" && s.since(e)
}

// since reports whether a task has been in asynq's retry set since it began to wait.
func (s Stored) since(e Entry) bool {
	return s.State == "retry" && s.Wait.Score == int64(math.Round(e.Score))
}

// maxStored is how many bytes of messages one round trip reads before it leaves the rest to the
// next: a task may have megabytes.
const maxStored = 4 << 20

// Stored reads tasks of a queue: as many of them as their size allows, but at least the first. It
// also returns how many bytes their messages have in Redis. The tasks have no payloads unless
// payloads is set.
func (l *Lines) Stored(ctx context.Context, queue string, entries []Entry, payloads bool) (tasks []Stored, bytes int64, err error) {
	if len(entries) == 0 {
		return nil, 0, nil
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = TaskKey(queue, e.ID)
	}
	reply, err := l.stored.Run(ctx, l.rdb, keys, flag(payloads), maxStored).Slice()
	if err == nil && (len(reply)%4 != 1 || len(reply) == 1 || len(reply) > 4*len(entries)+1) {
		err = fmt.Errorf("stored.lua: unexpected reply of %d values", len(reply))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read tasks of queue %q: %w", queue, err)
	}
	bytes, _ = reply[0].(int64)
	for i := 1; i < len(reply); i += 4 {
		var f [4]string
		for n := range f {
			f[n], _ = reply[i+n].(string)
		}
		t := Stored{State: f[0]}
		t.Wait, _ = ParseWait(f[1])
		switch {
		case f[3] != "":
			t.Err = errors.New(f[3]) // somebody has written something there that is not a task
		case t.State != "":
			t.Message, t.Err = ParseMessage(f[2])
		}
		tasks = append(tasks, t)
	}
	return tasks, bytes, nil
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// Find reads tasks by their ids, all of them, without their payloads. The entries say where each
// is: its score in the set of its state.
func (l *Lines) Find(ctx context.Context, queue string, ids []string) ([]Stored, []Entry, error) {
	entries := entriesOf(ids)
	var tasks []Stored
	for len(tasks) < len(ids) {
		part, _, err := l.Stored(ctx, queue, entries[len(tasks):], false)
		if err != nil {
			return nil, nil, err
		}
		tasks = append(tasks, part...)
	}
	scores := make([]*redis.FloatCmd, len(ids))
	_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range tasks {
			if t.State == string(Retrying) || t.State == string(Archived) {
				scores[i] = p.ZScore(ctx, Shelf(t.State).key(queue), ids[i])
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, fmt.Errorf("read tasks of queue %q: %w", queue, err)
	}
	for i := range entries {
		if scores[i] != nil {
			entries[i].Score = scores[i].Val() // 0 if it has gone from there meanwhile
		}
	}
	return tasks, entries, nil
}
