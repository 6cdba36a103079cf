package throttle

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// What was used before Redis's clock was set back still counts when a client that knows the time
// pauses the limiter, or changes its rate: it is not taken for reservations.
func TestChangeOfALimitWhoseClockWasSetBack(t *testing.T) {
	t.Parallel()
	changes := map[string]func(b *bench, l *Limiter){
		"pause":      func(b *bench, l *Limiter) { check(b, l.Pause(b.Context(), ms(200))) },
		"lower rate": func(b *bench, l *Limiter) { must(l.UpdateRate(b.Context(), guarded("9/10s"))) },
		"late pause": func(b *bench, l *Limiter) { check(b, l.Pause(b.Context(), ms(200))) },
	}
	for name, change := range changes {
		for _, by := range []time.Duration{ms(50), ms(500), 3 * time.Second, 12 * time.Second, time.Minute, time.Hour} {
			for _, who := range []string{"its user", "another handle", "a member of a group", "a process that uses another limit", "a new process"} {
				if who == "a new process" && name != "late pause" {
					continue // nobody has told Redis, and it does not know
				}
				t.Run(name+"/"+by.String()+"/"+who, func(t *testing.T) {
					underFakeTime(t, func(b *bench) {
						clock := newSetClock(b)
						l := b.limited(guarded("10/10s"))
						uses := l.Acquire
						if who == "a member of a group" {
							other := must(l.c.LimiterWithRate("other", guarded("100/1s")))
							uses = must(l.c.Group(l, other)).Acquire
						}
						check(b, uses(b.Context(), 1))
						time.Sleep(2 * time.Hour)
						check(b, uses(b.Context(), 10))
						used := time.Now()
						changer := l
						switch who {
						case "another handle", "a member of a group":
							changer = b.limiter(l.c)
						case "a new process":
							changer = b.limiter(b.client())
						case "a process that uses another limit":
							changer = b.limiter(b.client())
							check(b, must(changer.c.LimiterWithRate("other", guarded("100/1s"))).Acquire(b.Context(), 1))
						}
						clock.step(-by)
						time.Sleep(ms(5))
						if name == "late pause" { // when a client has asked already
							ctx, cancel := context.WithTimeout(b.Context(), ms(5))
							if err := uses(ctx, 1); err == nil {
								b.Error("used up, and one more when the clock is back")
							}
							cancel()
						}
						change(b, changer)
						time.Sleep(ms(250))
						check(b, l.Acquire(b.Context(), 1))
						if d := time.Since(used); d < 10*time.Second {
							b.Errorf("used up, and one more %v later", d)
						}
					})
				})
			}
		}
	}
}

// The same for the limit of each client, if another client pauses it.
func TestPauseByAnotherOfALimitWhoseClockWasSetBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock := newSetClock(b)
		r := guarded("10/10s")
		r.Type = PerClient
		l := b.limited(r)
		other := b.limiter(b.client())
		check(b, other.Acquire(b.Context(), 1))
		check(b, l.Acquire(b.Context(), 1))
		time.Sleep(time.Minute)
		check(b, l.Acquire(b.Context(), 1))
		time.Sleep(5 * time.Second)
		check(b, l.Acquire(b.Context(), 9)) // without announcing that it is there
		used := time.Now()
		clock.step(-ms(500))
		time.Sleep(ms(5))
		check(b, other.Pause(b.Context(), ms(100)))
		time.Sleep(ms(150))
		check(b, l.Acquire(b.Context(), 9))
		if d := time.Since(used); d < 9*time.Second {
			b.Errorf("9 of 10, and 9 more %v later", d)
		}
	})
}

// A client that was idle while the rate was changed still knows that Redis's clock was set back,
// and is heard.
func TestIdleClientKnowsTheClockWasSetBack(t *testing.T) {
	for _, by := range []time.Duration{ms(1100), ms(1500), ms(2500), 5 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				clock := newSetClock(b)
				busy := b.limited(guarded("10/1s"))
				idle := b.limiter(b.client())
				check(b, idle.Acquire(b.Context(), 1))
				check(b, busy.Acquire(b.Context(), 1))
				time.Sleep(2 * time.Second)
				must(busy.UpdateRate(b.Context(), guarded("5/1s")))
				time.Sleep(30 * time.Second)
				check(b, busy.Acquire(b.Context(), 5))
				used := time.Now()
				clock.step(-by)
				time.Sleep(ms(5))
				check(b, idle.Acquire(b.Context(), 5))
				if d := time.Since(used); d < time.Second {
					b.Errorf("5 of 5, and 5 more %v later", d)
				}
			})
		})
	}
}

// The same for a process that has not asked for this limit before: it knows the clock from
// another limit.
func TestClockSetBackIsKnownByAnotherLimit(t *testing.T) {
	for _, by := range []time.Duration{ms(1100), ms(1500), ms(2500), 5 * time.Second, time.Hour} {
		for _, group := range []bool{false, true} {
			t.Run(fmt.Sprint(by, " group ", group), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					clock := newSetClock(b)
					first := b.limited(guarded("10/1s"))
					second := b.limiter(b.client())
					other := must(second.c.LimiterWithRate("other", guarded("100/1s")))
					check(b, other.Acquire(b.Context(), 1))
					time.Sleep(30 * time.Second)
					check(b, first.Acquire(b.Context(), 10))
					used := time.Now()
					clock.step(-by)
					time.Sleep(ms(5))
					check(b, other.Acquire(b.Context(), 1)) // which sees that it was set back
					if group {
						check(b, must(second.c.Group(other, second)).Acquire(b.Context(), 5))
					} else {
						check(b, second.Acquire(b.Context(), 5))
					}
					if d := time.Since(used); d < time.Second {
						b.Errorf("10 of 10, and 5 more %v later", d)
					}
				})
			})
		}
	}
}

// A new process knows nothing of the clock. If the clock shows a time before the latest change of
// the limit, it was set back, so what was used since then counts.
func TestClockSetBackBeforeAChangeIsKnown(t *testing.T) {
	for _, by := range []time.Duration{ms(1500), 5 * time.Second, time.Hour} {
		for _, pause := range []bool{false, true} {
			t.Run(fmt.Sprint(by, " pause ", pause), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					clock := newSetClock(b)
					first := b.limited(guarded("10/1s"))
					check(b, first.Acquire(b.Context(), 10))
					used := time.Now()
					clock.step(-by)
					time.Sleep(ms(5))
					later := b.limiter(b.client())
					if pause {
						check(b, b.limiter(b.client()).Pause(b.Context(), ms(50)))
						time.Sleep(ms(100))
					}
					check(b, later.Acquire(b.Context(), 5))
					if d := time.Since(used); d < time.Second {
						b.Errorf("10 of 10, and 5 more %v later", d)
					}
				})
			})
		}
	}
}

// A change that comes while Redis's clock shows an earlier time than that of the latest change is
// a new change: a client with reservations learns of it, although nothing is announced to it.
func TestPauseIsSeenThoughTheClockIsBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock := newSetClock(b)
		other := b.limited(guarded("10/1s"))
		deaf := b.limiter(b.clientOf(struct{ redis.Scripter }{b.rdb}))
		check(b, other.Acquire(b.Context(), 1))
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
		defer cancel()
		begin, from, length := time.Now(), 4*time.Second, 2*time.Second
		time.AfterFunc(time.Second, func() { clock.step(-time.Hour) })
		time.AfterFunc(from, func() { check(b, other.Pause(b.Context(), length)) })
		late := 0
		for _, at := range used(ctx, 50, deaf) {
			switch d := at.Sub(begin); {
			case d > from+ms(110) && d < from+length:
				b.Errorf("a permit %v after the beginning of a pause of %v", d-from, length)
			case d > from+length:
				late++
			}
		}
		if late < 30 {
			b.Errorf("%d permits in the 4 s after the pause, want about 40", late)
		}
	})
}
