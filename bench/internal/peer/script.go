package peer

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

// Script limits nothing: it is the least that one script call for each permit costs.
type Script struct{ Addr string }

// Name is the peer's name in tables.
func (p Script) Name() string { return NameScript }

// Work lets a fleet call a script that does nothing.
func (p Script) Work(ctx context.Context, w fleet.Work) ([]fleet.Use, error) {
	empty := redis.NewScript("return 1")
	return fleet.Run(ctx, w, func(int) (fleet.Member, error) {
		rdb := connect(p.Addr, w)
		return fleet.Member{
			Acquire: func(ctx context.Context, _ int64) error { return empty.Run(ctx, rdb, nil).Err() },
			Close:   rdb.Close,
		}, nil
	})
}
