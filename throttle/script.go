package throttle

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts, one a verb. All but epoch and fast begin with prelude.lua and
// log.lua; fast.lua does what acquire.lua would do in the simplest case.
var (
	//go:embed lua/prelude.lua
	preludeLua string
	//go:embed lua/fields.lua
	fieldsLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/config.lua
	configLua string
	//go:embed lua/windows.lua
	windowsLua string
	//go:embed lua/frontier.lua
	frontierLua string
	//go:embed lua/upkeep.lua
	upkeepLua string
	//go:embed lua/entries.lua
	entriesLua string
	//go:embed lua/fast.lua
	fastLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/set.lua
	setLua string
	//go:embed lua/pause.lua
	pauseLua string
	//go:embed lua/expire.lua
	expireLua string
	//go:embed lua/delete.lua
	deleteLua string
	//go:embed lua/inspect.lua
	inspectLua string
	//go:embed lua/pin.lua
	pinLua string
	//go:embed lua/epoch.lua
	epochLua string

	acquireScript = verb(module("config", configLua), module("windows", windowsLua), frontierLua, module("upkeep", upkeepLua), entriesLua, acquireLua)
	fastScript    = redis.NewScript(fastLua)
	setScript     = verb(module("config", configLua), setLua)
	pauseScript   = verb(module("config", configLua), pauseLua)
	expireScript  = verb(module("config", configLua), expireLua)
	deleteScript  = verb(module("config", configLua), deleteLua)
	inspectScript = verb(module("config", configLua), module("windows", windowsLua), inspectLua)
	pinScript     = verb(module("config", configLua), pinLua)
	epochScript   = redis.NewScript(epochLua)
)

// verb puts a script together. Redis runs the whole text each time, and to make
// a function costs less where what it shares with others is not of the same block.
func verb(parts ...string) *redis.Script {
	return redis.NewScript(preludeLua + "local made = {}\n" + module("fields", fieldsLua) + "return (function()\n" + logLua + "return (function()\n" + strings.Join(parts, "") + "end)()\nend)()")
}

// module puts functions of which few calls need any behind one, which makes
// them when it is first called and returns them.
func module(name, text string) string {
	made := "made." + name
	return "local function " + name + "()\n" + made + " = " + made + " or (function()\n" + text + "end)()\nreturn " + made + "\nend\n"
}

// eval runs a script and counts the call.
func (c *Client) eval(ctx context.Context, s *redis.Script, keys []string, args ...any) (any, error) {
	reply, _, err := c.evalAt(ctx, s, keys, args...)
	return reply, err
}

// evalAt is eval, and says when what was answered was sent: a script goes by its
// hash first, and whole if Redis does not know it.
func (c *Client) evalAt(ctx context.Context, s *redis.Script, keys []string, args ...any) (any, time.Time, error) {
	c.calls.Add(1)
	c.first.Do(func() { c.firstAt = time.Now() })
	sent := time.Now()
	reply, err := s.EvalSha(ctx, c.rdb, keys, args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		sent = time.Now()
		reply, err = s.Eval(ctx, c.rdb, keys, args...).Result()
	}
	if err != nil {
		if ctx.Err() == nil { // else the caller has given up
			c.errors.Add(1)
		}
		err, reply = classify(err), nil
	}
	if err == nil || !transient(err) {
		c.met.Store(true)
	}
	return reply, sent, err
}

// classify turns what Redis says of a key of another type, and what the scripts
// say of a configuration, into our errors.
func classify(err error) error {
	if says(err, "WRONGTYPE") {
		return ErrWrongType
	}
	if field, ok := strings.CutPrefix(err.Error(), "BADFIELD "); ok {
		return badField(field)
	}
	return err
}

// says reports whether an error reply begins with a code, or, as older servers
// pass on what happens inside a script, quotes one that does.
func says(err error, code string) bool {
	text := err.Error()
	if strings.HasPrefix(text, code) {
		return true
	}
	return strings.HasPrefix(text, "ERR Error ") && (strings.Contains(text, " "+code+" ") || strings.Contains(text, " -"+code+" "))
}

// passing are the replies of a Redis that will serve again, or that go-redis
// could not follow to the right node in time.
var passing = []string{"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "OOM", "BUSY",
	"NOREPLICAS", "UNBLOCKED", "MISCONF", "NOSCRIPT", "ERR max number of clients"}

// transient reports whether the same call may succeed later: Redis cannot be
// reached, or says that it is not ready.
func transient(err error) bool {
	for _, lasting := range []error{ErrWrongType, ErrInvalidRate, errReply, redis.ErrClosed} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true
	}
	for _, prefix := range passing {
		if says(reply, prefix) {
			return true
		}
	}
	return false
}

// replyInt reads a reply that is one integer.
func replyInt(reply any) (int64, error) {
	n, ok := reply.(int64)
	if !ok {
		return 0, badReply("%T where an integer was expected", reply)
	}
	return n, nil
}
