package throttle

import (
	"fmt"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// BenchmarkChange tells what it costs a process to hear that one of its limiters has changed. It does not depend on how many
// limiters it has.
func BenchmarkChange(b *testing.B) {
	for _, limiters := range []int{100, 16_000} {
		b.Run(fmt.Sprint(limiters), func(b *testing.B) {
			c := must(New(dial(b, redistest.Start(b)), Options{}))
			defer c.Close()
			many(b, c, limiters, "limiter:%d", guarded("1000/1h"))
			for b.Loop() {
				c.core.Changed("limiter:1")
			}
		})
	}
}
