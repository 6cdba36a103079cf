package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/limitname"
)

// TestLimitsThatShareKeysAreRefused: no two limits of a configuration have a key of Redis in common.
func TestLimitsThatShareKeysAreRefused(t *testing.T) {
	const plain, keyed = "rate: 1/1s", "rate: 1/1s, key: payload.x"
	long := strings.Repeat("a", limitname.MaxLength)
	for _, tt := range []struct {
		limits [][2]string // name and settings
		key    string      // of the error; empty if the limits are fine
		want   string
	}{
		{[][2]string{{"api", keyed}, {"api:vip", plain}}, "limits.api:vip", `"api"`},
		{[][2]string{{"api", keyed}, {"api:vip", keyed}}, "limits.api:vip", `"api"`},
		{[][2]string{{"api", keyed}, {"api:vip:x", plain}}, "limits.api:vip:x", `"api"`},
		{[][2]string{{"api:a", keyed}, {"api:a:b", plain}, {"api", plain}}, "limits.api:a:b", `"api:a"`},
		{[][2]string{{"{s}:account", keyed}, {"{s}:account:vip", plain}}, "limits.{s}:account:vip", `"{s}:account"`},
		{[][2]string{{"{s}", keyed}, {"{s}:account", plain}}, "limits.{s}:account", `"{s}"`},
		{[][2]string{{"{s}", keyed}, {"s", plain}}, "limits.{s}", `"s"`},
		{[][2]string{{"{s}", plain}, {"s", plain}}, "limits.{s}", `"s"`},
		{[][2]string{{"api", keyed}, {"{api:vip}", plain}}, "limits.{api:vip}", `"api"`},
		{[][2]string{{"api", plain}, {"{api}:permits", plain}}, "limits.{api}:permits", `"api"`},
		{[][2]string{{"{s}", plain}, {"{s}:value", keyed}}, "limits.{s}:value", `"{s}"`},
		{[][2]string{{"{s}", plain}, {"{s}:parked:called", plain}}, "limits.{s}:parked:called", `"{s}"`},
		{[][2]string{{"{s}", plain}, {"{s}:refused", plain}}, "limits.{s}:refused", `"{s}"`},
		{[][2]string{{"{s}:a", plain}, {"{s}:a:clients", plain}}, "limits.{s}:a:clients", `"{s}:a"`},
		{[][2]string{{"jobthrottle", keyed}}, "limits.jobthrottle", "jobthrottle"},
		{[][2]string{{"jobthrottle:parked", plain}}, "limits.jobthrottle:parked", "jobthrottle"},
		{[][2]string{{"{jobthrottle:parked}", plain}}, "limits.{jobthrottle:parked}", "jobthrottle"},
		{[][2]string{{"{jobthrottle:parked}:default", keyed}}, "limits.{jobthrottle:parked}:default", "jobthrottle"},
		{[][2]string{{"asynq", keyed}}, "limits.asynq", "asynq"},
		{[][2]string{{"asynq:queues", plain}}, "limits.asynq:queues", "asynq"},
		{[][2]string{{long, keyed}}, "limits." + long, "127"},

		{[][2]string{{"api", plain}, {"api:vip", plain}}, "", ""},
		{[][2]string{{"api", plain}, {"api:vip", keyed}}, "", ""},
		{[][2]string{{"api", plain}, {"api:permits", plain}}, "", ""},
		{[][2]string{{"api", keyed}, {"apis", plain}, {"api-vip", plain}}, "", ""},
		{[][2]string{{"{s}", plain}, {"{s}:account", keyed}, {"{s}:worker", plain}, {"{s}-values", keyed}}, "", ""},
		{[][2]string{{"{s}:account", keyed}, {"{s}:accounts", keyed}, {"{s2}:account", keyed}}, "", ""},
		{[][2]string{{"asynq", plain}, {"jobthrottle", plain}, {"jobthrottles", keyed}}, "", ""},
		{[][2]string{{long, plain}, {long[1:], keyed}}, "", ""},
	} {
		var names []string
		yaml := "limits:\n"
		for _, l := range tt.limits {
			names = append(names, fmt.Sprintf("%q", l[0]))
			yaml += fmt.Sprintf("  %q: { %s }\n", l[0], l[1])
		}
		yaml += fmt.Sprintf("jobs: { x: { limits: [%s] } }\n", strings.Join(names, ", "))
		_, err := Parse("config.yaml", []byte(yaml))
		cerr, refused := errors.AsType[*Error](err)
		switch {
		case tt.key == "" && err != nil:
			t.Errorf("%s: %v, want it accepted", yaml, err)
		case tt.key != "" && (!refused || cerr.Key != tt.key || !strings.Contains(cerr.Msg, tt.want) || !strings.Contains(cerr.Msg, "want")):
			t.Errorf("%s: error %v, want one of %s that names %s", yaml, err, tt.key, tt.want)
		case tt.key != "":
			at := 2 + slices.IndexFunc(tt.limits, func(l [2]string) bool { return "limits."+l[0] == tt.key })
			if cerr.Line != at || cerr.Column != 3 {
				t.Errorf("%s: at %d:%d, want %d:3", yaml, cerr.Line, cerr.Column, at)
			}
		}
	}
}
