package figures

// Target is a figure that has to be reached.
type Target struct {
	What     string
	Scenario string
	Metric   Metric
	Peer     string
	To       string // whose figure the peer's is divided by; "" means the figure itself counts
	AtLeast  bool   // or at most
	Bound    float64
}

// Reached is the result of checking a target.
type Reached struct {
	Target
	Known  bool // there are figures to check it by
	Figure float64
	Yes    bool
}

// Check compares a target with what was measured in its scenario.
func (t Target) Check(r *Rounds) Reached {
	out := Reached{Target: t}
	if t.To == "" {
		out.Figure, out.Known = r.Figure(t.Peer, t.Metric)
	} else {
		out.Figure, out.Known = r.Ratio(t.Metric, t.Peer, t.To)
	}
	if t.AtLeast {
		out.Yes = out.Known && out.Figure >= t.Bound
	} else {
		out.Yes = out.Known && out.Figure <= t.Bound
	}
	return out
}
