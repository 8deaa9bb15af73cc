package process

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/limiter"
)

// How many wrong passwords of an address are looked at: at first, and then one each period.
const (
	wrongPasswords = 10
	wrongPeriod    = 30 * time.Second
	maxAddresses   = 10_000
)

// A login lets actions of the dashboard pass whose user has the password of a file, which is read each time, so that it can be changed.
// Each address has a bucket of wrong passwords. A password is looked at only if there is a permit, which a right one gives back: a
// guess beyond the limit tells nothing, not even if it is right.
type login struct {
	*Process
	file  string // with the password
	wrong *limiter.PartitionedLimiter[string, string]
}

func newLogin(p *Process, file string) (*login, error) {
	l := &login{p, file, weir.Must(limiter.NewPartitionedByKey(func(address string) string { return address },
		limiter.FactoryFor[string](limiter.TokenBucketOptions{TokenLimit: wrongPasswords, TokensPerPeriod: 1, ReplenishmentPeriod: wrongPeriod}),
		&limiter.PartitionedOptions{MaxPartitions: maxAddresses}))}
	p.onClose(func() { _ = l.wrong.Close() })
	if _, err := l.password(); err != nil {
		return nil, fmt.Errorf("%s.dashboard.token_file: %w", p.Section, err)
	}
	return l, nil
}

// password returns the password of the file.
func (l *login) password() (string, error) {
	content, err := os.ReadFile(l.file)
	if err != nil {
		return "", err
	}
	password := strings.TrimSpace(string(content))
	if password == "" {
		return "", fmt.Errorf("%s: it is empty, and must have the password for actions", l.file)
	}
	return password, nil
}

type userKey struct{}

// before returns the handler with a login before each action, which is a POST.
func (l *login) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		user, password, _ := r.BasicAuth()
		ok, wait, err := l.try(r, user, password)
		if ok {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
			return
		}
		l.Logger.Warn("an action of the dashboard was refused", "user", user, "client", l.client(r), "error", err)
		switch {
		case err != nil:
			http.Error(w, "The "+l.Name+" cannot read its password for actions.", http.StatusForbidden)
		case wait > 0:
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			http.Error(w, "There were too many wrong passwords.", http.StatusTooManyRequests)
		default:
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Basic realm=%q, charset="UTF-8"`, "weir "+l.Name))
			http.Error(w, "An action needs your name and the password of the "+l.Name+".", http.StatusUnauthorized)
		}
	})
}

// try reports whether the user has the password. If wait is not 0, it was not looked at, and the next one is after wait.
func (l *login) try(r *http.Request, user, password string) (ok bool, wait time.Duration, err error) {
	right, err := l.password()
	if err != nil || user == "" {
		return false, 0, err
	}
	lease, err := l.wrong.TryAcquire(r.Context(), l.client(r), 1)
	if err != nil || !lease.Acquired() {
		wait, _ = lease.RetryAfter()
		return false, max(wait, time.Second), nil
	}
	want, got := sha256.Sum256([]byte(right)), sha256.Sum256([]byte(password))
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return false, 0, nil
	}
	lease.Refund()
	return true, 0, nil
}

// client returns the address that a request comes from.
func (l *login) client(r *http.Request) string {
	if l.Client != nil {
		return l.Client(r)
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// authorize tells the dashboard who has logged in.
func authorize(r *http.Request, _ dashboard.Action) (who string, err error) {
	user, ok := r.Context().Value(userKey{}).(string)
	if !ok {
		return "", errors.New("there was no login")
	}
	return user, nil
}
