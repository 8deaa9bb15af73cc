package testserver

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Runner(m)) }

// patience is how long something may take that is expected to happen. No test waits for it that passes.
const patience = 20 * time.Second

// connect opens a connection that ends with the test.
func connect(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// redis sends a command and returns the first line of the answer, and for a bulk string its text.
func redis(t *testing.T, addr, command string) string {
	t.Helper()
	conn := connect(t, addr)
	defer conn.Close()
	_, err := io.WriteString(conn, command+"\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	line = strings.TrimSpace(line)
	size, bulk := strings.CutPrefix(line, "$")
	if !bulk || size == "-1" {
		return line
	}
	n, err := strconv.Atoi(size)
	require.NoError(t, err)
	text := make([]byte, n)
	_, err = io.ReadFull(r, text)
	require.NoError(t, err)
	return string(text)
}

// A session is one of PostgreSQL.
type session struct {
	conn net.Conn
	r    *bufio.Reader
}

func openSession(t *testing.T, addr string) session {
	t.Helper()
	conn := connect(t, addr)
	s := session{conn, bufio.NewReader(conn)}
	body := "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
	s.send(t, "", body)
	require.NoError(t, untilReady(s.r))
	return s
}

// send writes a message: the letter, the length with itself, the body.
func (s session) send(t *testing.T, letter, body string) {
	t.Helper()
	message := binary.BigEndian.AppendUint32([]byte(letter), uint32(4+len(body)))
	_, err := s.conn.Write(append(message, body...))
	require.NoError(t, err)
}

// query returns the first column of the last row, or the error.
func (s session) query(t *testing.T, sql string) string {
	t.Helper()
	s.send(t, "Q", sql+"\x00")
	var answer string
	for {
		head := make([]byte, 5)
		_, err := io.ReadFull(s.r, head)
		require.NoError(t, err)
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		_, err = io.ReadFull(s.r, body)
		require.NoError(t, err)
		switch head[0] {
		case 'D': // the number of columns, the length of the first, the first
			answer = string(body[6 : 6+binary.BigEndian.Uint32(body[2:])])
		case 'E':
			answer = "error: " + string(body)
		case 'Z':
			return answer
		}
	}
}

// query is session.query in a session of its own.
func query(t *testing.T, addr, sql string) string {
	t.Helper()
	s := openSession(t, addr)
	defer s.conn.Close()
	return s.query(t, sql)
}

// refused reports whether nothing listens at addr.
func refused(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return true
	}
	conn.Close()
	return false
}
