package cli

import (
	"context"
	"io"
	"os"
)

// Input is an opened file of lines, or standard input.
type Input struct {
	io.Reader
	Name    string // for errors
	Regular bool   // it can be read twice and never blocks
	Start   int64  // if it is regular: where it stood, which is not the beginning if a program before this one has read a part
	Rest    int64  // if it is regular: how many bytes follow

	close func()
}

// OpenInput opens a file, or standard input if the name is "-". Reading what may block ends with
// ctx's error when ctx ends.
func OpenInput(ctx context.Context, name string, stdin io.Reader) (*Input, error) {
	in := &Input{Reader: stdin, Name: name, close: func() {}}
	if name == "-" {
		in.Name = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		in.Reader, in.close = file, func() { file.Close() }
	}
	if in.Regular, in.Start, in.Rest = restOf(in.Reader); !in.Regular {
		closeFile, out := in.close, interruptible(ctx, in.Reader)
		in.Reader, in.close = out, func() {
			out.Close()
			closeFile()
		}
	}
	return in, nil
}

// Close closes the file that was opened. It leaves standard input open.
func (in *Input) Close() { in.close() }

// restOf returns whether r is a plain file, which can be read twice and never blocks. If it is,
// it also returns where r stands, and how many bytes follow.
func restOf(r io.Reader) (regular bool, start, rest int64) {
	file, ok := r.(*os.File)
	if !ok {
		return false, 0, 0
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, 0, 0
	}
	if start, err = file.Seek(0, io.SeekCurrent); err != nil {
		return false, 0, 0
	}
	return true, start, max(info.Size()-start, 0)
}

// interruptible returns a reader of r that ends with ctx's error when ctx ends. A blocked Read
// of r cannot be ended: its goroutine stays until r returns, or the process exits. Close ends
// everything else.
func interruptible(ctx context.Context, r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}
