// Package line keeps the lines in which jobs wait for a limit, and moves jobs between them and
// asynq's queues.
//
// A job in line is in asynq's retry set, so that asynq's own tools show it and no job is lost if
// a line is lost. The retry set and the line are in the same Redis Cluster slot, and one script
// writes both together:
//
//	asynq:{QUEUE}:jt:line:NAME    zset: id -> first arrival, in microseconds after 1970
//	asynq:{QUEUE}:jt:lines        zset: limiter with a line -> when to visit it next, in milliseconds
//	asynq:{QUEUE}:jt:blocked      the same for other lines
//	asynq:{QUEUE}:jt:called:NAME  zset: "permits:id" -> when it was called, in milliseconds
//	asynq:{QUEUE}:jt:asking:NAME  zset: "permits:id" of a called task that was taken -> until when it counts
//	asynq:{QUEUE}:jt:room         set: ids of the jobs that wait in processes
//	asynq:{QUEUE}:jt:took:ID      what a server took last, for a while: see take.lua
//	asynq:{QUEUE}:jt:sorter       until when a process sorts the queue, and the process: see peek.lua
//	field jt of a task's hash     how it waits: see Wait
//	field lock                    when the lock of a unique task would have ended: see failed.lua
//	field taken                   when its attempt took it from the queue, in microseconds after 1970
//	asynq:{QUEUE}:jt:order:NAME   zset, and others: the order of tasks that need the same slot, one at a time: see first.lua
//	{LIMITER}:queues              hash: how its queues share it: see share.lua
//	{LIMITER}:queues:ID           the same for the permits that a process has for itself, by its Client.ID
//
// Tenants that share a limiter have lines of their own, but one jt:called:LIMITER and jt:asking:LIMITER: see
// tenants.go.
//
// The name of a line is that of a limiter, or begins with "!" for jobs that wait for something
// else. This package is the only owner of these keys. It decides nothing: package asynqlimit
// does.
package line

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/fair"
)

//go:embed lua
var files embed.FS

// Lines are the lines in one Redis.
type Lines struct {
	rdb                                                         redis.UniversalClient
	peek, take, park, back, due, share, bring, release, refused *redis.Script
	tenants, charge, clear                                      *redis.Script
	order, ended                                                *redis.Script // for tasks that run one at a time
	shelf, stored, pull                                         *redis.Script // for people
	adopted, unlist, retire                                     *redis.Script // for the version before this one
	failed, weigh                                               *redis.Script
}

// New returns the lines in rdb. It makes no Redis call.
func New(rdb redis.UniversalClient) *Lines {
	return &Lines{
		rdb:     rdb,
		peek:    load("peek"),
		take:    load("take"),
		park:    load("park"),
		back:    load("head", "back"),
		due:     load("due"),
		share:   load("share"),
		bring:   load("first", "head", "bring"),
		order:   load("first", "order"),
		ended:   load("first", "ended"),
		release: load("release"),
		adopted: load("adopt"),
		refused: load("refused"),
		tenants: load("tenants"),
		charge:  load("charge"),
		clear:   load("clear"),
		shelf:   load("shelf"),
		stored:  load("stored"),
		pull:    load("pull"),
		unlist:  load("unlist"),
		retire:  load("retire"),
		failed:  load("failed"),
		weigh:   redis.NewScript(fair.WeighLua),
	}
}

// load returns the script that consists of these files.
func load(names ...string) *redis.Script {
	var script []byte
	for _, name := range names {
		text, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // it is compiled in
		}
		script = append(script, text...)
	}
	return redis.NewScript(string(script))
}

// sinceText formats a first arrival for scripts.
func sinceText(us int64) string {
	if us == 0 {
		return ""
	}
	return strconv.FormatInt(us, 10)
}

// ErrNotActive says that the task is not active in asynq any more: somebody else has moved it, or
// the answer of an earlier try was lost.
var ErrNotActive = errors.New("the task is not active")

// IsNotFound reports whether one of asynq's scripts, or of this package, answered that the task
// is not active.
func IsNotFound(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasSuffix(err.Error(), "NOT FOUND")
}

const (
	// Settled is how long a task stays in line at least. asynq has to be done with the attempt
	// first, because its heartbeat knows attempts by their task. It is less than the time until
	// the first permits of a limit per second are free again, so that tasks that parked first can
	// use them.
	Settled = 500 * time.Millisecond
	// fallback is when asynq brings a task back by itself, at the earliest: when nobody has
	// visited its line for a day. The tasks of a line are spread over one more hour, so that they
	// do not all come at once.
	fallback       = 24 * time.Hour
	fallbackSpread = time.Hour
	// lockLasts is how long at least the lock of a unique task in line lasts.
	lockLasts = fallback + fallbackSpread
)

// Parking is how a task parks.
type Parking struct {
	Line    string        // empty: the task waits alone, and asynq brings it back
	Away    time.Duration // for how long the task waits alone
	Since   int64         // its first arrival, or 0 for now
	Cost    int64
	Refused int64
	By      string // which take the attempt is, or how Peek saw the task: if it has moved on since, it is left alone; empty: any
	Untried bool   // it has not asked for anything: it queues behind the tasks in line
	AtOnce  bool   // asynq never had the task: the task may be called at once
}

// ToPark is a task that parks.
type ToPark struct {
	ID      string
	Message any // with the reason why the task waits; nil: its message stays as it is
	How     Parking
}

// Park puts an active task in line.
func (l *Lines) Park(ctx context.Context, queue string, task ToPark) error {
	parked, err := l.ParkAll(ctx, queue, []ToPark{task})
	if err == nil && !parked[0] {
		return ErrNotActive
	}
	return err
}

// ParkAll puts active tasks of a queue in line, in one step, and returns for each whether it did.
// Tasks that are not active any more are left alone.
func (l *Lines) ParkAll(ctx context.Context, queue string, tasks []ToPark) ([]bool, error) {
	return l.parkFrom(ctx, queue, "active", tasks)
}

// ParkPending does so for tasks that nobody has taken from their queue. Tasks that have moved
// since Peek returned them are left alone.
func (l *Lines) ParkPending(ctx context.Context, queue string, tasks []ToPark) ([]bool, error) {
	return l.parkFrom(ctx, queue, "pending", tasks)
}

func (l *Lines) parkFrom(ctx context.Context, queue, from string, tasks []ToPark) ([]bool, error) {
	args := []any{queuePrefix(queue), lockLasts.Milliseconds(), from}
	for _, t := range tasks {
		p, after := t.How, fallbackOf(t.ID)
		if p.Line == "" {
			after = p.Away.Seconds()
		}
		stays := Settled.Milliseconds()
		if p.AtOnce {
			stays = 0
		}
		message := t.Message
		if message == nil {
			message = ""
		}
		args = append(args, t.ID, message, sinceText(p.Since), max(p.Cost, 1), p.Refused, p.Line, after, stays, p.By)
	}
	keys := []string{queuePrefix(queue) + from, leaseKey(queue), retryKey(queue), roomKey(queue)}
	reply, err := l.park.Run(ctx, l.rdb, keys, args...).Int64Slice()
	if err == nil && len(reply) != len(tasks) {
		err = fmt.Errorf("park.lua: %d values for %d tasks", len(reply), len(tasks))
	}
	parked := make([]bool, len(reply))
	for i, n := range reply {
		parked[i] = n == 1
	}
	return parked, err
}

// Failed notes that asynq retries or archives a task because it has failed. The lock of a unique task that is
// archived lasts as long as it did before the task parked. If the task was not refused by its API this time, its
// earlier refusals do not count any more.
func (l *Lines) Failed(ctx context.Context, queue, id string, refused bool) error {
	return l.failed.Run(ctx, l.rdb, []string{TaskKey(queue, id)}, id, !refused).Err()
}

// fallbackOf is the number of seconds after which asynq brings a task back by itself.
func fallbackOf(id string) float64 {
	return fallback.Seconds() + float64(spread(id, uint32(fallbackSpread/time.Second)))
}

// GiveBack puts an active task that only waited back at the head of its queue.
func (l *Lines) GiveBack(ctx context.Context, queue, id string, p Parking) error {
	back, err := l.giveBack(ctx, queue, "", []string{id}, []Parking{p})
	if err == nil && back[0] < 0 {
		return ErrNotActive
	}
	return err
}

// GiveBackAll does so for tasks of one queue. Tasks that are not active any more are left alone.
func (l *Lines) GiveBackAll(ctx context.Context, queue string, ids []string, parkings []Parking) error {
	_, err := l.giveBack(ctx, queue, "", ids, parkings)
	return err
}

// GiveBackListed does so for a task whose lease has lapsed, if the room lists the task, and
// reports whether it did. If the lease has not lapsed, somebody else has given the task back and
// it was taken again: then the error is ErrNotActive.
func (l *Lines) GiveBackListed(ctx context.Context, queue, id string) (bool, error) {
	back, err := l.giveBack(ctx, queue, "listed", []string{id}, []Parking{{}})
	if err == nil && back[0] < 0 {
		return false, ErrNotActive
	}
	return err == nil && back[0] == 1, err
}

func (l *Lines) giveBack(ctx context.Context, queue, which string, ids []string, parkings []Parking) ([]int64, error) {
	keys := []string{activeKey(queue), leaseKey(queue), pendingKey(queue), roomKey(queue)}
	args := []any{queuePrefix(queue), which}
	for i, p := range parkings {
		state := Back
		if p.Untried {
			state = Untried
		}
		args = append(args, ids[i], p.By, string(state), sinceText(p.Since), max(p.Cost, 1), p.Refused, p.Line)
	}
	back, err := l.back.Run(ctx, l.rdb, keys, args...).Int64Slice()
	if err == nil && len(back) != len(ids) {
		err = fmt.Errorf("back.lua: %d values for %d tasks", len(back), len(ids))
	}
	return back, err
}

// Listed are changes of the list of tasks that wait in processes: ids of tasks.
type Listed struct{ Enter, Leave []string }

// List changes the list of a queue.
func (l *Lines) List(ctx context.Context, queue string, c Listed) error {
	if len(c.Enter) == 0 {
		return l.rdb.SRem(ctx, roomKey(queue), anys(c.Leave)...).Err()
	}
	_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, roomKey(queue), anys(c.Enter)...)
		if len(c.Leave) > 0 {
			p.SRem(ctx, roomKey(queue), anys(c.Leave)...)
		}
		return nil
	})
	return err
}

func anys(ids []string) []any {
	out := make([]any, len(ids))
	for i, id := range ids {
		out[i] = id
	}
	return out
}
