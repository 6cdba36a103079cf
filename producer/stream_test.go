package producer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
)

// pendingIDs returns the ids of a queue's pending tasks, next first.
func pendingIDs(t *testing.T, rdb redis.UniversalClient, queue string) []string {
	t.Helper()
	ids, err := rdb.LRange(t.Context(), "asynq:{"+queue+"}:pending", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(ids)
	return ids
}

// tally counts the events of a Stream. It may be read after Close.
type tally struct {
	lines        []int
	there        int
	firstOutages chan error // room for the first
}

func newTally() *tally { return &tally{firstOutages: make(chan error, 1)} }

func (c *tally) events() producer.StreamEvents {
	return producer.StreamEvents{
		Done: func(r producer.Result) {
			c.lines = append(c.lines, r.Line)
			if r.Err != nil {
				c.there++
			}
		},
		Outage: func(err error) {
			select {
			case c.firstOutages <- err:
			default:
			}
		},
	}
}

// inOrder checks that lines 1 to n were reported, each once and in order.
func (c *tally) inOrder(t *testing.T, n int) {
	t.Helper()
	if len(c.lines) != n {
		t.Errorf("%d lines reported, want %d", len(c.lines), n)
	}
	for i, line := range c.lines {
		if line != i+1 {
			t.Fatalf("report %d is of line %d", i+1, line)
		}
	}
}

func jobID(line int) string { return fmt.Sprintf("job-%05d", line) }

func TestStreamKeepsOrder(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	counted := newTally()
	s := producer.New(rdb).Stream(t.Context(), counted.events())
	const n = 2000
	var want [2][]string
	for line := 1; line <= n; line++ {
		job := producer.Job{Type: "a", ID: jobID(line), Queue: fmt.Sprint("q", line%2)}
		want[line%2] = append(want[line%2], job.ID)
		if err := s.Add(line, job); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	counted.inOrder(t, n)
	for q, ids := range want {
		if got := pendingIDs(t, rdb, fmt.Sprint("q", q)); !slices.Equal(got, ids) {
			t.Errorf("queue q%d has another order", q)
		}
	}
	if queues, err := asynq.NewInspectorFromRedisClient(rdb).Queues(); err != nil || len(queues) != 2 {
		t.Errorf("asynq knows the queues %v, %v", queues, err)
	}
}

// TestStreamKeepsOrderOfSeveralScripts: Redis knows asynq's script for most jobs, and not the one for unique ones. Then it
// forgets both.
func TestStreamKeepsOrderOfSeveralScripts(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	p := producer.New(rdb)
	if _, err := p.Enqueue(t.Context(), producer.Job{Type: "a", ID: "first"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"first"}
	for round := range 2 {
		s := p.Stream(t.Context(), producer.StreamEvents{Done: func(r producer.Result) {
			if r.Err != nil {
				t.Error(r.Err)
			}
		}, Outage: func(err error) { t.Error(err) }})
		for i := range 200 {
			job := producer.Job{Type: "a", ID: fmt.Sprintf("%d-%d", round, i), Payload: []byte(strconv.Itoa(i))}
			if i%2 == 1 {
				job.UniqueFor, job.Payload = time.Minute, []byte(job.ID)
			}
			if err := s.Add(i+1, job); err != nil {
				t.Fatal(err)
			}
			want = append(want, job.ID)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := pendingIDs(t, rdb, "default"); !slices.Equal(got, want) {
		t.Errorf("pending %v", got)
	}
}

// TestStreamIsClosed: a job that is added after Close is refused, and not lost without a word.
func TestStreamIsClosed(t *testing.T) {
	s := producer.New(connect(t, redistest.Start(t))).Stream(t.Context(), producer.StreamEvents{Done: func(producer.Result) {}, Outage: func(error) {}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 300 { // more than wait at a time
		if err := s.Add(1, producer.Job{Type: "a"}); !errors.Is(err, producer.ErrStreamClosed) {
			t.Fatal(err)
		}
	}
}

func TestStreamTellsWhatIsThere(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	counted := newTally()
	s := producer.New(rdb).Stream(t.Context(), counted.events())
	for line, job := range []producer.Job{
		{Type: "a", ID: "x"},
		{Type: "a", ID: "x"},
		{Type: "a", UniqueFor: time.Minute},
		{Type: "a", UniqueFor: time.Minute},
		{Type: "a", ID: "later", ProcessIn: time.Hour},
		{Type: "a", ID: "later", ProcessIn: time.Hour, UniqueFor: time.Minute, Payload: []byte("1")},
	} {
		if err := s.Add(line+1, job); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Add(7, producer.Job{}); !errors.Is(err, producer.ErrInvalidJob) {
		t.Errorf("an invalid job gave %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	counted.inOrder(t, 6)
	if counted.there != 3 {
		t.Errorf("%d were there, want 3", counted.there)
	}
}

// losses are connections that lose every third reply to scripts: Redis has run them, and the connection breaks.
type losses struct{ scripts, lost atomic.Int64 }

func (l *losses) client(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &lossyConn{Conn: conn, losses: l}, err
	}})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

type lossyConn struct {
	net.Conn
	*losses
	asked bool // for scripts, since the latest read
}

func (c *lossyConn) Write(p []byte) (int, error) {
	c.asked = c.asked || bytes.Contains(p, []byte("eval"))
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.asked && c.scripts.Add(1)%3 == 0 {
		c.lost.Add(1)
		c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	c.asked = false
	return n, err
}

func TestStreamDoublesNothingWhenRepliesAreLost(t *testing.T) {
	addr := redistest.Start(t)
	for _, withIDs := range []bool{true, false} {
		t.Run(fmt.Sprintf("ids %v", withIDs), func(t *testing.T) {
			var replies losses
			counted := newTally()
			s := producer.New(replies.client(t, addr)).Stream(t.Context(), counted.events())
			queue := fmt.Sprint("lossy-", withIDs)
			const n = 5000
			for line := 1; line <= n; line++ {
				job := producer.Job{Type: "a", Queue: queue}
				if withIDs {
					job.ID = jobID(line)
				}
				if err := s.Add(line, job); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if lost := replies.lost.Load(); lost < 5 {
				t.Fatalf("%d replies were lost: too few", lost)
			}
			counted.inOrder(t, n)
			if !withIDs && counted.there > 0 {
				t.Errorf("%d jobs without an id were already there", counted.there)
			}
			ids := pendingIDs(t, connect(t, addr), queue)
			slices.Sort(ids)
			if len(ids) != n || len(slices.Compact(ids)) != n {
				t.Errorf("%d tasks, want %d", len(ids), n)
			}
		})
	}
}

// TestStreamWaitsOutAnOutage kills the server amid the lines and starts it again. The lines are added beside that: during
// the outage Add blocks once a batch is full.
func TestStreamWaitsOutAnOutage(t *testing.T) {
	server := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := connect(t, server.Addr)
	counted := newTally()
	first := make(chan struct{})
	events := counted.events()
	done := events.Done
	events.Done = func(r producer.Result) {
		if done(r); r.Line == 1 {
			close(first)
		}
	}
	s := producer.New(rdb).Stream(t.Context(), events)
	const n = 1000
	halfway, stopped, added := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		for line := 1; line <= n; line++ {
			if line == n/2 {
				close(halfway)
				<-stopped
			}
			if err := s.Add(line, producer.Job{Type: "a", ID: jobID(line)}); err != nil {
				added <- err
				return
			}
		}
		added <- nil
	}()
	<-halfway
	<-first // until then each job makes its own call, for its queue; if so many calls fail, go-redis avoids the server for a second
	server.Stop()
	close(stopped)
	if err := <-counted.firstOutages; err == nil {
		t.Fatal("an outage without an error")
	}
	server.Restart()
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	counted.inOrder(t, n)
	ids := pendingIDs(t, rdb, "default")
	slices.Sort(ids)
	if len(slices.Compact(ids)) != n {
		t.Errorf("%d tasks, want %d", len(ids), n)
	}
}

func TestStreamEndsWithItsContext(t *testing.T) {
	server := redistest.New(t)
	rdb := connect(t, server.Addr)
	for _, tt := range []struct {
		name  string
		cause func(counted *tally, cancel func())
	}{
		{"while idle", func(_ *tally, cancel func()) { cancel() }},
		{"in an outage", func(counted *tally, cancel func()) {
			<-counted.firstOutages
			cancel()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server.Restart()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			counted := newTally()
			first := make(chan struct{})
			events := counted.events()
			done := events.Done
			events.Done = func(r producer.Result) {
				done(r)
				close(first)
			}
			s := producer.New(rdb).Stream(ctx, events)
			if err := s.Add(1, producer.Job{Type: "a"}); err != nil {
				t.Fatal(err)
			}
			<-first
			server.Stop()
			if tt.name == "in an outage" {
				if err := s.Add(2, producer.Job{Type: "a"}); err != nil {
					t.Fatal(err)
				}
			}
			tt.cause(counted, cancel)
			err := s.Close()
			ended, ok := errors.AsType[*producer.StreamError](err)
			if !ok || ended.Line != 1 || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want that it ended after line 1", err)
			}
			if err := s.Add(3, producer.Job{Type: "a"}); !errors.Is(err, context.Canceled) {
				t.Errorf("Add after the end gave %v", err)
			}
		})
	}
}

func TestStreamEndsOnARefusal(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	if err := rdb.Set(t.Context(), "asynq:{broken}:pending", "no list", 0).Err(); err != nil {
		t.Fatal(err)
	}
	counted := newTally()
	s := producer.New(rdb).Stream(t.Context(), counted.events())
	for line, queue := range []string{"good", "good", "broken"} {
		if err := s.Add(line+1, producer.Job{Type: "a", Queue: queue}); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Close()
	if ended, ok := errors.AsType[*producer.StreamError](err); !ok || ended.Line != 2 {
		t.Errorf("got %v, want that it ended after line 2", err)
	}
	counted.inOrder(t, 2)
}

// TestStreamWaitsForWhatPasses: a Stream waits while Redis says that it cannot take a job now, also
// in the words that Redis 6.2 has for it. It ends at once if waiting does not help.
func TestStreamWaitsForWhatPasses(t *testing.T) {
	addr := redistest.Start(t)
	const inScript = "ERR Error running script (call to f_7e0c3a9b): @user_script:6: @user_script: 6: "
	for _, tt := range []struct {
		reply refused
		waits bool
	}{
		{"OOM command not allowed when used memory > 'maxmemory'.", true},
		{inScript + "-OOM command not allowed when used memory > 'maxmemory'. ", true},
		{inScript + "-READONLY You can't write against a read only replica. ", true},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", true},
		{inScript + "-MISCONF Errors writing to the AOF file: No space left on device", true},
		{inScript + "WRONGTYPE Operation against a key holding the wrong kind of value", false},
		{"MOVED 866 127.0.0.1:7001", false}, // a client of one node of a Cluster
		{"NOPERM this user has no permissions to run the 'lpush' command", false},
	} {
		t.Run(string(tt.reply), func(t *testing.T) {
			rdb := connect(t, addr)
			if err := rdb.Ping(t.Context()).Err(); err != nil { // to connect takes a pipeline
				t.Fatal(err)
			}
			rdb.AddHook(&refuseOnce{reply: tt.reply})
			counted := newTally()
			s := producer.New(rdb).Stream(t.Context(), counted.events())
			if err := s.Add(1, producer.Job{Type: "a"}); err != nil {
				t.Fatal(err)
			}
			switch err := s.Close(); {
			case tt.waits && (err != nil || len(counted.firstOutages) != 1 || len(counted.lines) != 1):
				t.Errorf("%v, %d outages, %d jobs done", err, len(counted.firstOutages), len(counted.lines))
			case !tt.waits && (!errors.Is(err, tt.reply) || len(counted.firstOutages) != 0):
				t.Errorf("%v, %d outages", err, len(counted.firstOutages))
			}
		})
	}
}

// refused is an error reply of Redis.
type refused string

func (r refused) Error() string { return string(r) }
func (refused) RedisError()     {}

// refuseOnce answers the first pipeline with an error reply.
type refuseOnce struct {
	reply refused
	done  bool
}

func (r *refuseOnce) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r *refuseOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r *refuseOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if r.done {
			return next(ctx, cmds)
		}
		r.done = true
		for _, cmd := range cmds {
			cmd.SetErr(r.reply)
		}
		return r.reply
	}
}
