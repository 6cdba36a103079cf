package config

import (
	"errors"
	"os"
	"testing"
)

// FuzzParse: a file is refused with a *Error, or is a configuration that is valid.
func FuzzParse(f *testing.F) {
	shipped, err := os.ReadFile("../config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(shipped)
	for _, text := range []string{
		"", "a", "limits: {a: {rate: 100/1s}}", "limits:\n  a: {rate: 1/1s, key: payload.x, guard: 1ms, smooth: true}\njobs:\n  'x:*': {limits: [a], permits: payload.n, hold: 2s}\n",
		"pools: [{name: default, concurrency: 2, queues: {a: 1}, max_waiting: 1}]", "http: {allow_hosts: [\"*.x\"], timeout: 1s}", "redis: {addrs: [a:1], password: \"${P}\"}",
		"a: &a [*a]", "? {a: b}\n: c", "--- 1\n--- 2", "redis: {db: 99999999999999999999}", "limits: {a: {rate: 1/1s, <<: {rate: 2/1s}}}", "\x00", "log: {level: [}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := Parse("config.yaml", text)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("error %T %v", err, err)
			}
			return
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
	})
}
