package limitname_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// FuzzLimitKeys: a value out of a task gives no limiter, or one that no other
// value has, whose name the throttle takes, which is in the slot of its limit,
// and none of whose keys is another's.
func FuzzLimitKeys(f *testing.F) {
	for _, payload := range []string{
		`{"a":"x"}`, `{"a":{"b":1e3}}`, `{"a":true}`, `{"a":null}`, `{"a":[1]}`, `{"a":"{x}"}`, `{"a":"\u0000"}`, `{"a":"\ud800"}`, `{"a":1,"a":2}`, `[`, `"a"`, ``, "{\"a\":\"\xff\"}",
	} {
		f.Add("{api}-account", "payload.a", []byte(payload), "x")
		f.Add("account", "payload.a.b", []byte(payload), "1e3")
		f.Add("a:b", "header.h", []byte(payload), "c")
		f.Add("{api}:account", "payload.a", []byte(payload), "x:permits")
		f.Add("{api}:account", "payload.a", []byte(`{"a":"x%3Apermits"}`), "x:permits")
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody asks it anything
	f.Cleanup(func() { rdb.Close() })
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { client.Close() })
	f.Fuzz(func(t *testing.T, limit, path string, payload []byte, other string) {
		sel, err := expr.ParseSelector(path)
		if err != nil || limitname.Check(limit) != nil {
			return
		}
		value, err := sel.Pick(expr.Task{Type: "x", Queue: "default", Payload: payload, Headers: map[string]string{"h": other}})
		if err != nil {
			return
		}
		name, err := limitname.OfValue(limit, value)
		if err != nil {
			return
		}
		if _, err := client.Limiter(name); err != nil {
			t.Errorf("limit %q, value %q: %v", limit, value, err)
		}
		if strings.Contains(limit, "{") && limitname.HashTag(name) != limitname.HashTag(limit) {
			t.Errorf("%q is in another slot than %q", name, limit)
		}
		if again, err := limitname.OfValue(limit, other); err == nil && (again == name) != (other == value) {
			t.Errorf("limit %q: %q and %q are limiters %q and %q", limit, value, other, name, again)
		} else if err == nil && again != name && (strings.HasPrefix(again, name+":") || strings.HasPrefix(name, again+":")) {
			t.Errorf("limit %q: limiters %q and %q, of %q and %q, have keys in common", limit, name, again, value, other)
		}
		if back := limitname.Value(strings.TrimPrefix(name, limit+":")); back != value {
			t.Errorf("limiter %q is read as that of %q, not %q", name, back, value)
		}
		if cost, err := expr.ParseCost(path); err == nil {
			if n, err := cost.Of(expr.Task{Type: "x", Queue: "default", Payload: payload}); err == nil && (n < 1 || n > throttle.MaxPermits) {
				t.Errorf("cost %d", n)
			}
		}
		if sel.Field() != "" && !json.Valid(payload) { // numbers may be beyond any float64
			t.Errorf("a value %q out of %q", value, payload)
		}
	})
}
