//go:build unix

package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
	"github.com/jobthrottle/jobthrottle/internal/wire"
)

// some returns the workers whose network is in trouble: all, or one.
func some(s *site.Site, r *rand.Rand) []*site.Worker {
	w := one(s, r)
	if r.IntN(2) == 0 {
		return s.Workers
	}
	return []*site.Worker{w}
}

func cut(ctx context.Context, s *site.Site, r *rand.Rand) error {
	workers := some(s, r)
	return every(ctx, 250*time.Millisecond, func(context.Context) error {
		for _, w := range workers {
			w.Wire().Cut()
		}
		return nil
	})
}

func delay(ctx context.Context, s *site.Site, r *rand.Rand) error {
	return trouble(ctx, some(s, r), wire.Trouble{Delay: 2 * time.Second})
}

func hold(ctx context.Context, s *site.Site, r *rand.Rand) error {
	return trouble(ctx, some(s, r), wire.Trouble{Hold: true})
}

func loseReplies(ctx context.Context, s *site.Site, r *rand.Rand) error {
	return trouble(ctx, some(s, r), wire.Trouble{LoseReplies: true})
}

func trouble(ctx context.Context, workers []*site.Worker, t wire.Trouble) error {
	for _, w := range workers {
		w.Wire().Set(t)
	}
	<-ctx.Done()
	for _, w := range workers {
		w.Wire().Set(wire.Trouble{})
	}
	return nil
}
