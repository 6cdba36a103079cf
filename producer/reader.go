package producer

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Line is one job line of an input. [Reader.Next] returns it.
type Line struct {
	Number int // the first is 1; blank lines count
	Job    Job
	Err    error // a *JobError: this line is bad, the next may be good
}

// byteOrderMark is what some editors begin a file with.
const byteOrderMark = "\xef\xbb\xbf"

// Reader reads job lines. It needs the same memory however long the input and its lines are: a
// line longer than [MaxLine] is skipped, not stored.
type Reader struct {
	in     *bufio.Reader
	buf    []byte
	number int
	offset int64
}

// NewReader returns a [Reader] of in.
func NewReader(in io.Reader) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 64<<10)}
}

// Offset returns how many bytes of the input the lines so far took.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the next line that is not blank, and [io.EOF] after the last one. Any other error
// is that of the input.
func (r *Reader) Next() (Line, error) {
	for {
		length, err := r.readLine()
		if err != nil {
			return Line{}, err
		}
		switch {
		case length > MaxLine:
			return Line{Number: r.number, Err: lineTooLong(length)}, nil
		case len(bytes.TrimSpace(r.buf)) > 0:
			job, err := ParseJob(r.buf)
			return Line{Number: r.number, Job: job, Err: err}, nil
		}
	}
}

// readLine stores the next line, without its end, in buf, or only its beginning if it is longer
// than MaxLine. It returns the full length. The last line needs no line end.
func (r *Reader) readLine() (length int64, err error) {
	r.buf = r.buf[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		r.offset += int64(len(part))
		length += int64(len(part))
		if room := len(byteOrderMark) + MaxLine + len("\r\n") - len(r.buf); len(part) > room {
			r.buf = append(r.buf, part[:room]...)
		} else {
			r.buf = append(r.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && length > 0:
		case err != nil:
			return 0, err
		}
		break
	}
	if r.number++; r.number == 1 {
		trimmed := bytes.TrimPrefix(r.buf, []byte(byteOrderMark))
		length -= int64(len(r.buf) - len(trimmed))
		r.buf = trimmed
	}
	for _, end := range []string{"\n", "\r"} {
		if trimmed, found := bytes.CutSuffix(r.buf, []byte(end)); found {
			r.buf = trimmed
			length -= int64(len(end))
		}
	}
	return length, nil
}
