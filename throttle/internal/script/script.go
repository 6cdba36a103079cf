// Package script is everything that this module says to Redis about limiters: the Lua scripts
// that decide, what a call asks and what the reply is, encoded and decoded side by side, and what
// it means when a call fails.
//
// One rule finds how much an API accepts: lua/learn.lua. It is pure: it changes a state by what was
// seen, at a time that it is given, and calls nothing. So it runs in any Lua: learn.fresh makes a
// state, learn.learn(state, news) changes it and returns for how long to pause, state.limit is
// the limit then, and learn.evenly says whether to spread permits. adapt.lua runs it in Redis, on
// the state in the limiter's hash: a Report is a call of it, and DecodeReport reads its reply.
// adaptive.lua makes a limiter adaptive, and ends that.
package script

import (
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/fair"
)

// The scripts, one for each verb. All except epoch, fast, many and weight begin with prelude.lua
// and log.lua. fast.lua and many.lua do what acquire.lua would do in the simplest case.
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
	//go:embed lua/many.lua
	manyLua string
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
	//go:embed lua/learn.lua
	learnLua string
	//go:embed lua/adapt.lua
	adaptLua string
	//go:embed lua/adaptive.lua
	adaptiveLua string
	//go:embed lua/epoch.lua
	epochLua string
	//go:embed lua/tenants.lua
	tenantsLua string

	Acquire = verb(module("config", configLua), module("windows", windowsLua), frontierLua, module("upkeep", upkeepLua), entriesLua, acquireLua)
	Fast    = redis.NewScript(fastLua)
	Many    = redis.NewScript(manyLua)
	Set     = verb(module("config", configLua), module("learn", learnLua), setLua)
	Pause   = verb(module("config", configLua), module("upkeep", upkeepLua), pauseLua)
	Expire  = verb(module("config", configLua), expireLua)
	Delete  = verb(module("config", configLua), deleteLua)
	Inspect = verb(module("config", configLua), module("windows", windowsLua), inspectLua)
	Pin     = verb(module("config", configLua), pinLua)
	Adapt   = verb(module("config", configLua), module("learn", learnLua), adaptLua)

	Adaptive = verb(module("config", configLua), module("learn", learnLua), adaptiveLua)
	Epoch    = redis.NewScript(epochLua)
	Tenants  = verb(module("config", configLua), module("windows", windowsLua), tenantsLua)
	Weight   = redis.NewScript(fair.WeighLua)
)

// verb puts a script together. Redis runs the whole text each time. To make a function costs less
// if the names that it shares with others do not belong to its own block.
func verb(parts ...string) *redis.Script {
	return redis.NewScript(preludeLua + "local made = {}\n" + module("fields", fieldsLua) + "return (function()\n" + logLua + "return (function()\n" + strings.Join(parts, "") + "end)()\nend)()")
}

// module puts functions that few calls need behind one function, which makes them when it is
// first called, and returns them.
func module(name, text string) string {
	made := "made." + name
	return "local function " + name + "()\n" + made + " = " + made + " or (function()\n" + text + "end)()\nreturn " + made + "\nend\n"
}

// Call runs a script and says when the request was sent that Redis answered. A script is called
// by its hash first, and sent whole if Redis does not know it. Errors are classified.
func Call(ctx context.Context, rdb redis.Scripter, s *redis.Script, keys []string, args ...any) (reply any, sent time.Time, err error) {
	sent = time.Now()
	reply, err = s.EvalSha(ctx, rdb, keys, args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		sent = time.Now()
		reply, err = s.Eval(ctx, rdb, keys, args...).Result()
	}
	if err != nil {
		return nil, sent, Classify(err)
	}
	return reply, sent, nil
}

// Int reads a reply that is one integer.
func Int(reply any) (int64, error) {
	n, ok := reply.(int64)
	if !ok {
		return 0, badReply("%T where an integer was expected", reply)
	}
	return n, nil
}
