package main

import (
	"math"
	"slices"
)

// figures are the results of one run.
type figures struct {
	Near       int     // windows until the limit was near the API's, from below, and nothing was refused; -1: never
	Early      float64 // part of the first 60 windows' requests that was refused
	Late       float64 // the same of the windows after it, up to a change
	LatePer20  float64 // refused in 20 of these windows
	Used       float64 // part of what the API allows that was used, from window 20 on
	Refused    int
	Accepted   int
	Cuts       int     // after the change: how often the limit fell without a rise in between
	Under      int     // of these, until the limit was no higher than the API's
	Back       int     // windows after the change, or after its end, until 0.9 of the API's limit was in use
	Moved      float64 // how far the limit moved while the API failed
	Oscillates float64 // how far the limit was from the API's at most, after window 60, as a part of the API's
}

// nearBelow reports whether a limit is at most 5 %, or one, below what the API allows.
func nearBelow(limit, most float64) bool { return limit <= most && limit >= most-max(0.05*most, 1) }

// count computes the figures of a run.
func (w *world) count() figures {
	f := figures{Near: -1, Back: -1}
	end := w.Windows
	if w.Change > 0 {
		end = w.Change
	}
	var early, late [2]int // accepted, refused
	var used, allowed float64
	for i, s := range w.seen {
		most := w.capAt(i)
		if f.Near < 0 && nearBelow(s.Limit, most) && s.Refused == 0 {
			f.Near = i + 1
		}
		switch {
		case i < 60 && i < end:
			early[0], early[1] = early[0]+s.Accepted, early[1]+s.Refused
		case i < end:
			late[0], late[1] = late[0]+s.Accepted, late[1]+s.Refused
		}
		if i >= 20 && i < end {
			used, allowed = used+float64(s.Accepted), allowed+most
		}
		if i >= 60 && i < end {
			f.Oscillates = max(f.Oscillates, math.Abs(s.Limit/most-1))
		}
		f.Refused, f.Accepted = f.Refused+s.Refused, f.Accepted+s.Accepted
	}
	part := func(x [2]int) float64 { return float64(x[1]) / float64(max(x[0]+x[1], 1)) }
	f.Early, f.Late, f.Used = part(early), part(late), used/max(allowed, 1)
	f.LatePer20 = float64(late[1]) / max(float64(end-60)/20, 1)
	if w.Change > 0 {
		w.countChange(&f)
	}
	return f
}

// countChange computes the figures of what happened at the change.
func (w *world) countChange(f *figures) {
	begin := w.Change
	over := begin + int((w.Other+w.Fails)/window)
	if w.Fails > 0 {
		begin++ // replies to earlier requests still arrive
	}
	last := w.Windows
	if over > begin {
		last = over
	}
	before, falling, under := 0., false, false
	for _, c := range w.limits {
		at := int(c.at / window)
		if at < begin {
			before = c.to
			continue
		}
		if at >= last {
			break
		}
		f.Moved = max(f.Moved, math.Abs(c.to-before))
		if c.to < before && !falling {
			f.Cuts++
			if !under {
				f.Under++
			}
		}
		falling = c.to < before
		under = under || c.to <= w.capAt(at)
		before = c.to
	}
	for i := over; i < w.Windows; i++ {
		if float64(w.seen[i].Accepted) >= 0.9*w.capAt(i)*float64(window)/float64(window+guard) {
			f.Back = i - over + 1
			return
		}
	}
}

// spread is the median of a figure, and the worst: the largest, or the smallest.
type spread struct {
	Median, Worst float64
	Seed          uint64 // of the worst
}

// over collects a figure of the runs with the seeds 1, 2 and so on.
func over(runs []figures, of func(figures) float64, largest bool) spread {
	var values []float64
	s := spread{}
	for i, f := range runs {
		v := of(f)
		values = append(values, v)
		if i == 0 || largest && v > s.Worst || !largest && v < s.Worst {
			s.Worst, s.Seed = v, uint64(i+1)
		}
	}
	slices.Sort(values)
	n := len(values)
	s.Median = (values[(n-1)/2] + values[n/2]) / 2
	return s
}
