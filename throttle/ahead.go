package throttle

import (
	"context"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/ahead"
)

func init() {
	ahead.Reserver = func(limit any) func(context.Context) (ahead.Reservation, error) {
		var reserve func(context.Context, int64, time.Duration) (*Reservation, error)
		switch l := limit.(type) {
		case *Limiter:
			if l.tenant != nil { // tenants take turns for permits that are near, and reserve nothing beyond
				return nil
			}
			reserve = l.Reserve
		case *Group:
			reserve = l.Reserve
		default:
			return nil
		}
		return func(ctx context.Context) (ahead.Reservation, error) {
			r, err := reserve(ctx, 1, endless)
			if err != nil {
				return nil, err
			}
			return r, nil
		}
	}
}
