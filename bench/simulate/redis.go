package simulate

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The fake time of a call: the way there, the way back, and one core of Redis, which serves one
// call after the other. BenchmarkScriptCost of package throttle measures what scripts cost.
const (
	way        = 250 * time.Microsecond
	longScript = 57 * time.Microsecond // a script that grants permits
	eachGrant  = 3 * time.Microsecond  // besides, for each grant of its reply
	checkCost  = 15 * time.Microsecond // a check of the epoch of a limiter
)

// fakeTime is put before each script. TIME returns what the last two arguments say. The script
// does not see these arguments.
const fakeTime = `local redis = { pcall = redis.pcall, call = (function(call, time)
  ARGV[#ARGV] = nil
  ARGV[#ARGV] = nil
  return function(command, ...)
    if command == 'TIME' then return time end
    return call(command, ...)
  end
end)(redis.call, { ARGV[#ARGV - 1], ARGV[#ARGV] }) }
`

// Redis runs scripts on a redis-server at the fake time of their callers, in the order in which
// the calls came.
type Redis struct {
	calls   chan call // made outside of the bubble: the fake time stands still while somebody waits on them
	replies chan reply

	slower time.Duration // costs are multiplied by this

	mu      sync.Mutex
	scripts map[string]script // by the hash that callers know
	free    time.Time         // when the core has finished the calls that came so far
	load    Load
}

// Load is what a Redis did.
type Load struct {
	Calls   int           // of scripts that grant permits
	Checks  int           // checks of a limiter's epoch
	Busy    time.Duration // of the core
	Backlog time.Duration // the longest that a call waited for the core
}

type script struct {
	script *redis.Script
	cost   time.Duration
}

type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

type reply struct {
	value any
	err   error
}

// Serve returns a Redis whose scripts run on rdb until ctx ends. Then done is closed. It is
// called outside of the bubble in which the Redis is used.
func Serve(ctx context.Context, rdb redis.Scripter) (r *Redis, done <-chan struct{}) {
	r = &Redis{calls: make(chan call), replies: make(chan reply), scripts: map[string]script{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case c := <-r.calls:
				value, err := c.script.Run(ctx, rdb, c.keys, c.args...).Result()
				r.replies <- reply{value, err}
			case <-ctx.Done():
				return
			}
		}
	}()
	return r, ended
}

// Load returns the load since it was last called.
func (r *Redis) Load() Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	load := r.load
	r.load = Load{}
	return load
}

// run takes a call to Redis, through the core, and back.
func (r *Redis) run(s script, keys []string, args []any) (any, error) {
	time.Sleep(way)
	time.Sleep(time.Until(r.queue(s)))
	answer := r.execute(s, keys, args)
	time.Sleep(s.cost*r.slower + r.longer(grants(answer.value)) + way)
	return answer.value, answer.err
}

// grants is about how many grants the reply to a request has: two numbers each, besides some ten others.
func grants(reply any) int {
	text, _ := reply.(string)
	return max(strings.Count(text, " ")-10, 0) / 2
}

// longer keeps the core busy for the grants of a reply.
func (r *Redis) longer(grants int) time.Duration {
	more := time.Duration(grants) * eachGrant * r.slower
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = r.free.Add(more)
	r.load.Busy += more
	return more
}

// queue reserves the core for a call that has arrived, and returns when it begins.
func (r *Redis) queue(s script) time.Time {
	cost := s.cost * r.slower
	r.mu.Lock()
	defer r.mu.Unlock()
	begin := later(r.free, time.Now())
	r.free = begin.Add(cost)
	if s.cost == checkCost {
		r.load.Checks++
	} else {
		r.load.Calls++
	}
	r.load.Busy += cost
	r.load.Backlog = max(r.load.Backlog, time.Until(begin))
	return begin
}

// stall stops the core for that long.
func (r *Redis) stall(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = later(r.free, time.Now()).Add(d)
}

// execute runs a script now: no fake time passes in the meantime.
func (r *Redis) execute(s script, keys []string, args []any) reply {
	now := time.Now().UnixMicro()
	args = append(args[:len(args):len(args)], strconv.FormatInt(now/1e6, 10), strconv.FormatInt(now%1e6, 10))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls <- call{s.script, keys, args}
	return <-r.replies
}

// known returns a script by its hash.
func (r *Redis) known(hash string) (script, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.scripts[hash]
	return s, ok
}

// learn records the source of a script. Only a check adds nothing to a log.
func (r *Redis) learn(source string) script {
	s := script{redis.NewScript(fakeTime + source), checkCost}
	if strings.Contains(source, "'ZADD'") {
		s.cost = longScript
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[redis.NewScript(source).Hash()] = s
	return s
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
