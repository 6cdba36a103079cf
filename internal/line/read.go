package line

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Length is how many tasks of a queue are in a line.
type Length struct {
	Waiting int64
	Called  int64 // on their way from the line
}

// Lengths returns the lengths of lines, for each of the queues.
func (l *Lines) Lengths(ctx context.Context, queues, names []string) (map[string][]Length, error) {
	waiting, called := make([]func() int64, len(queues)*len(names)), make([]*redis.IntCmd, len(queues)*len(names))
	if len(waiting) == 0 {
		return nil, nil
	}
	if _, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, name := range names {
			for q, queue := range queues {
				waiting[n*len(queues)+q] = length(ctx, p, queue, name)
				called[n*len(queues)+q] = p.ZCard(ctx, calledKey(queue, name))
			}
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	lengths := make(map[string][]Length, len(names))
	for n, name := range names {
		for q := range queues {
			lengths[name] = append(lengths[name], Length{waiting[n*len(queues)+q](), called[n*len(queues)+q].Val()})
		}
	}
	return lengths, nil
}

// length asks how many tasks are in a line. The returned function returns the answer.
func length(ctx context.Context, p redis.Pipeliner, queue, name string) func() int64 {
	if isShared(name) {
		limiter, _, _ := Split(name)
		n := p.HGet(ctx, tasksKey(queue), limiter)
		return func() int64 { tasks, _ := n.Int64(); return max(tasks, 0) }
	}
	n := p.ZCard(ctx, lineKey(queue, name))
	return n.Val
}

// SharedLengths returns for each of the limiters how many tasks of its tenants are in line in
// each of the queues. Where a limiter has no tenants in line, it only reads how many tenants
// there are.
func (l *Lines) SharedLengths(ctx context.Context, queues, limiters []string) (tasks [][]int64, err error) {
	tasks = make([][]int64, len(limiters))
	for i := range limiters {
		tasks[i] = make([]int64, len(queues))
	}
	if len(queues)*len(limiters) == 0 {
		return tasks, nil
	}
	tenants := make([]*redis.IntCmd, 0, len(queues)*len(limiters))
	if _, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, limiter := range limiters {
			for _, queue := range queues {
				tenants = append(tenants, p.ZCard(ctx, tenantsKey(queue, limiter)))
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for n, of := range tenants {
		if of.Val() == 0 {
			continue
		}
		i, q := n/len(queues), n%len(queues)
		if tasks[i][q], err = l.rdb.HGet(ctx, tasksKey(queues[q]), limiters[i]).Int64(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		tasks[i][q] = max(tasks[i][q], 0)
	}
	return tasks, nil
}

// scanned is how many names one round trip reads.
const scanned = 500

// Names returns the names of the lines of limiters that a queue has, or of its other lines.
func (l *Lines) Names(ctx context.Context, queue string, blocked bool) (names []string, err error) {
	key := linesKey(queue, "")
	if blocked {
		key = blockedKey(queue)
	}
	for cursor := uint64(0); ; {
		page, next, err := l.rdb.ZScan(ctx, key, cursor, "", scanned).Result()
		if err != nil {
			return nil, err
		}
		for n := 0; n < len(page); n += 2 { // each is followed by its score
			names = append(names, page[n])
		}
		if cursor = next; cursor == 0 {
			return names, nil
		}
	}
}

// Head is how a queue's part of a line begins.
type Head struct {
	Tasks int64
	Since time.Time // the first arrival of its first task; zero if there is none
}

// Heads returns the heads of lines of a queue, and Redis's time.
func (l *Lines) Heads(ctx context.Context, queue string, names []string) ([]Head, time.Time, error) {
	if len(names) == 0 {
		return nil, time.Time{}, nil
	}
	tasks, first, now := make([]func() int64, len(names)), make([]*redis.ZSliceCmd, len(names)), new(redis.TimeCmd)
	if _, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		now = p.Time(ctx)
		for i, name := range names {
			if tasks[i] = length(ctx, p, queue, name); isShared(name) {
				continue
			}
			first[i] = p.ZRangeWithScores(ctx, lineKey(queue, name), 0, 0)
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return nil, time.Time{}, err
	}
	heads := make([]Head, len(names))
	for i := range names {
		if heads[i].Tasks = tasks[i](); first[i] == nil {
			continue
		}
		if z := first[i].Val(); len(z) > 0 {
			heads[i].Since = time.UnixMicro(int64(z[0].Score))
		}
	}
	if err := l.sharedHeads(ctx, queue, names, heads); err != nil {
		return nil, time.Time{}, err
	}
	return heads, now.Val(), nil
}

// Some returns n names of the lines of limiters that a queue has, beginning with the from-th.
func (l *Lines) Some(ctx context.Context, queue string, from, n int64) ([]string, error) {
	return l.rdb.ZRange(ctx, linesKey(queue, ""), from, from+n-1).Result()
}

// First returns the first lines of limiters of each queue, at most so many of each, and how many
// lines each queue has.
func (l *Lines) First(ctx context.Context, queues []string, most int64) (names [][]string, all []int64, err error) {
	first, count := make([]*redis.StringSliceCmd, len(queues)), make([]*redis.IntCmd, len(queues))
	if _, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			first[i], count[i] = p.ZRange(ctx, linesKey(queue, ""), 0, most-1), p.ZCard(ctx, linesKey(queue, ""))
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	for i := range queues {
		names, all = append(names, first[i].Val()), append(all, count[i].Val())
	}
	return names, all, nil
}

// InLine is a task in line.
type InLine struct {
	ID    string
	Since time.Time // its first arrival, by Redis's clock
	Cost  int64
}

// Tasks returns n tasks of a queue's part of a line, beginning with the from-th.
func (l *Lines) Tasks(ctx context.Context, queue, name string, from, n int64) ([]InLine, error) {
	heads, err := l.rdb.ZRangeWithScores(ctx, lineKey(queue, name), from, from+n-1).Result()
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	tasks, waits := make([]InLine, len(heads)), make([]*redis.StringCmd, len(heads))
	_, err = l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, z := range heads {
			id, _ := z.Member.(string)
			tasks[i] = InLine{ID: id, Since: time.UnixMicro(int64(z.Score)), Cost: 1}
			waits[i] = p.HGet(ctx, TaskKey(queue, id), "jt")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	for i := range tasks {
		if w, ok := ParseWait(waits[i].Val()); ok {
			tasks[i].Cost = w.Cost
		}
	}
	return tasks, nil
}

// Of returns how a task waits; waits is false if it does not. If the task is parked, position is
// its position in the line, from 0.
func (l *Lines) Of(ctx context.Context, queue, id string) (w Wait, position int64, waits bool, err error) {
	known, err := l.rdb.HMGet(ctx, TaskKey(queue, id), "state", "jt").Result()
	if err != nil {
		return Wait{}, 0, false, err
	}
	state, _ := known[0].(string)
	text, _ := known[1].(string)
	w, ok := ParseWait(text)
	switch {
	case !ok:
		return Wait{}, 0, false, nil
	case w.State == Called && state == "pending":
		return w, 0, true, nil
	case w.State != Parked || state != "retry":
		return Wait{}, 0, false, nil
	}
	position, err = l.rdb.ZRank(ctx, lineKey(queue, w.Line), id).Result()
	score, serr := l.rdb.ZScore(ctx, retryKey(queue), id).Result()
	if errors.Is(err, redis.Nil) || errors.Is(serr, redis.Nil) || serr == nil && int64(score) != w.Score {
		return Wait{}, 0, false, nil
	}
	return w, position, err == nil && serr == nil, errors.Join(err, serr)
}

// Ranks returns the positions of tasks in their queues' parts of lines, from 0, or -1 for a task
// that is not there, and how long those parts are.
func (l *Lines) Ranks(ctx context.Context, queues, names, ids []string) (positions, lengths []int64, err error) {
	ranks, parts := make([]*redis.IntCmd, len(ids)), make([]*redis.IntCmd, len(ids))
	if len(ids) == 0 {
		return nil, nil, nil
	}
	if _, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			key := lineKey(queues[i], names[i])
			ranks[i], parts[i] = p.ZRank(ctx, key, id), p.ZCard(ctx, key)
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, err
	}
	for i := range ids {
		position := ranks[i].Val()
		if ranks[i].Err() != nil {
			position = -1
		}
		positions, lengths = append(positions, position), append(lengths, parts[i].Val())
	}
	return positions, lengths, nil
}

// Paused reports whether asynq takes no tasks from a queue.
func (l *Lines) Paused(ctx context.Context, queue string) (bool, error) {
	n, err := l.rdb.Exists(ctx, pausedKey(queue)).Result()
	return n > 0, err
}

// BlockedPart is what a queue has of a line without a limiter.
type BlockedPart struct {
	Queue string
	Name  string
	Tasks int64
}

// Blocked returns the lines without a limiter of each of the queues, at most so many of each: of
// tasks that cannot run, and of tasks that wait for a slot or for max_in_flight.
func (l *Lines) Blocked(ctx context.Context, queues []string, most int64) ([]BlockedPart, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	names := make([]*redis.StringSliceCmd, len(queues))
	if _, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			names[i] = p.ZRange(ctx, blockedKey(queue), 0, most-1)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var parts []BlockedPart
	var lengths []*redis.IntCmd
	if _, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			for _, name := range names[i].Val() {
				parts, lengths = append(parts, BlockedPart{Queue: queue, Name: name}), append(lengths, p.ZCard(ctx, lineKey(queue, name)))
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i := range parts {
		parts[i].Tasks = lengths[i].Val()
	}
	return parts, nil
}
