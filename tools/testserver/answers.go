package testserver

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Whether servers answer is asked in their own protocol, so that it takes no driver. That a port accepts
// connections says little: PostgreSQL's does before it serves.

const answerTime = 2 * time.Second

func dial(addr string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, answerTime)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(answerTime))
}

// redisAnswers pings. A server that wants a password first answers, too.
func redisAnswers(addr string) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH") {
		return nil
	}
	return fmt.Errorf("redis answers %q", line)
}

// postgresAnswers opens a session, which needs no password, and ends it.
func postgresAnswers(addr, user, database string) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()

	const version3 = 3 << 16
	body := binary.BigEndian.AppendUint32(nil, version3)
	body = append(body, "user\x00"+user+"\x00database\x00"+database+"\x00\x00"...)
	startup := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	if _, err := conn.Write(append(startup, body...)); err != nil {
		return err
	}
	if err := untilReady(bufio.NewReader(conn)); err != nil {
		return err
	}
	_, err = conn.Write([]byte{'X', 0, 0, 0, 4})
	return err
}

// untilReady reads messages (a letter, the length with itself, the rest) up to ReadyForQuery.
func untilReady(r *bufio.Reader) error {
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(head[1:])
		if length < 4 || length > 1<<20 {
			return errors.New("this is not PostgreSQL")
		}
		body := make([]byte, length-4)
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		switch head[0] {
		case 'Z':
			return nil
		case 'E':
			return fmt.Errorf("postgres answers %q", body)
		}
	}
}
