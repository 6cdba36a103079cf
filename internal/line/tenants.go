package line

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tenants that share a limiter have lines of their own:
//
//	asynq:{QUEUE}:jt:line:LIMITER<tab>TENANT  zset: as any line
//	asynq:{QUEUE}:jt:tenants:LIMITER          zset: tenant -> start tag: see tenants.lua
//	asynq:{QUEUE}:jt:tasks                    hash: limiter -> tasks of all tenants
//	{LIMITER}:finish                          zset: tenant -> finish tag: see charge.lua
//	{LIMITER}:finish:QUEUE                    the same in a queue
//	{LIMITER}:weights                         hash: tenant -> weight, where an operator has given it one
//
// The limiter's own line is LIMITER<tab>. It has that name wherever a line is named, for example
// in asynq:{QUEUE}:jt:lines. Neither limiters nor tenants have tabs in their names. A worker of a
// version that does not know tenants takes it for an empty line, and removes it from there: see
// Due.

// tenantSep ends the name of a limiter in the name of a line of tenants.
const tenantSep = "\t"

// SharedBy returns the name of the line of a limiter that tenants share.
func SharedBy(limiter string) string { return limiter + tenantSep }

// OfTenant returns the name of the line of one tenant.
func OfTenant(limiter, tenant string) string { return limiter + tenantSep + tenant }

// Split returns what the name of a line says: the limiter, and whether tenants share it. tenant
// is empty in the name of the line of all tenants.
func Split(name string) (limiter, tenant string, shared bool) { return strings.Cut(name, tenantSep) }

// Whole returns the name of the line that a line is part of: for the line of one tenant, that of
// all tenants.
func Whole(name string) string {
	limiter, _, shared := Split(name)
	if shared {
		return SharedBy(limiter)
	}
	return name
}

func tenantsKey(queue, limiter string) string { return queuePrefix(queue) + "jt:tenants:" + limiter }
func tasksKey(queue string) string            { return queuePrefix(queue) + "jt:tasks" }

// ofLimiter is a key in a limiter's own Cluster slot. A name with a hash tag is its own prefix.
func ofLimiter(limiter, what string) string {
	if strings.Contains(limiter, "{") {
		return limiter + ":" + what
	}
	return "{" + limiter + "}:" + what
}

// Tenant is a tenant that has tasks of a queue in line.
type Tenant struct {
	Name  string
	Start float64 // the start tag as it was when its tasks were called last: never above what it is now
	Tasks int64
	Cost  int64 // of the first task
	Since int64 // first arrival of the first task, by Redis's clock, in microseconds after 1970
}

// Waiting are the tenants that have tasks of a queue in line for a limiter.
type Waiting struct {
	All   int64 // how many tenants
	First []Tenant
}

// TenantsOf asks for the tenants of a limiter that have tasks of a queue in line.
type TenantsOf struct {
	Queue, Limiter string
	Most           int
}

// Tenants returns those tenants. It returns none where the error concerns them.
func (l *Lines) Tenants(ctx context.Context, of []TenantsOf) ([]Waiting, error) {
	calls := make([]call, len(of))
	for i, o := range of {
		calls[i] = call{[]string{tenantsKey(o.Queue, o.Limiter)}, []any{queuePrefix(o.Queue), o.Limiter, o.Most}}
	}
	replies, err := l.all(ctx, l.tenants, calls)
	out := make([]Waiting, len(of))
	for i, reply := range replies {
		if reply == nil {
			continue
		}
		r := reader{reply: reply}
		w := Waiting{All: r.int()}
		for r.more() {
			t := Tenant{Name: r.text(), Start: r.float(), Tasks: r.int(), Cost: r.int()}
			t.Since, _ = strconv.ParseInt(r.text(), 10, 64)
			w.First = append(w.First, t)
		}
		if failed := r.failed("tenants.lua"); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		out[i] = w
	}
	return out, err
}

const (
	// clearTenants and clearTasks are how many tenants and tasks at most one call sees that clears a line.
	clearTenants, clearTasks = 500, 1000
)

// ClearGone removes tasks that somebody has deleted, archived or run by hand from the line that tenants share,
// as far as they would be called next, and tenants without tasks. It does so for some of them, and reports
// whether there may be more.
func (l *Lines) ClearGone(ctx context.Context, queue, limiter string) (more bool, err error) {
	keys := []string{tenantsKey(queue, limiter), tasksKey(queue), retryKey(queue), linesKey(queue, "")}
	return l.clear.Run(ctx, l.rdb, keys, queuePrefix(queue), limiter, clearTenants, clearTasks).Bool()
}

// float reads a finite number that Redis writes as text.
func (r *reader) float() float64 {
	x, err := strconv.ParseFloat(r.text(), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// Tags are how much tenants of a limiter have got, in the order in which they were asked for.
type Tags struct {
	V       float64   // the virtual time; negative if it is not known
	Finish  []float64 // 0 where it is not known: then it is not above V
	Weights []float64 // given by operators; 0: none
}

// finishKey is where the tags of tenants of a limiter are: in a queue, or without one those of programs.
func finishKey(limiter, queue string) string {
	if queue == "" {
		return ofLimiter(limiter, "finish")
	}
	return ofLimiter(limiter, "finish:"+queue)
}

// Tags returns the tags of tenants of limiters, each as they are in a queue, or without one (queues is nil)
// as they are for programs. If somebody has overwritten the keys of a limiter, its tags are not known; Charge
// returns the error.
func (l *Lines) Tags(ctx context.Context, queues, limiters []string, tenants [][]string) ([]Tags, error) {
	finish, weights := make([]*redis.Cmd, len(limiters)), make([]*redis.SliceCmd, len(limiters))
	_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, limiter := range limiters {
			queue := ""
			if queues != nil {
				queue = queues[i]
			}
			args := []any{"ZMSCORE", finishKey(limiter, queue), ""}
			for _, t := range tenants[i] {
				args = append(args, t)
			}
			finish[i] = p.Do(ctx, args...)
			weights[i] = p.HMGet(ctx, ofLimiter(limiter, "weights"), append([]string{""}, tenants[i]...)...)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, fmt.Errorf("read how tenants share: %w", err)
	}
	out := make([]Tags, len(limiters))
	for i := range limiters {
		scores, _ := finish[i].Slice()
		given := weights[i].Val()
		t := Tags{V: -1, Finish: make([]float64, len(tenants[i])), Weights: make([]float64, len(tenants[i]))}
		if redis.HasErrorPrefix(finish[i].Err(), "WRONGTYPE") || redis.HasErrorPrefix(weights[i].Err(), "WRONGTYPE") {
			out[i] = t
			continue
		}
		if len(scores) != len(tenants[i])+1 || len(given) != len(scores) {
			return nil, fmt.Errorf("read how tenants share limiter %q: %d tags and %d weights of %d tenants", limiters[i], len(scores), len(given), len(tenants[i]))
		}
		if v, ok := number(scores[0]); ok {
			t.V = max(v, 0)
		}
		for n := range tenants[i] {
			t.Finish[n], _ = number(scores[n+1])
			if w, ok := number(given[n+1]); ok && w > 0 {
				t.Weights[n] = w
			}
		}
		out[i] = t
	}
	return out, nil
}

// number reads a finite number from a reply.
func number(x any) (float64, bool) {
	var f float64
	switch x := x.(type) {
	case float64:
		f = x
	case string:
		var err error
		if f, err = strconv.ParseFloat(x, 64); err != nil {
			return 0, false
		}
	default:
		return 0, false
	}
	return f, !math.IsNaN(f) && !math.IsInf(f, 0)
}

// Charge is what tenants of a limiter have got in a queue.
type Charge struct {
	Limiter string
	Queue   string  // empty: in programs
	V       float64 // the virtual time is at least this; negative leaves it as it is
	Empty   bool    // no task of the queue is in line any more
	Tenants []Charged
}

// Charged is what one tenant has got.
type Charged struct {
	Name    string
	Permits int64   // negative: given back
	Weight  float64 // in the configuration
	Ahead   int64   // permits by which this puts its tags in other queues ahead of the virtual time there at most
}

// Charge notes what tenants have got.
func (l *Lines) Charge(ctx context.Context, of []Charge) error {
	calls := make([]call, len(of))
	for i, c := range of {
		v := ""
		if c.V >= 0 {
			v = floatText(c.V)
		}
		args := []any{c.Queue, v, c.Empty, ofLimiter(c.Limiter, "finish:"), ofLimiter(c.Limiter, "finish")}
		for _, t := range c.Tenants {
			args = append(args, t.Name, t.Permits, floatText(t.Weight), t.Ahead)
		}
		calls[i] = call{[]string{finishKey(c.Limiter, c.Queue), ofLimiter(c.Limiter, "weights"), ofLimiter(c.Limiter, "queues")}, args}
	}
	_, err := l.all(ctx, l.charge, calls)
	return err
}

func floatText(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }

// isShared reports whether a line is that of all tenants of a limiter.
func isShared(name string) bool {
	_, tenant, shared := Split(name)
	return shared && tenant == ""
}

// maxHeads is how many tenants' first tasks are read to find the oldest task: those of the
// tenants that are called next.
const maxHeads = 100

// sharedHeads adds the first arrivals of lines that tenants share.
func (l *Lines) sharedHeads(ctx context.Context, queue string, names []string, heads []Head) error {
	var of []TenantsOf
	var at []int
	for i, name := range names {
		if limiter, _, _ := Split(name); isShared(name) && heads[i].Tasks > 0 {
			of, at = append(of, TenantsOf{Queue: queue, Limiter: limiter, Most: maxHeads}), append(at, i)
		}
	}
	if len(of) == 0 {
		return nil
	}
	waiting, err := l.Tenants(ctx, of)
	for n, w := range waiting {
		for _, t := range w.First {
			if since := time.UnixMicro(t.Since); t.Since > 0 && (heads[at[n]].Since.IsZero() || since.Before(heads[at[n]].Since)) {
				heads[at[n]].Since = since
			}
		}
	}
	return err
}

// SetWeight gives a tenant of a limiter a weight; 0 removes the weight that it was given. before is the weight that
// the tenant had until now, unless Redis knows another. The permits that the tenant has got count as if it had had
// the new weight. So it does not first wait as long as the old weight demands.
func (l *Lines) SetWeight(ctx context.Context, limiter, tenant string, weight, before float64) error {
	if weight == 0 {
		return l.rdb.HDel(ctx, ofLimiter(limiter, "weights"), tenant).Err()
	}
	keys := []string{ofLimiter(limiter, "weights"), ofLimiter(limiter, "finish"), ofLimiter(limiter, "queues")}
	return l.weigh.Run(ctx, l.rdb, keys, tenant, floatText(weight), floatText(before), ofLimiter(limiter, "finish:")).Err()
}

// Weights returns the weights that were given to tenants of a limiter.
func (l *Lines) Weights(ctx context.Context, limiter string) (map[string]float64, error) {
	given, err := l.rdb.HGetAll(ctx, ofLimiter(limiter, "weights")).Result()
	weights := make(map[string]float64, len(given))
	for tenant, text := range given {
		if w, ok := number(text); ok && w > 0 {
			weights[tenant] = w
		}
	}
	return weights, err
}

// ForgetShares forgets what tenants of a limiter have got, and which weights they were given.
func (l *Lines) ForgetShares(ctx context.Context, limiter string) error {
	keys := []string{ofLimiter(limiter, "finish"), ofLimiter(limiter, "weights")}
	for _, queue := range l.rdb.HKeys(ctx, ofLimiter(limiter, "queues")).Val() { // those of others expire
		if queue != "" {
			keys = append(keys, finishKey(limiter, queue))
		}
	}
	return l.rdb.Del(ctx, keys...).Err()
}
