package producer_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/jobthrottle/jobthrottle/producer"
)

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 5<<20)
	most := `{"type":"` + strings.Repeat("a", producer.MaxLine-11) + `"}`
	for _, tt := range []struct {
		name  string
		input string
		want  []string // number: type, or number! for a bad line
	}{
		{"nothing", "", nil},
		{"blank lines", "\n \n\r\n\t", nil},
		{"no end of line", `{"type":"a"}`, []string{"1: a"}},
		{"blank lines are counted", "\n{\"type\":\"a\"}\r\n\n{\"type\":\"b\"}\n", []string{"2: a", "4: b"}},
		{"bad ones in between", "x\n{\"type\":\"a\"}\n{}\n", []string{"1!", "2: a", "3!"}},
		{"a long one is passed over", long + "\n{\"type\":\"a\"}\n", []string{"1!", "2: a"}},
		{"a long one at the end", "{\"type\":\"a\"}\n" + long, []string{"1: a", "2!"}},
		{"the longest allowed", most + "\n", []string{"1: " + strings.Repeat("a", producer.MaxLine-11)}},
		{"the longest allowed, with carriage return", most + "\r\n", []string{"1: " + strings.Repeat("a", producer.MaxLine-11)}},
		{"one byte more", " " + most + "\n", []string{"1!"}},
		{"the longest allowed, after a byte order mark", "\xef\xbb\xbf" + most + "\r\n", []string{"1: " + strings.Repeat("a", producer.MaxLine-11)}},
		{"the longest allowed, after a byte order mark, at the end", "\xef\xbb\xbf" + most, []string{"1: " + strings.Repeat("a", producer.MaxLine-11)}},
		{"byte order mark", "\xef\xbb\xbf{\"type\":\"a\"}\n", []string{"1: a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := producer.NewReader(strings.NewReader(tt.input))
			var got []string
			for {
				line, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if line.Err != nil {
					got = append(got, fmt.Sprintf("%d!", line.Number))
				} else {
					got = append(got, fmt.Sprintf("%d: %s", line.Number, line.Job.Type))
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %.200v\nwant %.200v", got, tt.want)
			}
			if r.Offset() != int64(len(tt.input)) {
				t.Errorf("offset %d at the end of %d bytes", r.Offset(), len(tt.input))
			}
		})
	}
}

func TestReaderReturnsTheInputsError(t *testing.T) {
	broken := errors.New("broken")
	r := producer.NewReader(io.MultiReader(strings.NewReader("{\"type\":\"a\"}\n{\"ty"), iotest.ErrReader(broken)))
	if line, err := r.Next(); err != nil || line.Err != nil {
		t.Fatal(line, err)
	}
	if line, err := r.Next(); !errors.Is(err, broken) {
		t.Errorf("half a line before a failure gave %+v, %v", line, err)
	}
}

// TestReaderMemory reads one line of 256 MiB.
func TestReaderMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := producer.NewReader(io.LimitReader(endless{}, 256<<20))
	line, err := r.Next()
	if err != nil || line.Err == nil {
		t.Fatal(line.Number, err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16*producer.MaxLine {
		t.Errorf("allocated %d MiB", used>>20)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	p[0] = 'x'
	return len(p), nil
}

// FuzzReader checks that every line that is not blank is read, once and in turn, or refused with a *JobError.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"", "\n", "{\"type\":\"a\"}", "\xef\xbb\xbf{\"type\":\"a\"}\r\n\n{}\nx\n", "{\"type\":\"a\"}\r{\"type\":\"b\"}\n\x00\n", "\n\xef\xbb\xbf\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		r := producer.NewReader(iotest.OneByteReader(strings.NewReader(input)))
		var numbers []int
		for {
			line, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, line.Number)
			if _, ok := errors.AsType[*producer.JobError](line.Err); line.Err != nil && !ok {
				t.Fatalf("line %d: %T %v", line.Number, line.Err, line.Err)
			}
		}
		if r.Offset() != int64(len(input)) {
			t.Errorf("%d of %d bytes were read", r.Offset(), len(input))
		}
		var want []int
		for i, line := range strings.Split(strings.TrimPrefix(input, "\xef\xbb\xbf"), "\n") {
			if strings.TrimSpace(line) != "" {
				want = append(want, i+1)
			}
		}
		if !slices.Equal(numbers, want) {
			t.Errorf("lines %d, want %d", numbers, want)
		}
	})
}
