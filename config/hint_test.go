package config

import (
	"strings"
	"testing"
)

// TestHints: what a person is likely to write by mistake is refused with what to write.
func TestHints(t *testing.T) {
	for yaml, want := range map[string]string{
		`redis: { addr: "x:1" }`:                                 `1:10: redis.addr: unknown key: did you mean "addrs"? want one of addrs, `,
		`redis.addrs: ["x:1"]`:                                   `redis.addrs: unknown key: write redis: { addrs: ... }; want one of redis, `,
		`limit: { a: { rate: 1/1s } }`:                           `limit: unknown key: did you mean "limits"? `,
		`limits: { a: { permits: 10 } }`:                         `limits.a.permits: unknown key: write rate: 10/1s; want one of rate, `,
		`limits: { a: { rate: 1/1s, per_client: true } }`:        `limits.a.per_client: unknown key: write type: per_client; `,
		`concurrency: 3`:                                         `concurrency: unknown key: concurrency belongs in a pool: pools[0]; `,
		`pools: [ { name: a, concurrency: 1, hold: 2s } ]`:       `pools[0].hold: unknown key: hold belongs in a job: jobs.PATTERN; `,
		`limits.a.rate: 10/1s`:                                   `write limits: { a: { rate: ... } }; `,
		`redis.host: x`:                                          `redis.host: unknown key: want one of redis, `,
		`pools.default.concurrency: 3`:                           `pools.default.concurrency: unknown key: want one of redis, `,
		`"jobs.http:request.limits": [a]`:                        `unknown key: want one of redis, `,
		`limits: { a: { concurrency: 3 } }`:                      `limits.a.concurrency: unknown key: write in_flight; `,
		`redis: { timeout: 5s }`:                                 `redis.timeout: unknown key: want one of addrs, `,
		`jobs: { x: { concurrency: 5 } }`:                        `jobs.x.concurrency: unknown key: write max_in_flight; `,
		`limits: { a: { rate: { permits: 10, interval: 1s } } }`: `limits.a.rate: invalid value: want a string, such as 10/1s; put`,
		"redis:\n  db: 1\n limits: {}":                           `value is not allowed in this context: indent it like the keys beside it, or put`,
		`jobs: { x: { rate: 10/1s } }`:                           `jobs.x.rate: unknown key: rate belongs in a limit: limits.NAME; `,
		`limits: { a: 10/1s }`:                                   `limits.a: invalid value: want keys and values, such as { rate: 10/1s }`,
		`pools: { default: 3 }`:                                  `pools: invalid value: want a list, such as [ { name: default, concurrency: 20 } ]`,
		`jobs: { x: { limits: a } }`:                             `jobs.x.limits: invalid value: want a list, such as [stripe]`,
		`redis: { addrs: [127.0.0.1:6379] }`:                     `redis.addrs[0]: invalid value: want a string; put a key or a value that has : or ${ in it between quotes`,
		`jobs: { http:request: { limits: [a] } }`:                `',' or '}' must be specified; between { } and [ ], put a key or a value that has : or ${ in it between quotes`,
		`limits: { a: { rate: ${RATE} } }`:                       `between { } and [ ], put a key or a value that has : or ${ in it between quotes`,
		`limits: { a: { key: payload.org, rate: 5/1s, rates: { org:acme: 5/1s } } }`: `put a key or a value that has : or ${ in it between quotes`,
		"jobs:\n  *: { limits: [] }":                                           `and one that begins with *`,
		"limits:\n\ta: { rate: 1/1s }":                                         `2:1: a tab: indent with spaces`,
		`jobs: { x: { limits: [a] } }`:                                         `no limit is named "a": the configuration has no limits`,
		"limits: { stripe: { rate: 1/1s } }\njobs: { x: { limits: [strpe] } }": `no limit is named "strpe": did you mean "stripe"? want one of limits (stripe)`,
		`limits: { a: { rate: 5/1s, adapt: { min: 1 } } }`:                     `limits.a.adapt.max: invalid number 0, or missing: want the 5 permits of the rate to `,
		`pools: [ { name: default } ]`:                                         `pools[0].concurrency: invalid number 0, or missing: want 1 to `,
		`limits: { a: { rate: 10/min } }`:                                      `interval "min" is not a duration such as 500ms, 1s, 1m or 24h`,
	} {
		if _, err := Parse("c.yaml", []byte(yaml)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n\t%v, want\n\t%s", yaml, err, want)
		}
	}
}

// TestExamplesOfHints: what an error gives as an example is right where it gives it.
func TestExamplesOfHints(t *testing.T) {
	for kind, example := range examples {
		yaml, closing := "", ""
		for name := range strings.SplitSeq(kind, ".") {
			switch {
			case name != "*":
				yaml += "{ " + name + ": "
				closing = " }" + closing
			case strings.HasSuffix(yaml, "{ pools: "):
				yaml += "[ "
				closing = " ]" + closing
			default:
				yaml += "{ x: "
				closing = " }" + closing
			}
		}
		_, err := Parse("c.yaml", []byte(yaml+example+closing))
		if err != nil && (strings.Contains(err.Error(), "unknown key") || strings.Contains(err.Error(), "invalid value")) {
			t.Errorf("%s: %v", yaml+example+closing, err)
		}
	}
}
