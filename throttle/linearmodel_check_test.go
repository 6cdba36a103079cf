package throttle_test

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestCheckerTellsRightFromWrong: the checker of histories is useful only if it finds what is
// wrong. Times are in ms; the limit is 3 in 50.
func TestCheckerTellsRightFromWrong(t *testing.T) {
	const yes, no = true, false
	try := func(begin, end, n int64, granted bool) call {
		return call{verb: tried, begin: 1000 * begin, end: 1000 * end, n: n, granted: granted}
	}
	release := func(begin, end, n int64) call {
		return call{verb: released, begin: 1000 * begin, end: 1000 * end, n: n}
	}
	lost := func(client int, begin, end, n int64) call {
		return call{client: client, verb: tried, begin: 1000 * begin, end: 1000 * end, n: n, failed: true}
	}
	exchanged := func(c call) call {
		c.exchanged = 1
		return c
	}
	for _, tt := range []struct {
		name  string
		calls []call
		legal bool
	}{
		{"as it should be", []call{try(0, 1, 1, yes), try(10, 11, 2, yes), try(20, 21, 1, no), try(49, 50, 1, no), try(52, 53, 1, yes), try(54, 55, 1, no), try(62, 63, 2, yes)}, true},
		{"one too many", []call{try(0, 1, 1, yes), try(10, 11, 2, yes), try(20, 21, 1, yes)}, false},
		{"one too many, at once", []call{try(0, 9, 1, yes), try(0, 9, 1, yes), try(0, 9, 1, yes), try(0, 9, 1, yes)}, false},
		{"too early", []call{try(0, 1, 3, yes), try(48, 49, 1, yes)}, false},
		{"perhaps early, perhaps not", []call{try(0, 1, 3, yes), try(48, 50, 1, yes)}, true},
		{"too early after what perhaps was early", []call{try(0, 1, 3, yes), try(48, 50, 3, yes), try(97, 99, 3, yes)}, false},
		{"one free and refused", []call{try(0, 1, 2, yes), try(10, 11, 1, no)}, false},
		{"two free, two refused", []call{try(0, 1, 1, yes), try(10, 11, 2, no)}, false},
		{"one free, two refused", []call{try(0, 1, 2, yes), try(10, 11, 2, no)}, true},
		{"refused after its time", []call{try(0, 1, 3, yes), try(52, 53, 1, no)}, false},
		{"refused by the first", []call{try(0, 1, 1, no)}, false},
		{"either came first", []call{try(0, 5, 3, yes), try(1, 4, 1, no)}, true},
		{"both came first", []call{try(0, 5, 3, no), try(1, 4, 1, no)}, false},

		{"given back", []call{try(0, 1, 3, yes), release(2, 3, 1), try(4, 5, 1, yes), try(6, 7, 1, no)}, true},
		{"more given back than released", []call{try(0, 1, 3, yes), release(2, 3, 1), try(4, 5, 2, yes)}, false},
		{"given back and refused", []call{try(0, 1, 3, yes), release(2, 3, 1), try(4, 5, 1, no)}, false},
		{"the oldest given back", []call{try(0, 1, 1, yes), try(30, 31, 2, yes), release(35, 36, 1), try(37, 38, 1, yes), try(55, 56, 1, no)}, true},
		{"the newest given back", []call{try(0, 1, 1, yes), try(30, 31, 2, yes), release(35, 36, 1), try(37, 38, 1, yes), try(55, 56, 1, yes)}, false},
		{"what was used long ago given back", []call{try(0, 1, 3, yes), try(60, 61, 2, yes), release(62, 63, 1), try(64, 65, 2, yes), try(66, 67, 1, no)}, true},

		{"a lost reply was of a grant", []call{lost(1, 0, 1, 1), try(2, 3, 2, yes), try(4, 5, 1, no)}, true},
		{"a lost reply was of nothing", []call{lost(1, 0, 1, 1), try(2, 3, 3, yes)}, true},
		{"a lost reply charged twice", []call{lost(1, 0, 1, 1), try(2, 3, 1, yes), try(4, 5, 1, no)}, false},
		{"a lost call that arrives late", []call{lost(1, 0, 1, 1), try(2, 3, 2, yes), try(4, 5, 1, yes), try(56, 57, 2, yes), try(58, 59, 1, no)}, true},
		{"a lost reply not given back", []call{lost(1, 0, 1, 1), with(1, try(2, 3, 2, yes)), try(4, 5, 1, no)}, false},
		{"a lost reply given back, then taken", []call{lost(1, 0, 1, 1), with(1, try(2, 3, 2, yes)), try(4, 5, 1, yes)}, true},
		{"a lost reply of another client", []call{lost(0, 0, 1, 1), with(1, try(2, 3, 2, yes)), with(1, try(4, 5, 1, no))}, true},
		{"a lost reply released as the oldest", []call{lost(1, 0, 1, 1), try(2, 3, 2, yes), try(4, 5, 1, no), release(6, 7, 1), try(8, 9, 1, yes), with(1, try(10, 11, 1, no))}, true},

		{"a stale permit that was exchanged", []call{exchanged(try(0, 20, 1, yes)), try(1, 2, 2, yes), try(30, 31, 1, no)}, true},
		{"a stale permit in the way of others", []call{exchanged(try(0, 20, 1, yes)), try(1, 2, 3, no)}, true},
		{"a stale permit that was kept", []call{exchanged(try(0, 20, 1, yes)), try(21, 22, 2, no)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := porcupine.Illegal
			if tt.legal {
				want = porcupine.Ok
			}
			if got := porcupine.CheckOperationsTimeout(quota{3, 50_000}.model(), linear(tt.calls), decideWithin); got != want {
				t.Errorf("the history is %s, want %s", got, want)
			}
		})
	}
}

// with is the call of another client.
func with(client int, c call) call {
	c.client = client
	return c
}
