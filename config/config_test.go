package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

func TestShippedConfig(t *testing.T) {
	cfg, err := Load("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Redis.Addrs; !reflect.DeepEqual(got, []string{"127.0.0.1:6379"}) {
		t.Errorf("redis.addrs = %v, want the local Redis", got)
	}
	if len(cfg.HTTP.AllowHosts) == 0 || len(cfg.Jobs["http:request"].Limits) == 0 {
		t.Error("the shipped file shows neither a host nor a limit for http:request")
	}
}

func TestContractExample(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "s3cret")
	t.Setenv("ADMIN_TOKEN", "")
	cfg, err := Parse("config.yaml", []byte(`
redis: { addrs: ["127.0.0.1:6379"], username: "", password: "${REDIS_PASSWORD}", db: 0, tls: false, sentinel_master: "" }
limits:
  stripe:         { rate: 100/1s }
  stripe-worker:  { rate: 25/1s, type: per_client }
  stripe-account: { rate: 10/1s, key: payload.account }
pools:
  - { name: default, concurrency: 20, queues: {critical: 6, default: 3, low: 1} }
jobs:
  "http:request": { limits: [stripe, stripe-worker, stripe-account], permits: 1, hold: 2s }
http: { allow_hosts: ["api.example.com"], timeout: 30s }
admin: { addr: "", token: "${ADMIN_TOKEN}" }
log: { level: info, format: console }
shutdown_timeout: 8s
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Redis.Password = "s3cret"
	want.Limits = map[string]Limit{
		"stripe":         {Rate: "100/1s"},
		"stripe-worker":  {Rate: "25/1s", Type: "per_client"},
		"stripe-account": {Rate: "10/1s", Key: "payload.account"},
	}
	want.Pools = []Pool{{Name: "default", Concurrency: 20, Queues: map[string]int{"critical": 6, "default": 3, "low": 1}}}
	want.Jobs = map[string]Job{"http:request": {Limits: []string{"stripe", "stripe-worker", "stripe-account"}, Permits: Permits{Each: "1"}, Hold: "2s"}}
	want.HTTP.AllowHosts = []string{"api.example.com"}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
}

// TestContractExampleOfNewLimits: what was added to the file later.
func TestContractExampleOfNewLimits(t *testing.T) {
	cfg, err := Parse("config.yaml", []byte(`
limits:
  stripe-slots:   { in_flight: 40 }
  leased:         { in_flight: 40, lease: 15s }
  crm-order:      { in_flight: 1, key: payload.customer }
  llm-requests:   { rate: 500/1m, share: payload.tenant, weights: { acme: 5 } }
  llm-tokens:     { rate: 90000/1m, share: payload.tenant, default_weight: 2 }
  plan:           { rate: 10/1s, key: payload.account, rates: { acme: 50/1s } }
  github:         { rate: 10/1s, adapt: { min: 1, max: 200 }, preset: github }
  tried-out:      { rate: 10/1s, dry_run: true }
  slots-tried-out: { in_flight: 3, dry_run: true }
jobs:
  "llm:": { limits: [llm-requests, llm-tokens], permits: { llm-tokens: payload.tokens }, max_wait: 24h, acquire: handler }
  "crm:": { limits: [stripe-slots, leased, crm-order, plan, tried-out, slots-tried-out] }
  "http:request": { limits: [github] }
http: { keep_error_body: true }
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Limit{
		"stripe-slots":    {InFlight: 40},
		"leased":          {InFlight: 40, Lease: Duration(15 * time.Second)},
		"crm-order":       {InFlight: 1, Key: "payload.customer"},
		"llm-requests":    {Rate: "500/1m", Share: "payload.tenant", Weights: map[string]float64{"acme": 5}},
		"llm-tokens":      {Rate: "90000/1m", Share: "payload.tenant", DefaultWeight: new(2.0)},
		"plan":            {Rate: "10/1s", Key: "payload.account", Rates: map[string]string{"acme": "50/1s"}},
		"github":          {Rate: "10/1s", Adapt: &Adapt{Min: 1, Max: 200}, Preset: "github"},
		"tried-out":       {Rate: "10/1s", DryRun: true},
		"slots-tried-out": {InFlight: 3, DryRun: true},
	}
	for name, limit := range want {
		if !reflect.DeepEqual(cfg.Limits[name], limit) {
			t.Errorf("%s: got %+v, want %+v", name, cfg.Limits[name], limit)
		}
	}
	job := Job{Limits: []string{"llm-requests", "llm-tokens"}, Permits: Permits{ByLimit: map[string]string{"llm-tokens": "payload.tokens"}}, MaxWait: Duration(24 * time.Hour), Acquire: "handler"}
	if got := cfg.Jobs["llm:"]; !reflect.DeepEqual(got, job) {
		t.Errorf("got  %+v\nwant %+v", got, job)
	}
	if !cfg.HTTP.KeepErrorBody {
		t.Error("http.keep_error_body is not read")
	}
}

func TestParseDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "redis:\n", "redis: {}\npools:\nlog: {level: info}\n"} {
		cfg, err := Parse("config.yaml", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if !reflect.DeepEqual(cfg, Default()) {
			t.Errorf("%q: got %+v, want the defaults", text, cfg)
		}
	}
}

func TestParseErrors(t *testing.T) {
	const limits = "limits:\n  a: {rate: 10/1s}\n  b: {rate: 10/1s}\n"
	tests := []struct{ name, text, want string }{
		{"not YAML", "redis: [", `1:8: sequence end token ']' not found`},
		{"a list", "- a\n", `1:1: invalid value: want keys and values`},
		{"two documents", "db: 1\n---\ndb: 2\n", `3:3: a second YAML document: want one`},
		{"a tag", "pools: !!int\n", `1:8: the tag !!int: want the value without it`},
		{"a tag in a list", "redis: {addrs: !!seq, db: 0}\n", `1:16: the tag !!seq: want the value without it`},
		{"unknown section", "rediss: {}\n", `1:1: rediss: unknown key: did you mean "redis"? want one of redis, limits, pools, jobs, http, admin, log, shutdown_timeout`},
		{"unknown key", "limits:\n  a:\n    rate: 1/1s\n    burst: 3\n", `4:5: limits.a.burst: unknown key: write rate: 10/1s, or 50/5s, and smooth: true to spread it; want one of rate, in_flight, lease, type, key, rates, share, weights, default_weight, guard, smooth, window, offset, keep_alive, adapt, preset, dry_run`},
		{"unknown key of a pool", "pools:\n  - {name: a, slots: 3}\n", `2:15: pools[0].slots: unknown key: want one of name, concurrency, queues, strict, max_waiting`},
		{"twice", "log: {level: info, level: warn}\n", `1:20: mapping key "level" already defined at [1:7]`},
		{"word for a number", "pools:\n  - name: a\n    concurrency: many\n", `3:18: pools[0].concurrency: invalid value "many": want a whole number`},
		{"overflow", "redis: {db: 99999999999999999999}\n", `1:13: redis.db: invalid value "99999999999999999999": want a whole number`},
		{"scalar for a section", "log: loud\n", `1:6: log: invalid value: want keys and values, such as { level: info }`},
		{"scalar for a list", "redis: {addrs: here}\n", `1:16: redis.addrs: invalid value: want a list, such as ["127.0.0.1:6379"]`},
		{"bool", "redis: {tls: maybe}\n", `1:14: redis.tls: invalid value "maybe": want true or false`},
		{"duration", "http: {timeout: 30}\n", `1:17: http.timeout: invalid duration "30": want a number and a unit, such as 500ms, 2s or 15m`},
		{"no seconds", "shutdown_timeout: 0s\n", `1:19: shutdown_timeout: invalid duration 0s: want 1s or more`},
		{"no address", "redis: {addrs: []}\n", `1:16: redis.addrs: no address: want at least one, such as 127.0.0.1:6379`},
		{"address", "redis:\n  addrs: [localhost]\n", `2:11: redis.addrs[0]: invalid address "localhost": want HOST:PORT, such as 127.0.0.1:6379`},
		{"database of a cluster", "redis: {addrs: [\"a:1\", \"b:1\"], db: 2}\n", `1:36: redis.db: invalid number 2: a Redis Cluster has only database 0`},
		{"half a rate", "limits:\n  stripe:\n    rate: 100/\n", `3:11: limits.stripe.rate: invalid rate "100/": want PERMITS/INTERVAL, such as 100/1s`},
		{"no rate", "limits:\n  stripe: {type: overall}\n", `2:3: limits.stripe.rate: missing: want PERMITS/INTERVAL, such as 100/1s`},
		{"rate 0", "limits: {a: {rate: 0/1s}}\n", `1:20: limits.a.rate: permits 0: want 1 to 4294967295`},
		{"rate below 0", "limits: {a: {rate: -5/1s}}\n", `1:20: limits.a.rate: permits -5: want 1 to 4294967295`},
		{"huge rate", "limits: {a: {rate: 99999999999999999999/1s}}\n", `1:20: limits.a.rate: invalid rate "99999999999999999999/1s": permits "99999999999999999999" is not a whole number up to 4294967295`},
		{"guard", "limits: {a: {rate: 1/1s, guard: 2s}}\n", `1:10: limits.a: guard 2s is longer than the interval 1s`},
		{"type", "limits: {a: {rate: 1/1s, type: all}}\n", `1:32: limits.a.type: invalid type "all": want overall or per_client`},
		{"window", "limits: {a: {rate: 1/1s, window: day}}\n", `1:34: limits.a.window: invalid window "day": want sliding or calendar`},
		{"key", "limits: {a: {rate: 1/1s, key: account}}\n", `1:31: limits.a.key: invalid path "account": want payload.PATH, header.NAME or queue`},
		{"rates without a key", "limits:\n  a:\n    rate: 1/1s\n    rates: {b: 2/1s}\n", `4:12: limits.a.rates: needs limits.a.key: without a key there are no values`},
		{"half a rate of a value", "limits:\n  a: {rate: 1/1s, key: queue, rates: {b: 2/}}\n", `2:42: limits.a.rates.b: invalid rate "2/": want PERMITS/INTERVAL, such as 100/1s`},
		{"no rate of a value", "limits:\n  a: {rate: 1/1s, key: queue, rates: {b: }}\n", `2:41: limits.a.rates.b: missing: want PERMITS/INTERVAL, such as 100/1s`},
		{"a value that no job has", "limits:\n  a: {rate: 1/1s, key: queue, rates: {\"b{\": 2/1s}}\n", `2:45: limits.a.rates.b{: the key of limit "a" has braces or control characters: "b{"`},
		{"guard of a value", "limits:\n  a: {rate: 1/1m, key: queue, guard: 2s, rates: {b: 2/1s}}\n", `2:53: limits.a.rates.b: guard 2s is longer than the interval 1s`},
		{"twice a value", "limits:\n  a: {rate: 1/1s, key: queue, rates: {b: 2/1s, b: 3/1s}}\n", `2:48: mapping key "b" already defined at [2:39]`},
		{"above the rates of all values", "limits: {a: {rate: 1/1s, key: queue, rates: {b: 2/1s}}}\njobs: {x: {limits: [a], permits: 3}}\n",
			`2:34: jobs.x.permits: 3 permits are more than limit "a" ever gives at once (2/1s)`},
		{"braces", "limits:\n  \"a{b\": {rate: 1/1s}\n", `2:3: limits.a{b: invalid name "a{b": want no braces, or one hash tag such as {api}`},
		{"undeclared", limits + "jobs:\n  x: {limits: [a, c, b]}\n", `5:19: jobs.x.limits[1]: no limit is named "c": want one of limits (a, b)`},
		{"twice in a job", limits + "jobs:\n  x: {limits: [a, b, a]}\n", `5:22: jobs.x.limits[2]: "a" is there twice`},
		{"above the rate", limits + "jobs:\n  x: {limits: [a, b], permits: 11}\n", `5:32: jobs.x.permits: 11 permits are more than limit "a" ever gives at once (10/1s)`},
		{"longest wait 0", limits + "jobs:\n  x: {limits: [a, b], max_wait: 0}\n", `5:33: jobs.x.max_wait: invalid duration 0s: want more than 0`},
		{"longest wait 0s", limits + "jobs:\n  x: {limits: [a, b], max_wait: \"0s\"}\n", `5:33: jobs.x.max_wait: invalid duration 0s: want more than 0`},
		{"longest pause 0", limits + "jobs:\n  x: {limits: [a, b], max_pause: &p 0ms}\n", `5:37: jobs.x.max_pause: invalid duration 0s: want more than 0`},
		{"alias of 0", limits + "jobs:\n  x: {limits: [a, b], hold: &n 0, max_pause: *n}\n", `5:46: jobs.x.max_pause: invalid duration 0s: want more than 0`},
		{"merged 0", limits + "jobs:\n  x: {limits: [a, b], <<: {max_pause: 0}}\n", `5:39: jobs.x.<<.max_pause: invalid duration 0s: want more than 0`},
		{"none may wait", "pools:\n  - {name: a, concurrency: 3, max_waiting: 0}\n", `2:44: pools[0].max_waiting: invalid number 0: want 1 to 400000 jobs`},
		{"a time may wait", "pools:\n  - {name: a, concurrency: 3, max_waiting: 0s}\n", `2:44: pools[0].max_waiting: invalid value "0s": want a whole number`},
		{"lease 0", "limits:\n  a: {in_flight: 1, lease: 0}\njobs: {x: {limits: [a]}}\n", `2:28: limits.a.lease: invalid duration 0s: want 3s to 24h, in whole milliseconds`},
		{"longest wait", limits + "jobs:\n  x: {limits: [a, b], max_wait: -1s}\n", `5:33: jobs.x.max_wait: invalid duration -1s: want more than 0`},
		{"who acquires", limits + "jobs:\n  x: {limits: [a, b], acquire: worker}\n", `5:32: jobs.x.acquire: invalid value "worker": want handler, or leave it out`},
		{"permits 0", limits + "jobs:\n  x: {limits: [a, b], permits: 0}\n", `5:32: jobs.x.permits: invalid number 0: want 1 to 4294967295`},
		{"permits", limits + "jobs:\n  x: {limits: [a, b], permits: tokens}\n", `5:32: jobs.x.permits: invalid permits "tokens": want a whole number, payload.PATH or header.NAME`},
		{"permits of another limit", limits + "jobs:\n  x: {limits: [a], permits: {a: 2, b: 3}}\n  y: {limits: [b]}\n", `5:39: jobs.x.permits.b: "b" is not a limit of this job: want some of a`},
		{"permits of one limit", limits + "jobs:\n  x:\n    limits: [a, b]\n    permits:\n      a: tokens\n", `8:10: jobs.x.permits.a: invalid permits "tokens": want a whole number, payload.PATH or header.NAME`},
		{"no permits of one limit", limits + "jobs:\n  x: {limits: [a, b], permits: {a: }}\n", `5:35: jobs.x.permits.a: missing: want a whole number, payload.PATH or header.NAME`},
		{"permits of one limit 0", limits + "jobs:\n  x: {limits: [a, b], permits: {b: 0}}\n", `5:36: jobs.x.permits.b: invalid number 0: want 1 to 4294967295`},
		{"above the rate of one limit", limits + "jobs:\n  x: {limits: [a, b], permits: {b: 11}}\n", `5:36: jobs.x.permits.b: 11 permits are more than limit "b" ever gives at once (10/1s)`},
		{"permits twice", limits + "jobs:\n  x: {limits: [a, b], permits: {b: 1, b: 2}}\n", `5:39: mapping key "b" already defined at [5:33]`},
		{"a list of permits", limits + "jobs:\n  x: {limits: [a, b], permits: [1, 2]}\n", `5:32: jobs.x.permits: invalid value: want a number, a path, or a mapping from limits to these`},
		{"permits in permits", limits + "jobs:\n  x: {limits: [a, b], permits: {b: {a: 1}}}\n", `5:36: jobs.x.permits.b: invalid value: want a string; put a key or a value that has : or ${ in it between quotes`},
		{"hold", limits + "jobs:\n  x: {limits: [a, b], hold: long}\n", `5:29: jobs.x.hold: invalid hold "long": want a duration such as 2s, 0 or forever`},
		{"pause", limits + "jobs:\n  x: {limits: [a], pause_on_429: [b]}\n  y: {limits: [b]}\n", `5:35: jobs.x.pause_on_429[0]: "b" is not a limit of this job: want some of a`},
		{"name of the others", limits + "jobs:\n  \"(other)\": {limits: [a]}\n", `5:3: jobs.(other): the metrics of jobs that no pattern matches have this name: want another`},
		{"same pattern", limits + "jobs:\n  \"x:\": {limits: [a]}\n  \"x:*\": {limits: [b]}\n", `6:3: jobs.x:*: matches the same types as "x:"`},
		{"cluster", "redis: {addrs: [\"h:1\", \"h:2\"]}\n" + limits + "jobs:\n  x: {limits: [a, b]}\n",
			`6:19: jobs.x.limits[1]: "a" and "b" lie in different slots of the Redis Cluster: give the limits of a job a common hash tag, such as {api}:a and {api}:b`},
		{"no slots", "pools:\n  - {name: a}\n", `2:5: pools[0].concurrency: invalid number 0, or missing: want 1 to 100000 slots`},
		{"no name", "pools:\n  - {concurrency: 3}\n", `2:5: pools[0].name: missing: want a name`},
		{"waiting", "pools:\n  - {name: a, concurrency: 3, max_waiting: -4}\n", `2:44: pools[0].max_waiting: invalid number -4: want 1 to 400000 jobs`},
		{"queue twice", "pools:\n  - {name: a, concurrency: 3, queues: {q: 1}}\n  - {name: b, concurrency: 3, queues: {q: 1}}\n", `3:43: pools[1].queues.q: the queue belongs to pool "a" already: want it in one pool`},
		{"weight", "pools:\n  - {name: a, concurrency: 3, queues: {q: 0}}\n", `2:43: pools[0].queues.q: invalid weight 0: want 1 to 1000`},
		{"host", "http: {allow_hosts: [\"https://a.example\"]}\n", `1:22: http.allow_hosts[0]: invalid host "https://a.example": want HOST, HOST:PORT or *.DOMAIN in ASCII, such as api.example.com`},
		{"log", "log: {level: loud}\n", `1:14: log.level: invalid level "loud": want debug, info, warn or error`},
		{"slots beyond all measure", "pools:\n  - {name: a, concurrency: 1000000000000}\n", `2:28: pools[0].concurrency: invalid number 1000000000000: want 1 to 100000 slots`},
		{"a slot too many", "pools:\n  - {name: a, concurrency: 100001}\n", `2:28: pools[0].concurrency: invalid number 100001: want 1 to 100000 slots`},
		{"weight beyond all measure", "pools:\n  - {name: a, concurrency: 3, queues: {q: 2000000000}}\n", `2:43: pools[0].queues.q: invalid weight 2000000000: want 1 to 1000`},
		{"a weight too much", "pools:\n  - {name: a, concurrency: 3, queues: {q: 1001}}\n", `2:43: pools[0].queues.q: invalid weight 1001: want 1 to 1000`},
		{"line in a pool", "pools:\n  - {name: \"a\\nb\", concurrency: 3}\n", `2:12: pools[0].name: invalid name "a\nb": want one without control characters, and no blanks around it`},
		{"blank around a pool", "pools:\n  - {name: \"a \", concurrency: 3}\n", `2:12: pools[0].name: invalid name "a ": want one without control characters, and no blanks around it`},
		{"line in a queue", "pools:\n  - {name: a, concurrency: 3, queues: {\"q\\nr\": 1}}\n", `2:48: pools[0].queues.q\nr: invalid queue name: want one without braces or control characters, and no blanks around it`},
		{"blank around a queue", "pools:\n  - {name: a, concurrency: 3, queues: {\" q\": 1}}\n", `2:46: pools[0].queues. q: invalid queue name: want one without braces or control characters, and no blanks around it`},
		{"port beyond all", "redis: {addrs: [\"h:99999999\"]}\n", `1:17: redis.addrs[0]: invalid address "h:99999999": want HOST:PORT, such as 127.0.0.1:6379`},
		{"no port", "redis: {addrs: [\"h:1\", \"h:\"]}\n", `1:24: redis.addrs[1]: invalid address "h:": want HOST:PORT, such as 127.0.0.1:6379`},
		{"port 0", "redis: {addrs: [\"h:0\"]}\n", `1:17: redis.addrs[0]: invalid address "h:0": want HOST:PORT, such as 127.0.0.1:6379`},
		{"signed port", "redis: {addrs: [\"h:+1\"]}\n", `1:17: redis.addrs[0]: invalid address "h:+1": want HOST:PORT, such as 127.0.0.1:6379`},
		{"blank in a host", "redis: {addrs: [\"a b:1\"]}\n", `1:17: redis.addrs[0]: invalid address "a b:1": want HOST:PORT, such as 127.0.0.1:6379`},
		{"line in a host", "redis: {addrs: [\"h\\n:1\"]}\n", `1:17: redis.addrs[0]: invalid address "h\n:1": want HOST:PORT, such as 127.0.0.1:6379`},
		{"blank in admin", "admin: {addr: \"a b:1\"}\n", `1:15: admin.addr: invalid address "a b:1": want HOST:PORT, such as 127.0.0.1:9464`},
		{"port of admin", "admin: {addr: \":65536\"}\n", `1:15: admin.addr: invalid address ":65536": want HOST:PORT, such as 127.0.0.1:9464`},
		{"line after a token", "admin: {token: \"s3cret\\n\"}\n", `1:16: admin.token: invalid token: want one without control characters, and no blanks around it`},
		{"line in a token", "admin: {token: \"s3\\ncret\"}\n", `1:16: admin.token: invalid token: want one without control characters, and no blanks around it`},
		{"blank before a token", "admin: {token: \" s3cret\"}\n", `1:16: admin.token: invalid token: want one without control characters, and no blanks around it`},
		{"token that no browser sends", "admin: {token: schlüssel}\n", `1:16: admin.token: invalid token: want ASCII characters only`},
		{"key of adapt", "limits: {a: {rate: 1/1s, adapt: {mim: 1}}}\n", `1:34: limits.a.adapt.mim: unknown key: did you mean "min"? want one of min, max`},
		{"blank for a token", "admin: {token: \" \"}\n", `1:16: admin.token: invalid token: want one without control characters, and no blanks around it`},
		{"admin", "admin: {addr: 9464}\n", `1:15: admin.addr: invalid address "9464": want HOST:PORT, such as 127.0.0.1:9464`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("config.yaml", []byte(tt.text))
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("got %v, want an *Error", err)
			}
			if got, want := err.Error(), "config.yaml:"+tt.want; got != want {
				t.Errorf("\ngot  %s\nwant %s", got, want)
			}
		})
	}
}

// TestBounds: what is just within the bounds is accepted.
func TestBounds(t *testing.T) {
	for _, text := range []string{
		"pools: [{name: a b, concurrency: 100000, queues: {q: 1000, a b: 1}}]", "redis: {addrs: [\"h:1\", \"[::1]:65535\", \":6379\"]}",
		"admin: {addr: \":0\"}", "admin: {addr: \"[fe80::1%eth0]:65535\", token: a token of some length}",
	} {
		if _, err := Parse("config.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestMalformedHosts(t *testing.T) {
	for _, s := range []string{
		"", "*", "*.", "*.1.2.3.4", "*.[::1]", "api.example.com:", "api.example.com:0", "api.example.com:65536", "api.example.com:http",
		"api..example.com", ".example.com", "exämple.com", "a b", "http://api.example.com", "api.example.com/v1", "u@api.example.com",
		"fe80::1%eth0", "[fe80::1%eth0]:80", "api.*.com", "[::ffff:10.0.0.1%lo]", "mys\u0130te.io", "\u212a.example.com", "mysite\u3002io",
		"2130706433", "127.1", "0x7f000001", "0177.0.0.1", "*.0.0.1", "mysite.io..",
	} {
		cfg := Default()
		cfg.HTTP.AllowHosts = []string{"ok.example.com", s}
		if err := cfg.Validate(); err == nil {
			t.Errorf("%q is accepted", s)
		} else if cerr, ok := errors.AsType[*Error](err); !ok || cerr.Key != "http.allow_hosts[1]" {
			t.Errorf("%q: error %v, want an *Error of http.allow_hosts[1]", s, err)
		}
	}
}

func TestErrorsKeepSecrets(t *testing.T) {
	t.Setenv("SECRET", "hunter2")
	for _, text := range []string{
		"http: {timeout: \"${SECRET}\"}\n",
		"redis: {password: \"${SECRET}\", db: x}\n",
		"redis: {password: \"${SECRET}\", passwort: x}\n",
	} {
		_, err := Parse("config.yaml", []byte(text))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want one without the secret", text, err)
		}
	}
}

func TestEnvironmentInValuesOnly(t *testing.T) {
	t.Setenv("RATE", "7/1s")
	cfg, err := Parse("config.yaml", []byte("limits: {a: {rate: \"${RATE}\"}}\njobs: {\"${RATE}\": {limits: [a]}}\nadmin: {token: \"${UNSET_BY_THIS_TEST}$x\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Limits["a"].Rate; got != "7/1s" {
		t.Errorf("rate = %q, want the variable's value", got)
	}
	if _, ok := cfg.Jobs["${RATE}"]; !ok {
		t.Errorf("jobs = %v: a key was expanded", cfg.Jobs)
	}
	if got := cfg.Admin.Token; got != "$x" {
		t.Errorf("token = %q, want $x", got)
	}
}

// TestBrokenReferences: a text with a ${ that begins no ${NAME} is refused, and not quoted: as it
// is written, it would be a password that others can guess.
func TestBrokenReferences(t *testing.T) {
	t.Setenv("WITH_BRACES", "a${b")
	const msg = "invalid reference: want ${NAME}, with only letters, digits and _ in NAME; if the text itself contains ${, put it into an environment variable"
	for text, want := range map[string]string{
		"redis: {password: \"${SECRET:-hunter2}\"}\n":                 "1:19: redis.password: ",
		"redis: {password: '${SECRET'}\n":                             "1:19: redis.password: ",
		"redis:\n  password: ${HUNTER-2}\n":                           "2:13: redis.password: ",
		"redis:\n  password: |-\n    ${HUNTER2:?}\n":                  "2:13: redis.password: ",
		"redis: {password: &p \"${}\", username: *p}\n":               "1:22: redis.password: ",
		"admin:\n  token: \"${WITH_BRACES}${2HUNTER}\"\n":             "2:10: admin.token: ",
		"admin: {token: \"${WITH_${BRACES}}\"}\n":                     "1:16: admin.token: ",
		"http: {allow_hosts: [a.example, \"${ HUNTER2 }\"]}\n":        "1:33: http.allow_hosts[1]: ",
		"limits: {a: {rate: 1/1s}}\njobs: {x: {limits: [\"${A\"]}}\n": "2:21: jobs.x.limits[0]: ",
	} {
		_, err := Parse("config.yaml", []byte(text))
		if err == nil || err.Error() != "config.yaml:"+want+msg {
			t.Errorf("%s:\ngot  %v\nwant config.yaml:%s%s", text, err, want, msg)
		}
	}
	cfg, err := Parse("config.yaml", []byte("admin: {token: \"${WITH_BRACES}$${WITH_BRACES}{c}$\"} # ${COMMENT\njobs: {\"${KEY\": {}}\n"))
	if err != nil || cfg.Admin.Token != "a${b$a${b{c}$" {
		t.Errorf("from the environment: %+v, %v", cfg, err)
	}
}

// TestByteOrderMark: a file as some editors for Windows write it.
func TestByteOrderMark(t *testing.T) {
	cfg, err := Parse("config.yaml", []byte("\ufeffredis: {db: 3}\r\nlog: {level: warn}\r\n"))
	if err != nil || cfg.Redis.DB != 3 || cfg.Log.Level != "warn" {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestThrottleRate(t *testing.T) {
	tests := []struct {
		limit Limit
		want  throttle.Rate
	}{
		{Limit{Rate: "5/1m"}, throttle.Rate{Permits: 5, Interval: time.Minute}},
		{Limit{Rate: "5/1m", Key: "queue"}, throttle.Rate{Permits: 5, Interval: time.Minute, KeepAlive: time.Hour}},
		{Limit{Rate: "5/24h", Key: "queue"}, throttle.Rate{Permits: 5, Interval: 24 * time.Hour, KeepAlive: 48 * time.Hour}},
		{Limit{Rate: "5/24h", Type: "per_client", Window: "calendar", Offset: Duration(time.Hour), Guard: -1, Smooth: true},
			throttle.Rate{Type: throttle.PerClient, Permits: 5, Interval: 24 * time.Hour, Window: throttle.Calendar, Offset: time.Hour, Guard: -1, Smooth: true}},
	}
	for _, tt := range tests {
		got, err := tt.limit.ThrottleRate()
		if err != nil || got != tt.want {
			t.Errorf("%+v: got %+v, %v, want %+v", tt.limit, got, err, tt.want)
		}
	}
}
