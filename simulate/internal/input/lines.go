package input

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

const maxLine = 1 << 20

// A badLineError is an error of one line, after which reading can go on.
type badLineError string

func (e badLineError) Error() string { return string(e) }

// A lineReader reads lines, also of what is compressed with gzip.
type lineReader struct {
	r      *bufio.Reader
	number int64 // of the last line, from 1
}

func newLineReader(r io.Reader) (*lineReader, error) {
	b := bufio.NewReaderSize(r, maxLine)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		unpacked, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		b = bufio.NewReaderSize(unpacked, maxLine)
		if magic, err = b.Peek(3); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, errors.New("it is compressed with zstd: decompress it, or use gzip")
	case bytes.HasPrefix(magic, []byte("BZh")):
		return nil, errors.New("it is compressed with bzip2: decompress it, or use gzip")
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0xff, 0xfe}), bytes.HasPrefix(magic, []byte{0xfe, 0xff}):
		return nil, errors.New("it is UTF-16: convert it to UTF-8")
	case bytes.HasPrefix(magic, []byte{0xef, 0xbb, 0xbf}):
		_, _ = b.Discard(3) // they were peeked
	}
	return &lineReader{r: b}, nil
}

// next returns the next line that is not blank, without its end. It is valid until the next call. A line that is too long
// or has a NUL byte is a badLineError. The error after the last line is io.EOF.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.r.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			return nil, err
		}
		tooLong := false
		for errors.Is(err, bufio.ErrBufferFull) {
			tooLong = true
			_, err = l.r.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		l.number++
		if tooLong {
			return nil, badLineError(fmt.Sprintf("the line is longer than %d bytes", maxLine))
		}
		if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if bytes.IndexByte(line, 0) >= 0 {
			return nil, badLineError("the line has a NUL byte")
		}
		return line, nil
	}
}
