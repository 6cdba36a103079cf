package redisson_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// journal is a limiter's log with nothing dropped: what was written to it, as
// Redis's MONITOR tells, but for what was taken back.
type journal struct {
	key      string
	interval time.Duration
	entries  map[string]entry // by member
	lag      time.Duration    // the longest time from a JVM's reading of its clock to its script
	most     int64            // permits in a window, when its latest grant was decided
}

// entry is a grant in a log.
type entry struct {
	at   time.Duration // since 1970, by its score
	n    int64
	java bool
}

// endOfJournal is what a journal's reader waits for.
const endOfJournal = "the end of the journal"

// record watches a log until the function it returns is called.
func (q *quota) record(key string, interval time.Duration) func() *journal {
	q.Helper()
	conn, err := net.Dial("tcp", q.addr)
	check(q, err)
	lines := bufio.NewScanner(conn)
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil || !lines.Scan() || lines.Text() != "+OK" {
		q.Fatalf("MONITOR: %v, %q", err, lines.Text())
	}
	j := &journal{key: key, interval: interval, entries: make(map[string]entry)}
	read := make(chan error, 1)
	go func() {
		for lines.Scan() {
			if strings.Contains(lines.Text(), endOfJournal) {
				read <- nil
				return
			}
			if err := j.note(lines.Text()); err != nil {
				read <- err
				return
			}
		}
		read <- fmt.Errorf("MONITOR ended: %w", lines.Err())
	}()
	return func() *journal {
		q.Helper()
		defer conn.Close()
		check(q, q.rdb.Echo(q.Context(), endOfJournal).Err())
		check(q, <-read)
		return j
	}
}

// note reads one line: +SECONDS.MICROS [DB SOURCE] "COMMAND" "ARG"...
func (j *journal) note(line string) error {
	head, rest, _ := strings.Cut(line, "] ")
	var words []string
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return fmt.Errorf("line of MONITOR %q: %w", line, err)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return fmt.Errorf("line of MONITOR %q: %w", line, err)
		}
		words, rest = append(words, word), strings.TrimPrefix(rest[len(quoted):], " ")
	}
	if len(words) < 3 || words[1] != j.key {
		return nil
	}
	switch args := words[2:]; strings.ToUpper(words[0]) {
	case "ZREM":
		for _, member := range args {
			delete(j.entries, member)
		}
	case "ZADD":
		if args[0] == "NX" {
			if _, ok := j.entries[args[2]]; ok {
				return nil
			}
			args = args[1:]
		}
		written, _, _ := strings.Cut(strings.TrimPrefix(head, "+"), " ")
		for pair := range slices.Chunk(args, 2) {
			if err := j.add(written, pair[0], pair[1]); err != nil {
				return fmt.Errorf("line of MONITOR %q: %w", line, err)
			}
		}
	}
	return nil
}

func (j *journal) add(written, score, member string) error {
	seconds, err := strconv.ParseFloat(written, 64)
	if err != nil {
		return err
	}
	ms, err := strconv.ParseFloat(score, 64)
	if err != nil {
		return err
	}
	id := int(member[0])
	e := entry{
		at:   time.Duration(ms * float64(time.Millisecond)).Round(time.Microsecond),
		n:    int64(binary.LittleEndian.Uint32([]byte(member)[1+id:])),
		java: id == 16,
	}
	decided := time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
	if e.java {
		j.lag = max(j.lag, decided-e.at)
	}
	j.entries[member] = e
	j.most = max(j.most, j.busiestAround(e, decided-j.interval))
	return nil
}

// busiestAround is the most permits in any window that contains e, as far as it
// lies after since: what is older, others may have dropped by then.
func (j *journal) busiestAround(e entry, since time.Duration) (most int64) {
	for _, last := range j.entries {
		if last.at < e.at || last.at >= e.at+j.interval {
			continue
		}
		var sum int64
		for _, other := range j.entries {
			if other.at <= last.at && other.at > max(last.at-j.interval, since) {
				sum += other.n
			}
		}
		most = max(most, sum)
	}
	return most
}

// granted is how many permits each side got.
func (j *journal) granted() (java, ours int64) {
	for _, e := range j.entries {
		if e.java {
			java += e.n
		} else {
			ours += e.n
		}
	}
	return java, ours
}

// busiest is the most permits within any window of d.
func (j *journal) busiest(d time.Duration) int64 {
	var es []entry
	for _, e := range j.entries {
		es = append(es, e)
	}
	slices.SortFunc(es, func(a, b entry) int { return int(a.at - b.at) })
	var most, sum int64
	first := 0
	for _, e := range es {
		for sum += e.n; es[first].at <= e.at-d; first++ {
			sum -= es[first].n
		}
		most = max(most, sum)
	}
	return most
}
