package process

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/reload"
)

// A page is the dashboard, with the login that its actions need.
type page struct {
	*dashboard.Dashboard
	name string // of the server
}

// newDashboard returns the dashboard. Without a file with a password it only shows, also on the loopback interface: what
// can connect there is not only the operator, but every program and every user of the machine.
func (p *Process) newDashboard(options AdminOptions) (*page, error) {
	o := dashboard.Options{
		Registry: p.Registry,
		Events:   &p.Events,
		Watchers: []*reload.Watcher{p.Watcher},
		Stores:   p.Stores.ByName(),
		ShowKeys: options.Dashboard.ShowKeys,
		KeyHash:  p.KeyHash,
		Check:    options.Check,
		Logger:   p.Logger,
	}
	if file := options.Dashboard.TokenFile; file != "" {
		if _, err := readToken(file); err != nil {
			return nil, fmt.Errorf("%s.dashboard.token_file: %w", p.Section, err)
		}
		l := &loginOptions{process: p, file: file, client: options.Client}
		if l.client == nil {
			l.client = hostOf
		}
		o.Authorize = l.authorize
	}
	d, err := dashboard.New(o)
	return &page{d, p.Name}, err
}

// hostOf returns the address that the connection of a request comes from.
func hostOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// readToken returns the password of the file.
func readToken(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("%s: it is empty, and must have the password for actions", file)
	}
	return token, nil
}

// loginOptions say which passwords are right.
type loginOptions struct {
	process *Process
	file    string // with the password
	client  func(r *http.Request) string
}

// authorize decides about an action: the user's password must be that of the file, which is read each time, so that it can
// be changed, and there must not have been too many wrong ones. It runs within [page.ServeHTTP].
func (o *loginOptions) authorize(r *http.Request, _ dashboard.Action) (who string, err error) {
	token, err := readToken(o.file)
	if err != nil {
		o.process.Logger.Error("the password for actions cannot be read", "error", err)
		return "", fmt.Errorf("the %s cannot read its password for actions", o.process.Name)
	}
	// It asks the browser of a user for name and password, and the user reads it as a sentence.
	errLogin := fmt.Errorf("An action needs your name and the password of the %s.", o.process.Name) //nolint:revive,staticcheck // see above
	l, _ := r.Context().Value(loginKey{}).(*login)
	who, password, _ := r.BasicAuth()
	if who == "" {
		l.needed = true
		return "", errLogin
	}
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(password))
	ok, wait := o.process.logins.try(r.Context(), o.client(r), who, func() bool { return subtle.ConstantTimeCompare(want[:], got[:]) == 1 })
	switch {
	case ok:
		return who, nil
	case wait > 0:
		l.wait = wait
		return "", fmt.Errorf("there were too many wrong passwords; try again in %s", roundUp(wait))
	default:
		l.needed = true
		return "", errLogin
	}
}

// roundUp rounds to whole seconds.
func roundUp(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// A login is whether the answer to a request must ask for name and password, or for patience.
type login struct {
	http.ResponseWriter
	realm  string
	needed bool
	wait   time.Duration
}

type loginKey struct{}

// ServeHTTP serves the dashboard. Where that refuses an action because there is no login, the answer asks for one. Where
// there were too many wrong passwords, it is 429.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := &login{ResponseWriter: w, realm: "weir " + p.name}
	p.Dashboard.ServeHTTP(l, r.WithContext(context.WithValue(r.Context(), loginKey{}, l)))
}

func (l *login) WriteHeader(status int) {
	switch {
	case status != http.StatusForbidden:
	case l.wait > 0:
		l.Header().Set("Retry-After", strconv.Itoa(int(roundUp(l.wait)/time.Second)))
		status = http.StatusTooManyRequests
	case l.needed:
		l.Header().Set("WWW-Authenticate", fmt.Sprintf(`Basic realm=%q, charset="UTF-8"`, l.realm))
		status = http.StatusUnauthorized
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (l *login) Unwrap() http.ResponseWriter { return l.ResponseWriter }
