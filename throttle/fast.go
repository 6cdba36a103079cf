package throttle

import (
	"strconv"
	"strings"
	"time"
)

// declinedRoom is what fast.lua answers where too little of a limit is free.
const declinedRoom = 1

// plain reports whether the batch is one that fast.lua can serve: one run of
// equal requests, perhaps with a stock, of limiters that are plain.
func (b *batch) plain(config []settings) bool {
	for _, s := range config {
		if !s.plain {
			return false
		}
	}
	runs := len(b.runs)
	if runs == 2 && b.runs[1].stock > 0 {
		runs = 1
	}
	return runs == 1 && !b.refresh && len(b.returns)+len(b.releases) == 0 && b.runs[0].lead == 0
}

// fastKeys are the KEYS of fast.lua for limiters whose settings are known.
func fastKeys(replyKey string, ls []*Limiter, config []settings) []string {
	n := len(ls)
	keys := make([]string, 1+3*n)
	keys[0] = replyKey
	for i, l := range ls {
		own := 0
		if config[i].perClient {
			own = 2
		}
		keys[1+i], keys[1+n+i], keys[1+2*n+i] = l.keys[1+own], l.name, l.keys[2+own]
	}
	return keys
}

// fastArgs are the ARGV of fast.lua for a number of equal requests and a stock.
func fastArgs(seq uint64, count, stock, least int64, ns []int64, config []settings) []any {
	var tail strings.Builder // of the reply that grants it all
	for _, s := range config {
		tail.WriteString(strconv.FormatInt(s.epoch, 10) + " 0 ")
	}
	tail.WriteString("0 1 " + strconv.FormatInt(count, 10) + " 0 0")
	if stock > 0 {
		tail.WriteString(" 1 " + strconv.FormatInt(stock, 10) + " 0 0")
	}
	args := append(make([]any, 0, 5+3*len(ns)), seq, count, stock, least, tail.String())
	for i, s := range config {
		var ms int64
		if s.perClient {
			ms = (s.span() + time.Millisecond - 1).Milliseconds()
		}
		args = append(args, s.seal, ns[i], ms)
	}
	return args
}
