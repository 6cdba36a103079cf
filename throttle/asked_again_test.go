package throttle

import (
	"context"
	"testing"
	"time"
)

// farBehind returns two limiters of a limit of 10 an hour, in two processes. All that the first two hours and more have is
// reserved by the one, so that a caller of the other has to ask again much later.
func farBehind(b *bench) (one, other *Limiter, reserved [2]*Reservation) {
	b.Helper()
	one = b.limited(guarded("10/1h"))
	other = b.limiter(b.client())
	check(b, one.Acquire(b.Context(), 10))
	for i := range reserved {
		reserved[i] = must(one.Reserve(b.Context(), 10, 24*time.Hour))
	}
	return one, other, reserved
}

// TestNextAfterOneThatLeft: a caller gets permits that are free, although one before it in its process was told that it had to
// wait for long, and left.
func TestNextAfterOneThatLeft(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		one, other, reserved := farBehind(b)
		ctx, cancel := context.WithCancel(b.Context())
		left := make(chan error, 1)
		go func() { left <- other.Acquire(ctx, 1) }()
		time.Sleep(time.Second)
		cancel()
		if err := <-left; err == nil {
			b.Fatal("it got a permit")
		}
		reserved[1].Cancel()
		reserved[0].Cancel()
		check(b, one.Release(b.Context(), 10))
		time.Sleep(time.Second)
		b.expectAvailable(one, 10)
		began := time.Now()
		check(b, other.Acquire(b.Context(), 1))
		if d := time.Since(began); d > time.Second {
			b.Errorf("it came after %v", d)
		}
	})
}

// TestSmallerBehindOneThatLeft: when a large request leaves, a small one behind it gets what is free, and does not wait until
// the large one would have asked again.
func TestSmallerBehindOneThatLeft(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		one := b.limited(guarded("100/1h"))
		other := b.limiter(b.client())
		check(b, one.Acquire(b.Context(), 60))
		for range 2 {
			must(one.Reserve(b.Context(), 60, 24*time.Hour))
		}
		ctx, cancel := context.WithCancel(b.Context())
		left, came := make(chan error, 1), make(chan error, 1)
		go func() { left <- other.Acquire(ctx, 60) }()
		time.Sleep(time.Second)
		go func() { came <- other.Acquire(b.Context(), 1) }()
		time.Sleep(time.Second)
		cancel()
		<-left
		began := time.Now()
		check(b, <-came)
		if d := time.Since(began); d > time.Second {
			b.Errorf("it came after %v", d)
		}
	})
}

// TestReservationsThatWentBack: who was told to wait for long gets what others have given back, within a window.
func TestReservationsThatWentBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		_, other, reserved := farBehind(b)
		came := make(chan error, 1)
		go func() { came <- other.Acquire(b.Context(), 1) }()
		time.Sleep(time.Second)
		reserved[1].Cancel()
		time.Sleep(time.Second)
		reserved[0].Cancel()
		check(b, <-came)
		if d := time.Since(b.begin); d > 66*time.Minute {
			b.Errorf("it came after %v, want an hour and a little", d)
		}
	})
}
