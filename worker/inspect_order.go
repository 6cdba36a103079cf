package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// queueLine is the line of one queue for a limiter, as it stood when it was
// read. The version before this one had one line for all queues.
type queueLine struct {
	key   string
	tasks int64
	shift float64 // to be added to its places to compare them with those of other queues
	idle  bool    // nobody runs the queue
}

// below is the argument of ZCOUNT for the tasks that come before a place among all lines.
func (l queueLine) below(place float64) string {
	return "(" + strconv.FormatFloat(place-l.shift, 'g', 17, 64)
}

// queueLines returns the lines of each of the limiters that have tasks.
func (i *Inspector) queueLines(ctx context.Context, limiters ...string) ([][]queueLine, error) {
	now, err := i.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	clocks := make([]*redis.MapStringStringCmd, len(limiters))
	if _, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, name := range limiters {
			clocks[n] = p.HGetAll(ctx, keysOf(name).clock)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	lines := make([][]queueLine, len(limiters))
	lengths := make([][]*redis.IntCmd, len(limiters))
	if _, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, name := range limiters {
			k := keysOf(name)
			lines[n] = append(linesOfClock(clocks[n].Val(), k.lines, now.UnixMilli()), queueLine{key: k.old.line})
			for _, l := range lines[n] {
				lengths[n] = append(lengths[n], p.ZCard(ctx, l.key))
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for n := range lines {
		for m := range lines[n] {
			lines[n][m].tasks = lengths[n][m].Val()
		}
		lines[n] = slices.DeleteFunc(lines[n], func(l queueLine) bool { return l.tasks == 0 })
	}
	return lines, nil
}

// linesOfClock returns the lines that the clock of a limiter knows: see park.lua.
func linesOfClock(clock map[string]string, prefix string, nowMs int64) (lines []queueLine) {
	for _, field := range sortedKeys(clock) {
		queue, ok := strings.CutPrefix(field, "last:")
		if !ok {
			continue
		}
		l := queueLine{key: prefix + queue}
		l.shift, _ = strconv.ParseFloat(clock["shift:"+queue], 64)
		looked, _ := strconv.ParseInt(clock["looked:"+queue], 10, 64)
		l.idle = nowMs-looked > absence.Milliseconds()
		lines = append(lines, l)
	}
	return lines
}

// inOrder returns the names of at most n tasks of lines, in the order in which
// they will be called, from a position on. Those that nobody runs come last.
func (i *Inspector) inOrder(ctx context.Context, lines []queueLine, from, n int64) (names []string, err error) {
	for _, idle := range []bool{false, true} {
		var group []queueLine
		var tasks int64
		for _, l := range lines {
			if l.idle == idle {
				group, tasks = append(group, l), tasks+l.tasks
			}
		}
		if from >= tasks {
			from -= tasks
			continue
		}
		more, err := i.merged(ctx, group, from, n)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
		if n -= int64(len(more)); n <= 0 {
			break
		}
		from = 0
	}
	return names, nil
}

// merged returns the names of at most n tasks of lines by their places, from a position on.
func (i *Inspector) merged(ctx context.Context, lines []queueLine, from, n int64) ([]string, error) {
	skip, err := i.skip(ctx, lines, from)
	if err != nil {
		return nil, err
	}
	for _, s := range skip {
		from -= s
	}
	parts := make([]*redis.ZSliceCmd, len(lines))
	if _, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for m, l := range lines {
			parts[m] = p.ZRangeWithScores(ctx, l.key, skip[m], skip[m]+from+n-1)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var all []redis.Z
	for m, l := range lines {
		for _, z := range parts[m].Val() {
			all = append(all, redis.Z{Score: z.Score + l.shift, Member: z.Member})
		}
	}
	slices.SortStableFunc(all, func(a, b redis.Z) int { return cmp.Compare(a.Score, b.Score) })
	all = all[min(from, int64(len(all))):]
	all = all[:min(n, int64(len(all)))]
	names := make([]string, len(all))
	for m, z := range all {
		names[m] = fmt.Sprint(z.Member)
	}
	return names, nil
}

// skip returns how many tasks of each line come before a position, give or take
// a page: never more than that, and less by a page at most unless many have one place.
func (i *Inspector) skip(ctx context.Context, lines []queueLine, from int64) ([]int64, error) {
	skip := make([]int64, len(lines))
	if len(lines) == 1 {
		skip[0] = from
		return skip, nil
	}
	if from <= inspectPage {
		return skip, nil
	}
	lo, hi, err := i.ends(ctx, lines)
	if err != nil {
		return nil, err
	}
	for range 64 {
		middle := lo + (hi-lo)/2
		counts, sum, err := i.before(ctx, lines, middle)
		if err != nil {
			return nil, err
		}
		if sum > from {
			hi = middle
			continue
		}
		lo, skip = middle, counts
		if from-sum <= inspectPage {
			break
		}
	}
	return skip, nil
}

// ends are the first and the last place of lines that have tasks.
func (i *Inspector) ends(ctx context.Context, lines []queueLine) (first, last float64, err error) {
	heads, tails := make([]*redis.ZSliceCmd, len(lines)), make([]*redis.ZSliceCmd, len(lines))
	if _, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for m, l := range lines {
			heads[m], tails[m] = p.ZRangeWithScores(ctx, l.key, 0, 0), p.ZRangeWithScores(ctx, l.key, -1, -1)
		}
		return nil
	}); err != nil {
		return 0, 0, err
	}
	first, last = math.Inf(1), math.Inf(-1)
	for m, l := range lines {
		for _, z := range heads[m].Val() {
			first = min(first, z.Score+l.shift)
		}
		for _, z := range tails[m].Val() {
			last = max(last, z.Score+l.shift)
		}
	}
	return first, last, nil
}

// before returns how many tasks of each line come before a place, and of all.
func (i *Inspector) before(ctx context.Context, lines []queueLine, place float64) (counts []int64, sum int64, err error) {
	replies := make([]*redis.IntCmd, len(lines))
	if _, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for m, l := range lines {
			replies[m] = p.ZCount(ctx, l.key, "-inf", l.below(place))
		}
		return nil
	}); err != nil {
		return nil, 0, err
	}
	for _, r := range replies {
		counts, sum = append(counts, r.Val()), sum+r.Val()
	}
	return counts, sum, nil
}

// ahead is how many tasks will be called before one that is in line.
func (i *Inspector) ahead(ctx context.Context, limiter, queue, member string) (int64, error) {
	found, err := i.queueLines(ctx, limiter)
	if err != nil {
		return 0, err
	}
	k := keysOf(limiter)
	for _, own := range found[0] {
		if own.key != k.line(queue) && own.key != k.old.line {
			continue
		}
		place, err := i.rdb.ZScore(ctx, own.key, member).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return 0, err
		}
		var ahead int64
		var beside []queueLine
		for _, l := range found[0] {
			switch {
			case l.idle == own.idle:
				beside = append(beside, l)
			case own.idle: // the others come first
				ahead += l.tasks
			}
		}
		_, sum, err := i.before(ctx, beside, place+own.shift)
		return ahead + sum, err
	}
	return 0, nil // called meanwhile
}
