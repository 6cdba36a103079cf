package throttle

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// simulatedScripts are all scripts that a Client runs, by their names in events.
var simulatedScripts = map[string]*redis.Script{
	"acquire": script.Acquire, "fast": script.Fast, "set": script.Set, "pause": script.Pause, "expire": script.Expire,
	"delete": script.Delete, "inspect": script.Inspect, "pin": script.Pin, "epoch": script.Epoch, "many": script.Many,
}

// repeatedFor is how old a request may be when it comes again. What acquire.lua gives back is
// safe from repeats of any age; fast.lua knows a batch for as long as its reply is kept.
const repeatedFor = 10 * time.Second

// simulatedProcess is one Client and its way to Redis.
type simulatedProcess struct {
	redis.Scripter // what is not overridden is not used
	s              *simulation
	no             int
	name           string
	client         *Client
	queues         []simulatedQueue
	callers        int
	way            time.Duration // one way, about
	busy           time.Time     // until then it waits for its processor when a reply comes
	faults         int           // one call in so many goes wrong; zero: none
	hears          bool          // of changes
	shares         bool          // calls, between its lines

	// Of a process whose lines are replayed:
	heeds      bool // callers make calls themselves
	knowsRedis bool
	firstCall  line.Local
	known      line.RoundTrips
	clock      line.Furthest
	lateHere   int64
	left       bool           // its Client is closed
	parts      []replayedPart // of the next shared call

	mu      sync.Mutex
	random  *rand.Rand
	held    time.Time // until then nothing gets through, in either direction
	crashed time.Time // it has been dead since
	slowest time.Duration
}

// hearing is a process that can subscribe to what is announced.
type hearing struct{ *simulatedProcess }

func (p hearing) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return p.s.rdb.Subscribe(ctx, channels...)
}

// SharesCalls is whether all limiters are on one server, as far as its Client knows.
func (p *simulatedProcess) SharesCalls() bool { return p.shares }

// message is a script call on its way.
type message struct {
	script string
	keys   []string
	args   []any
}

// changes reports whether it changes a limit.
func (m message) changes() bool {
	return slices.Contains([]string{"set", "pause", "expire", "delete"}, m.script)
}

func (p *simulatedProcess) EvalSha(_ context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	for name, script := range simulatedScripts {
		if script.Hash() == sha {
			begin := time.Now()
			reply, err := p.call(message{name, slices.Clone(keys), slices.Clone(args)})
			p.mu.Lock()
			p.slowest = max(p.slowest, time.Since(begin))
			p.mu.Unlock()
			return redis.NewCmdResult(reply, err)
		}
	}
	return redis.NewCmdResult(nil, redisError("NOSCRIPT No matching script. Please use EVAL."))
}

func (p *simulatedProcess) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	return p.EvalSha(ctx, redis.NewScript(source).Hash(), keys, args...)
}

// callFate is what the network does to one call.
type callFate int

const (
	allWell callFate = iota
	requestLost
	replyLost
	refused
	slowReply
	fates
)

// call takes a message there and back.
func (p *simulatedProcess) call(m message) (any, error) {
	ended := func() bool {
		select {
		case <-p.s.over:
			return true
		default:
			return false
		}
	}
	p.mu.Lock()
	fate, again := p.draw(ended())
	there, back := p.trip()
	lost := p.patience()
	p.mu.Unlock()
	time.Sleep(there)
	p.hold()
	switch {
	case p.dead() || fate == requestLost:
		if p.dead() {
			<-p.s.over
		} else {
			time.Sleep(lost)
		}
		return nil, io.ErrUnexpectedEOF
	case fate == refused:
		time.Sleep(back)
		return nil, redisError("LOADING Redis is loading the dataset in memory")
	}
	reply, err := p.s.execute(p, m, false)
	if again >= 0 {
		time.AfterFunc(again, func() {
			if !ended() {
				_, _ = p.s.execute(p, m, true)
			}
		})
	}
	switch fate {
	case replyLost:
		time.Sleep(lost)
		return nil, io.ErrUnexpectedEOF
	case slowReply:
		time.Sleep(lost / 4)
	}
	time.Sleep(back)
	p.hold()
	return reply, err
}

// draw is what becomes of the next call, and after how long it comes again, if that is not
// negative. At the end all goes well, so that all can end.
func (p *simulatedProcess) draw(ended bool) (fate callFate, again time.Duration) {
	again = -1
	if p.faults == 0 || ended {
		return allWell, again
	}
	if p.random.IntN(p.faults) == 0 {
		fate = callFate(p.random.IntN(int(fates)))
	}
	if p.random.IntN(2*p.faults) == 0 {
		again = time.Duration(p.random.Int64N(int64(repeatedFor)))
	}
	return fate, again
}

// patience is how long a caller still waits for the network.
func (p *simulatedProcess) patience() time.Duration {
	return time.Duration(50+p.random.IntN(3000)) * time.Millisecond
}

// late is how many permits the process counts as late.
func (p *simulatedProcess) late() int64 { return p.lateHere + p.client.Stats().Late }

// trip is how long the next call takes there, and back.
func (p *simulatedProcess) trip() (there, back time.Duration) {
	there, back = p.way+p.jitter(), p.way+p.jitter()
	if time.Now().Before(p.busy) {
		back += ms(2) + time.Duration(p.random.Int64N(int64(ms(5))))
	}
	return there, back
}

func (p *simulatedProcess) jitter() time.Duration {
	return time.Duration(p.random.Int64N(int64(p.way/4) + 1))
}

// hold lets nothing through while the process is stopped. (Its timers run on: they are inside the
// Client.)
func (p *simulatedProcess) hold() {
	p.mu.Lock()
	until := p.held
	p.mu.Unlock()
	time.Sleep(time.Until(until))
}

func (p *simulatedProcess) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.crashed.IsZero()
}

// execute runs a script. The oracle reads its logs before and after it.
func (s *simulation) execute(p *simulatedProcess, m message, repeated bool) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.SetTime(time.Now().Add(s.off))
	check(s, s.rdb.Exists(context.Background(), m.keys...).Err()) // makes Redis drop what expired
	s.count["calls"]++
	s.count[m.script]++
	if repeated {
		s.count["repeated"]++
	}
	v := s.viewBefore(p, m, repeated)
	reply, err := s.rdb.EvalSha(context.Background(), simulatedScripts[m.script].Hash(), m.keys, m.args...).Result()
	v.judge(reply, err)
	return reply, err
}

// disturb crashes a process, stops some for a while, and sets Redis's clock.
func (s *simulation) disturb(ctx context.Context, random *rand.Rand) {
	every := s.length / 3
	if s.steps {
		every = 1500 * time.Millisecond
	}
	for pass(ctx, time.Duration(random.Int64N(int64(every)))) {
		s.disturbOnce(random)
	}
}

func (s *simulation) disturbOnce(random *rand.Rand) {
	p := s.procs[random.IntN(len(s.procs))]
	if s.steps && random.IntN(2) == 0 {
		s.setClock(random)
		return
	}
	if p.faults == 0 {
		return
	}
	p.mu.Lock()
	if random.IntN(4) == 0 && len(s.procs) > 1 && p.no > 0 {
		p.crashed = time.Now()
	} else {
		p.held = time.Now().Add(time.Duration(random.Int64N(int64(2 * time.Second))))
	}
	crashed, held := !p.crashed.IsZero(), time.Until(p.held)
	p.mu.Unlock()
	s.mu.Lock()
	s.note("%s: crashed %v, stopped for %v", p.name, crashed, held)
	s.mu.Unlock()
}

// setClock sets the clock back, or, if that was done, forward to where it was.
func (s *simulation) setClock(random *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Known: if the clock was set back by less than a window, nobody notices, and setting it
	// forward again releases permits that much too early. So it stays back then. Once the clock
	// has run to where it was set back from, setting it forward sets it to where it never was,
	// and so does setting it back by less than before: that releases permits early, as
	// docs/how-it-works.md says.
	const noted = 2500 * time.Millisecond
	if s.back == 0 {
		s.back = time.Duration(random.Int64N(int64(ms(100))))
		if random.IntN(3) > 0 {
			s.back = noted + time.Duration(random.Int64N(int64([]time.Duration{3 * time.Second, time.Hour}[random.IntN(2)])))
		}
	}
	switch {
	case s.off == 0:
		s.off, s.backAt = -s.back, time.Now()
	case s.back >= noted && random.IntN(2) == 0 && time.Since(s.backAt) < s.back:
		s.off = 0
	}
	s.note("Redis's clock is off by %v", s.off)
}

// pass lets time pass, and reports false if ctx ended meanwhile.
func pass(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
