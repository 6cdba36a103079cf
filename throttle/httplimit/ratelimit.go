package httplimit

import (
	"time"

	"github.com/dunglas/httpsfv"
)

// readFields reads the two fields of the IETF draft: RateLimit-Policy has the
// limits, RateLimit what is left of them.
func (r *reader) readFields() {
	for _, m := range r.list("RateLimit-Policy") {
		if q, ok := policy(m); !ok || q.Name != "" && r.named(q.Name, q.Partition) != nil {
			r.Ignored++
		} else {
			r.Quotas = append(r.Quotas, q)
		}
	}
	told := map[[2]string]bool{}
	for _, m := range r.list("RateLimit") {
		left, ok := serviceLimit(m)
		id := [2]string{left.Name, left.Partition}
		if !ok || told[id] {
			r.Ignored++
			continue
		}
		told[id] = true
		if q := r.named(left.Name, left.Partition); q != nil {
			q.Remaining, q.Reset = left.Remaining, left.Reset
		} else {
			r.Quotas = append(r.Quotas, left)
		}
	}
}

// list reads a field that is a list of RFC 9651. One mistake makes the whole list invalid, as
// that RFC requires.
func (r *reader) list(name string) httpsfv.List {
	values := r.header.Values(name)
	size := 0
	for _, v := range values {
		size += len(v)
	}
	if size == 0 {
		return nil
	}
	if size > maxField {
		r.Ignored++
		return nil
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		r.Ignored++
		return nil
	}
	if extra := len(list) - maxQuotas; extra > 0 {
		r.Ignored += extra
		list = list[:maxQuotas]
	}
	return list
}

// policy reads an item of RateLimit-Policy: "name";q=100;w=60, or 100;w=60 as in the draft's
// versions up to 06.
func policy(m httpsfv.Member) (Quota, bool) {
	item, ok := m.(httpsfv.Item)
	if !ok {
		return Quota{}, false
	}
	q := Quota{Unit: Requests, Remaining: -1, Reset: -1}
	switch v := item.Value.(type) {
	case string:
		q.Name = v
		q.Limit, ok = integer(item, "q")
	case int64:
		q.Limit = v
	default:
		return q, false
	}
	if !ok || q.Limit <= 0 || !partition(item, &q) {
		return q, false
	}
	if v, has := item.Params.Get("w"); has {
		w, isInt := v.(int64)
		if !isInt || w <= 0 {
			return q, false
		}
		q.Window = seconds(w)
	}
	if v, has := item.Params.Get("qu"); has {
		unit, isString := v.(string)
		if !isString || unit == "" {
			return q, false
		}
		q.Unit = unit
	}
	return q, true
}

// serviceLimit reads an item of RateLimit: "name";r=50;t=30.
func serviceLimit(m httpsfv.Member) (Quota, bool) {
	q := Quota{Unit: Requests, Remaining: -1, Reset: -1}
	item, ok := m.(httpsfv.Item)
	if !ok {
		return q, false
	}
	if q.Name, ok = item.Value.(string); !ok {
		return q, false
	}
	if q.Remaining, ok = integer(item, "r"); !ok || q.Remaining < 0 || !partition(item, &q) {
		return q, false
	}
	if v, has := item.Params.Get("t"); has {
		t, isInt := v.(int64)
		if !isInt || t < 0 {
			return q, false
		}
		q.Reset = seconds(t)
	}
	return q, true
}

func integer(item httpsfv.Item, key string) (int64, bool) {
	v, _ := item.Params.Get(key)
	n, ok := v.(int64)
	return n, ok
}

// partition reads the pk parameter, and reports whether it is absent or good.
func partition(item httpsfv.Item, q *Quota) bool {
	v, has := item.Params.Get("pk")
	if !has {
		return true
	}
	key, ok := v.([]byte)
	q.Partition = string(key)
	return ok
}

// seconds is n seconds, or maxWindow if that is less.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(maxWindow/time.Second))) * time.Second
}
