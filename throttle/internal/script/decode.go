package script

import (
	"strconv"
	"strings"
	"time"
)

// decoder reads integers separated by single spaces; its first error sticks.
type decoder struct {
	rest string
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = badReply(format, args...)
	}
}

func (d *decoder) next() int64 {
	if d.err != nil {
		return 0
	}
	word := d.word()
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		d.fail("%q where an integer was expected", Clip(word))
		return 0
	}
	return n
}

func (d *decoder) word() (word string) {
	word, d.rest, _ = strings.Cut(d.rest, " ")
	return word
}

// index reads a number below n.
func (d *decoder) index(n int) int {
	i := d.next()
	if i < 0 || i >= int64(n) {
		d.fail("index %d of %d", i, n)
		return 0
	}
	return int(i)
}

func (d *decoder) duration() time.Duration { return time.Duration(d.next()) * time.Microsecond }
