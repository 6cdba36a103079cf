package throttle

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// What users were promised of places: never early, given up by who does not come
// for them, offered to who waits.

// Whoever asks a limit that has room is served at once, also if a reply comes too
// late to be of use: it takes some round trips more, and holds up nobody else.
func TestStalePermitOfALimitThatHasRoom(t *testing.T) {
	for _, r := range []string{"100000/24h", "3000/1h", "1000000/720h"} {
		for _, late := range []int64{1, 2, 3} {
			t.Run(fmt.Sprint(r, late), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					const roundTrip, slowest = 2 * time.Millisecond, 80 * time.Millisecond
					var until atomic.Int64
					l := b.troubled(guarded(r), func(call int64, send func() *redis.Cmd) *redis.Cmd {
						if call <= until.Load() {
							return slow(slowest)(send)
						}
						return slow(roundTrip)(send)
					})
					for range 400 { // beyond 256 entries a log is kept in buckets
						check(b, l.Acquire(b.Context(), 1))
						time.Sleep(time.Second)
					}
					until.Store(l.c.rdb.(*faulty).calls.Load() + late)
					a := &arrivals{b: b}
					from := time.Since(b.begin)
					first := a.wait(b.Context(), l, 1)
					b.until(from + time.Duration(late)*slowest + 5*time.Millisecond)
					next := a.wait(b.Context(), l, 1)
					a.wg.Wait()
					if l.c.Stats().Stale == 0 {
						t.Fatal("no permit was stale")
					}
					for _, w := range []*arrival{first, next} {
						if took := w.at - from - time.Duration(late)*slowest; w.err != nil || took > 100*time.Millisecond {
							t.Errorf("served %v after the last slow reply, %v", took, w.err)
						}
					}
				})
			})
		}
	}
}

// A place that was changed for a later one, just when its waiter was about to
// take it, is not taken early.
func TestChangedPlaceIsNotTakenEarly(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("1/1s"))
		b.expectTry(l, 1, true)
		r := must(l.Reserve(b.Context(), 1, time.Minute))
		if d := r.Delay(); d < ms(999) {
			t.Fatalf("a place %v ahead, want one that is not due", d)
		}
		if taken, _ := r.q.take(r.w); taken {
			t.Errorf("it was taken %v before its turn", r.Delay())
		}
	})
}
