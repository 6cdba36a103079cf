package throttle

import (
	"testing"
	"time"
)

// A pause that is longer than the keep-alive is not forgotten before it is over, whether or not
// somebody waits, and whatever is done to the limiter meanwhile.
func TestPauseOutlivesKeepAlive(t *testing.T) {
	for name, meanwhile := range map[string]func(b *bench, l *Limiter){
		"nobody comes":    func(*bench, *Limiter) { time.Sleep(11 * time.Second) },
		"somebody waits":  func(*bench, *Limiter) {},
		"somebody tries":  func(b *bench, l *Limiter) { b.expectTry(l, 1, false); time.Sleep(11 * time.Second) },
		"permits go back": func(b *bench, l *Limiter) { check(b, l.Release(b.Context(), 1)); time.Sleep(11 * time.Second) },
		"its rate is set": func(b *bench, l *Limiter) {
			check(b, l.SetRate(b.Context(), kept(guarded("5/1s"), 5*time.Second)))
			time.Sleep(6 * time.Second)
		},
		"its rate is changed": func(b *bench, l *Limiter) {
			must(l.UpdateRate(b.Context(), kept(guarded("5/1s"), 5*time.Second)))
			time.Sleep(6 * time.Second)
		},
	} {
		for _, kind := range []RateType{Overall, PerClient} {
			t.Run(name+"/"+kind.String(), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					r := kept(guarded("10/1s"), 10*time.Second)
					r.Type = kind
					l := must(b.client().LimiterWithRate("account", r))
					b.expectTry(l, 1, true)
					check(b, l.Pause(b.Context(), time.Minute)) // Retry-After: 60
					begin := time.Now()
					meanwhile(b, l)
					check(b, l.Acquire(b.Context(), 1))
					if took := time.Since(begin); took < 59*time.Second {
						b.Errorf("paused for 1m, and a permit was had after %v", took)
					}
				})
			})
		}
	}
}

// When a long pause ends, in time or by Resume, a limiter that nobody uses expires as usual.
func TestPauseOverKeepAliveGoesOn(t *testing.T) {
	for name, end := range map[string]func(b *bench, l *Limiter){
		"in time": func(*bench, *Limiter) { time.Sleep(time.Minute) },
		"Resume":  func(b *bench, l *Limiter) { check(b, l.Resume(b.Context())) },
	} {
		for _, used := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					l := must(b.client().LimiterWithRate(b.name(), kept(guarded("10/1s"), 10*time.Second)))
					b.expectTry(l, 1, true)
					check(b, l.Pause(b.Context(), time.Minute))
					end(b, l)
					if used {
						b.expectTry(l, 1, true)
					}
					time.Sleep(10*time.Second + ms(1))
					if keys := b.keys(); len(keys) > 0 {
						b.Errorf("still there: %q", keys)
					}
				})
			})
		}
	}
}
