package script

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrPerClient is throttle.ErrPerClient.
var ErrPerClient = errors.New("a limit for each client is not shared by tenants")

// TenantKeys are the KEYS of tenants.lua. waits is the id of the client in its calls.
func TenantKeys(name, client, waits string) []string {
	keys, p := KeysOf(name, client), Prefix(name)
	return append(keys[:], p+":finish", WeightsKey(name), p+":waiting", p+":reply:"+waits)
}

// WeightsKey is where the weights of a limiter's tenants are.
func WeightsKey(name string) string { return Prefix(name) + ":weights" }

// WeightKeys are the KEYS of the script Weight, and WeightArgs its ARGV.
func WeightKeys(name string) []string {
	return []string{WeightsKey(name), Prefix(name) + ":finish", Prefix(name) + ":queues"}
}

// WeightArgs gives a tenant a weight. It weighed 1 if nobody has given it another.
func WeightArgs(name, tenant string, weight float64) []any {
	return []any{tenant, tagText(weight), 1, Prefix(name) + ":finish:"}
}

func tagText(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }

// Told is what a client says about a tenant that waits.
type Told struct {
	Tenant string
	Jobs   int64         // requests
	Cost   int64         // permits that each costs, about
	Waited time.Duration // how long the first of them has waited
}

// Charged is what a tenant has got since the last call.
type Charged struct {
	Tenant  string
	Permits int64 // negative: given back
}

// TenantCall is one call of tenants.lua.
type TenantCall struct {
	Client string
	No     uint64        // number of the call: a repeated call charges nobody twice
	Soon   time.Duration // what is due within this time is dealt
	Holds  time.Duration // for how long what is told holds
	Out    int64         // permits dealt that are not in the log yet
	Held   int64         // permits dealt that are not handed out yet
	Rest   float64       // least start tag of the tenants that are not told of; negative: there are none
	V      float64       // virtual time, of what is charged
	Alone  bool          // what is charged was granted while nobody else waited here
	Paid   []Charged
	Told   []Told
}

// Args are the ARGV of tenants.lua.
func (t *TenantCall) Args() []any {
	rest := "-"
	if t.Rest >= 0 {
		rest = tagText(t.Rest)
	}
	args := append(make([]any, 0, 10+2*len(t.Paid)+4*len(t.Told)),
		t.Client, BatchNo(t.No), t.Soon.Microseconds(), t.Holds.Microseconds(), t.Out, t.Held, rest, tagText(t.V), t.Alone, len(t.Paid))
	for _, p := range t.Paid {
		args = append(args, p.Tenant, p.Permits)
	}
	for _, w := range t.Told {
		args = append(args, w.Tenant, w.Jobs, w.Cost, max(w.Waited.Microseconds(), 0))
	}
	return args
}

// TenantReply is the reply of tenants.lua.
type TenantReply struct {
	Rate    int64
	Room    int64         // permits that there is room for soon
	Free    time.Duration // until there is room for one
	Ahead   int64         // permits that are reserved for later than soon
	Pace    int64         // half of what the limit gives until soon
	V       float64
	Clients []WaitsAt
	Tags    map[string]Tag // of the tenants that wait
}

// WaitsAt is what waits in one client.
type WaitsAt struct {
	Client    string
	Out, Held int64
	Rest      float64 // see TenantCall
	Tenants   []WaitingTenant
}

// WaitingTenant is a tenant that waits in one client.
type WaitingTenant struct {
	Name       string
	Jobs, Cost int64
	Since      int64 // us of Redis's clock
}

// Tag is how far a tenant has got.
type Tag struct{ Finish, Weight float64 }

// DecodeTenants reads the reply of tenants.lua; false if there is no such limiter. What other
// clients told is left out if it makes no sense.
func DecodeTenants(reply any) (t TenantReply, found bool, err error) {
	if n, ok := reply.(int64); ok && n == -1 {
		return t, false, nil
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) < 2 {
		return t, false, badReply("%T where a list was expected", reply)
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		if texts[i], ok = p.(string); !ok {
			return t, false, badReply("%T where a string was expected", p)
		}
	}
	d := decoder{rest: texts[0]}
	t.Rate, t.Room, t.Free, t.Ahead, t.Pace, t.V = d.next(), d.next(), d.duration(), d.next(), d.next(), d.tag()
	count := decoder{rest: texts[1]}
	clients := count.index(len(parts))
	if d.err = errors.Join(d.err, count.err); d.err != nil || 2+2*clients > len(parts) {
		return t, false, badReply("%q of %d parts", Clip(texts[0]), len(parts))
	}
	var names []string
	seen := map[string]bool{}
	for i := range clients {
		w := decodeWaits(texts[2+2*i], texts[3+2*i], func(name string) {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		})
		t.Clients = append(t.Clients, w)
	}
	tags := texts[2+2*clients:]
	if len(tags) != len(names) {
		return t, false, badReply("%d tags of %d tenants", len(tags), len(names))
	}
	t.Tags = make(map[string]Tag, len(names))
	for i, name := range names {
		d := decoder{rest: tags[i]}
		tag := Tag{d.tag(), d.tag()}
		if d.err != nil {
			return t, false, d.err
		}
		t.Tags[name] = tag
	}
	return t, true, nil
}

// tag reads a finite number that is not negative.
func (d *decoder) tag() float64 {
	word := d.word()
	x, err := strconv.ParseFloat(word, 64)
	if err != nil || !(x >= 0) || math.IsInf(x, 0) {
		d.fail("%q where a number was expected", Clip(word))
		return 0
	}
	return x
}

// decodeWaits reads what a client told. It calls name for each tenant, in the order of
// tenants.lua.
func decodeWaits(client, text string, name func(string)) WaitsAt {
	fields := strings.Split(text, "\t")
	head := strings.Split(fields[0], " ")
	w := WaitsAt{Client: client, Rest: -1}
	if len(head) == 5 {
		w.Out, w.Held = told(head[2], maxTold), told(head[3], maxTold)
		if d := (decoder{rest: head[4]}); head[4] != "-" {
			w.Rest = d.tag()
		}
	}
	for i := 1; i+1 < len(fields); i += 2 {
		name(fields[i])
		if n := strings.Split(fields[i+1], " "); len(n) == 3 && told(n[0], maxTold) > 0 {
			w.Tenants = append(w.Tenants, WaitingTenant{Name: fields[i], Jobs: told(n[0], maxTold), Cost: max(told(n[1], maxTold), 1), Since: told(n[2], math.MaxInt64)})
		}
	}
	return w
}

// maxTold is the bound of what is believed of others: permits and requests that wait.
const maxTold = 1 << 30

// told reads a number that a client told, at most most; 0 if it makes no sense.
func told(word string, most int64) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return min(n, most)
}
