package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// One value of a key gets a rate of its own, which stays: the configuration of a worker that
// starts does not change it, nor does a time without jobs. It has the limit's other settings.
func TestSetOneValue(t *testing.T) {
	s := newSite(t)
	file := configFile(t, "limits: { account: { rate: 10/1h, key: payload.account, guard: 5ms, smooth: true, rates: { own: 30/1h } } }\n"+
		"jobs: { x: { limits: [account] } }\n")
	common := throttle.Rate{Permits: 10, Interval: time.Hour, Guard: 5 * time.Millisecond, Smooth: true, KeepAlive: 2 * time.Hour}
	acme := s.limiter("account:acme", common, 3)
	s.limiter("account:zed", common, 0)
	stays := func(name string, want bool) {
		t.Helper()
		if expires := s.rdb.PTTL(t.Context(), name).Val() > 0; expires == want {
			t.Errorf("%s expires: %v", name, expires)
		}
	}
	stays("account:acme", false)

	got := decode[change](t, s.done("set", "account", "50/1h", "--value", "acme", "--config", file, "--json"))
	if got.Before.Rate != "10/1h" || got.After.Rate != "50/1h" || got.After.Used != 3 || !got.After.Pinned {
		t.Errorf("%+v -> %+v", got.Before, got.After)
	}
	stays("account:acme", true)
	if applied, err := acme.ApplyRate(t.Context(), common); err != nil || applied {
		t.Errorf("a worker that starts applies its rate: %v, %v", applied, err)
	}
	want := common
	want.Permits = 50
	if rate, err := acme.Config(t.Context()); err != nil || rate != want {
		t.Errorf("%+v, %v, want %+v", rate, err, want)
	}
	if u := s.usage("account:zed"); u.Rate.Permits != 10 || u.Pinned {
		t.Errorf("another value has %+v", u)
	}

	s.done("set", "account", "60/1h", "--value", "new", "--create", "--config", file)
	want.Permits = 60
	if u := s.usage("account:new"); u.Rate != want || !u.Pinned {
		t.Errorf("created %+v, want %+v", u.Rate, want)
	}
	stays("account:new", true)

	s.done("set", "account", "20/1h", "--value", "zed", "--pin=false", "--config", file)
	if u := s.usage("account:zed"); u.Rate.Permits != 20 || u.Pinned {
		t.Errorf("with --pin=false %+v", u)
	}
	stays("account:zed", false)

	s.done("unpin", "account", "--value", "acme", "--config", file)
	stays("account:acme", false)
	if applied, err := acme.ApplyRate(t.Context(), common); err != nil || !applied {
		t.Errorf("unpinned, a worker that starts does not apply its rate: %v, %v", applied, err)
	}
}

// TestWeightsOfAllValues: a tenant's weight is set in each value of a limit with a key, or in one.
func TestWeightsOfAllValues(t *testing.T) {
	s := newSite(t)
	s.limiter("account:acme", perHour(1), 0)
	s.limiter("account:zenith", perHour(1), 0)
	file := configFile(t, "limits: { account: { rate: 1/1h, key: header.account, share: header.tenant } }\njobs: { x: { limits: [account] } }\n")
	s.fails(2, []string{"set", "account", "--weight", "big=5", "--config", file}, []string{"2 values", "--all-values"})
	s.done("set", "account", "--weight", "big=5", "--all-values", "--config", file)
	s.done("set", "account", "--weight", "big=7", "--value", "zenith", "--config", file)
	for name, want := range map[string]string{"account:acme": `tenant "big" has weight 5,`, "account:zenith": `tenant "big" has weight 7,`} {
		if text := s.done("show", name, "--config", file); !strings.Contains(text, want) {
			t.Errorf("%s does not say %s:\n%s", name, want, text)
		}
	}
}
