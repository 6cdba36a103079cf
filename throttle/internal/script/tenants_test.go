package script

import (
	"testing"
	"time"
)

// TestDecodeTurned: a text that is no reply is an error, and what other clients told in a reply
// is left out if it makes no sense.
func TestDecodeTurned(t *testing.T) {
	const head = "100 7 2500 0 3 1.5"
	good := []any{head, "2", "a", "9 1 2 3 -\tx\t5 1 77\ty\t1 2 78", "b", "9 1 0 0 4.5\tx\t2 1 79", "3 1", "0 2.5"}
	r, found, err := DecodeTenants(good)
	if err != nil || !found || r.Room != 7 || r.Free != 2500*time.Microsecond || r.V != 1.5 || len(r.Clients) != 2 ||
		r.Clients[0].Out != 2 || r.Clients[0].Rest != -1 || r.Clients[1].Rest != 4.5 || r.Clients[0].Tenants[1] != (WaitingTenant{"y", 1, 2, 78}) ||
		r.Tags["x"] != (Tag{3, 1}) || r.Tags["y"] != (Tag{0, 2.5}) {
		t.Fatalf("%+v, %v, %v", r, found, err)
	}
	if _, found, err := DecodeTenants(int64(-1)); found || err != nil {
		t.Errorf("-1: %v, %v", found, err)
	}
	for _, text := range []string{"", "9 1 x -7 -", "9 1 0 0 -\tx\t-5 1 1", "9 1 0 0 -\tx\tno", "9 1 0 0 -\tx"} {
		r, _, err := DecodeTenants([]any{head, "1", "a", text, "3 1"})
		if err == nil && (len(r.Clients[0].Tenants) > 0 || r.Clients[0].Out != 0 || r.Clients[0].Held != 0) {
			t.Errorf("%q is believed: %+v", text, r.Clients[0])
		}
	}
	for _, reply := range []any{
		nil, "x", int64(0), []any{}, []any{head}, []any{head, "1"}, []any{head, "x"}, []any{"1 2", "0"}, []any{head, int64(0)},
		[]any{"100 7 2500 0 3 inf", "0"}, []any{head, "0", "1 1"}, []any{head, "1", "a", "9 1 0 0 -\tx\t1 1 1", "nan 1"},
	} {
		if _, _, err := DecodeTenants(reply); err == nil {
			t.Errorf("%q is taken for a reply", reply)
		}
	}
}
