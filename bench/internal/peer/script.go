package peer

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

// Script limits nothing: it shows the least cost of one script call for each permit.
type Script struct{ Addr string }

// Name is the peer's name in tables.
func (p Script) Name() string { return NameScript }

// Join makes a fleet that calls a script that does nothing.
func (p Script) Join(ctx context.Context, w fleet.Work) (Fleet, error) {
	empty := redis.NewScript("return 1")
	return fleet.Join(w, func(int) (fleet.Member, error) {
		rdb, err := connect(ctx, p.Addr, w, w.Goroutines)
		if err != nil {
			return fleet.Member{}, err
		}
		return fleet.Member{
			Acquire: func(ctx context.Context, _ int64) error { return empty.Run(ctx, rdb, nil).Err() },
			Close:   rdb.Close,
		}, nil
	})
}
