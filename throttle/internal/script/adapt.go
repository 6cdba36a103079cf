package script

import (
	"strconv"
	"time"
)

// Bracket is how a limiter adapts: from Start on, between Min and Max permits.
type Bracket struct{ Start, Min, Max int64 }

// Seen is what became of permits that were to be used at one time.
type Seen struct {
	Age      time.Duration // how long ago that was
	Accepted int64         // permits of requests that the API took
	Refused  int64         // permits of requests that it refused because of its limit
}

// Report is one call of adapt.lua: what a client saw of an adaptive limiter since the last
// report. Requests about which nothing is known are in no report.
type Report struct {
	No      string  // see BatchNo
	Bracket Bracket // how it adapts, for a Redis that has lost it
	Told    int64   // permits of the limit that the API says it has; zero: it does not say
	Per     time.Duration
	Cost    int64         // the most permits that one request took, or wants to
	Longest time.Duration // of the pauses that it may cause; zero: LongestPause
	Seen    []Seen
}

// LongestPause is the longest pause after a refusal, unless somebody says otherwise.
const LongestPause = 15 * time.Minute

// ReportKeys are the KEYS of adapt.lua: reply is this client's key for its latest reply.
func ReportKeys(keys Keys, reply string) []string { return append(keys[:], reply) }

// Args are the ARGV of adapt.lua.
func (r *Report) Args() []any {
	ns := numbers(make([]byte, 0, 64))
	longest := r.Longest
	if longest == 0 {
		longest = LongestPause
	}
	ns.add(r.Told, r.Per.Microseconds(), r.Cost, longest.Microseconds())
	for _, s := range r.Seen {
		ns.add(max(s.Age.Microseconds(), 0), s.Accepted, s.Refused)
	}
	return []any{r.No, r.Bracket.text(), string(ns)}
}

func (b Bracket) text() string {
	return strconv.FormatInt(b.Start, 10) + ":" + strconv.FormatInt(b.Min, 10) + ":" + strconv.FormatInt(b.Max, 10)
}

// DecodeReport reads the reply of adapt.lua: the limit in force, and how long a permit counts.
// Both are zero if the limiter does not adapt or does not exist.
func DecodeReport(reply any) (limit int64, span time.Duration, err error) {
	text, ok := reply.(string)
	if !ok {
		return 0, 0, badReply("%T where a string was expected", reply)
	}
	d := decoder{rest: text}
	limit, span = d.next(), d.duration()
	if d.err == nil && (limit < 0 || span < 0 || d.rest != "") {
		d.fail("%q", Clip(text))
	}
	return limit, span, d.err
}

// Learnt is what is known of an adaptive limiter: field adapt of its hash, as learn.lua writes
// it.
type Learnt struct {
	Bracket
	Limit   int64     // in force
	Lo, Hi  int64     // what the API is known to accept, and what it accepts at most; zero: not known
	Phase   int64     // 1 open, 2 search, 3 probe
	Event   bool      // an event: something was refused a short time ago
	Told    int64     // what the API says
	Others  time.Time // when somebody else was last seen to use the quota; zero: never
	Cuts    int64
	Refused int64 // permits refused since it adapts
	Taken   int64 // permits accepted since it adapts
}

// DecodeLearnt reads the field; false if the limiter does not adapt.
func DecodeLearnt(field any) (l Learnt, ok bool) {
	text, _ := field.(string)
	if text == "" || text == "0" {
		return l, false
	}
	d := decoder{rest: text}
	var n [learntFields]int64
	for i := range n {
		n[i] = d.next()
	}
	if d.err != nil {
		return l, false
	}
	l = Learnt{
		Bracket: Bracket{n[0], n[1], n[2]}, Limit: n[5], Phase: n[7], Lo: n[8], Hi: n[10], Event: n[17] > 0, Told: n[27],
		Cuts: n[30], Taken: n[31], Refused: n[32],
	}
	if n[29] > 0 {
		l.Others = time.UnixMicro(n[29])
	}
	return l, true
}

// learntFields is how many numbers the field begins with: NAMES in learn.lua.
const learntFields = 38
