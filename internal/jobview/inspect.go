package jobview

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/history"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// inspectPage is how many entries of a line, or lines, one round trip reads.
const inspectPage = 500

// Inspector reads which tasks wait for which limit, for the whole fleet: what the dashboard and
// the command throttle show. It changes something only in methods that say so. Its methods may
// be called concurrently.
type Inspector struct {
	rdb   redis.UniversalClient
	lines *line.Lines
	fleet *operate.Fleet
	past  *history.Reader

	weight func(limiter, tenant string) float64 // in the configuration; nil: 1
}

// NewInspector returns an Inspector of what is in rdb. The caller still has to close rdb.
func NewInspector(rdb redis.UniversalClient) *Inspector {
	return &Inspector{rdb: rdb, lines: line.New(rdb), fleet: operate.NewFleet(rdb), past: history.NewReader(rdb)}
}

// Past returns what the fleet did in the last hour.
func (i *Inspector) Past(ctx context.Context) (history.Past, error) {
	past, err := i.past.Read(ctx)
	if err != nil {
		return past, fmt.Errorf("read the last hour: %w", err)
	}
	return past, nil
}

// Line is how many tasks are parked for a limiter.
type Line struct {
	Limiter string
	Parked  int64 // in line
	Called  int64 // called back to their queues because permits come due, and not there yet
}

// Lines returns the limiters that have tasks parked, by name.
func (i *Inspector) Lines(ctx context.Context) ([]Line, error) {
	names, err := i.lined(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := i.LinesOf(ctx, names...)
	return slices.DeleteFunc(lines, func(l Line) bool { return l.Parked+l.Called == 0 }), err
}

// LinesOf returns the lines of limiters, in the order of the names given. A limiter without
// parked tasks has an empty line.
func (i *Inspector) LinesOf(ctx context.Context, limiters ...string) ([]Line, error) {
	wrap := func(err error) error { return fmt.Errorf("read the lines of parked tasks: %w", err) }
	queues, err := i.Queues(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	lines := make([]Line, 0, len(limiters))
	for page := range slices.Chunk(limiters, inspectPage) {
		lengths, err := i.lines.Lengths(ctx, queues, page)
		if err != nil {
			return nil, wrap(err)
		}
		shared, err := i.lines.SharedLengths(ctx, queues, page)
		if err != nil {
			return nil, wrap(err)
		}
		for p, name := range page {
			l := Line{Limiter: name}
			for _, n := range lengths[name] {
				l.Parked, l.Called = l.Parked+n.Waiting, l.Called+n.Called
			}
			for _, n := range shared[p] {
				l.Parked += n
			}
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// Queues returns the queues in which a job was ever enqueued, by name.
func (i *Inspector) Queues(ctx context.Context) ([]string, error) {
	queues, err := i.asynqWithin(ctx).Queues()
	if err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	slices.Sort(queues)
	return queues, nil
}

// lined returns the names of the limiters that may have tasks in line.
func (i *Inspector) lined(ctx context.Context) ([]string, error) {
	queues, err := i.Queues(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, queue := range queues {
		page, err := i.lines.Names(ctx, queue, false)
		if err != nil {
			return nil, fmt.Errorf("read the lines of queue %q: %w", queue, err)
		}
		for _, name := range page {
			limiter, _, _ := line.Split(name)
			names = append(names, limiter)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil // a scan may return a name twice
}

// ParkedTask is a task in line for a limiter.
type ParkedTask struct {
	Queue   string
	ID      string
	Permits int64     // what it costs
	Since   time.Time // when it first parked for this limiter, by Redis's clock
}

// Parked returns tasks in the lines of a limiter, over all queues, in the order in which they
// will be called: at most n of them, from the given position on, which counts from 0. Tasks of
// queues that no worker serves come last.
func (i *Inspector) Parked(ctx context.Context, limiter string, from, n int64) ([]ParkedTask, error) {
	if n < 1 || from < 0 {
		return nil, nil
	}
	wrap := func(err error) error { return fmt.Errorf("read the line of limiter %q: %w", limiter, err) }
	queues, err := i.Queues(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	parts, err := i.lines.Parts(ctx, limiter, queues)
	if err != nil {
		return nil, wrap(err)
	}
	order := line.Order(parts, from, n)
	tasks := make([]ParkedTask, len(order))
	first, last := map[int]int64{}, map[int]int64{} // of each part
	for _, s := range order {
		if _, ok := first[s.Part]; !ok {
			first[s.Part] = s.At
		}
		last[s.Part] = s.At
	}
	found := map[int][]line.InLine{}
	for p := range first {
		if found[p], err = i.tasks(ctx, parts[p].Queue, limiter, first[p], last[p]-first[p]+1); err != nil {
			return nil, wrap(err)
		}
	}
	n = 0
	for _, s := range order {
		if at := s.At - first[s.Part]; at < int64(len(found[s.Part])) {
			t := found[s.Part][at]
			tasks[n] = ParkedTask{Queue: parts[s.Part].Queue, ID: t.ID, Permits: t.Cost, Since: t.Since}
			n++
		}
	}
	return tasks[:n], nil
}

// ahead is how many tasks will be called before one that is in line, at a position of its
// queue's part.
func (i *Inspector) ahead(ctx context.Context, limiter, queue string, position int64) (int64, error) {
	queues, err := i.Queues(ctx)
	if err != nil {
		return 0, err
	}
	parts, err := i.lines.Parts(ctx, limiter, queues)
	if err != nil {
		return 0, err
	}
	part := slices.IndexFunc(parts, func(p line.Part) bool { return p.Queue == queue })
	if part < 0 {
		return position, nil
	}
	return line.Before(parts, line.Position{Part: part, At: position}), nil
}

// Release returns all waiting tasks to their queues, whatever they wait for, and returns how
// many. They ask their limits again. It is for users who go back to a version that does not
// know these lines.
func (i *Inspector) Release(ctx context.Context) (released int64, err error) {
	queues, err := i.Queues(ctx)
	if err != nil {
		return 0, err
	}
	for _, queue := range queues {
		for _, blocked := range []bool{false, true} {
			names, err := i.lines.Names(ctx, queue, blocked)
			if err != nil {
				return released, fmt.Errorf("read the lines of queue %q: %w", queue, err)
			}
			for _, name := range names {
				n, err := i.lines.Release(ctx, queue, name)
				if released += n; err != nil {
					return released, err
				}
			}
		}
	}
	return released, nil
}
