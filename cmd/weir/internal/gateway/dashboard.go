package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// A page is the dashboard, with the login that its actions need.
type page struct {
	*dashboard.Dashboard
}

// newDashboard returns the dashboard. Without a file with a password it only shows, also on the loopback interface: what
// can connect there is not only the operator, but every program and every user of the machine.
func (g *gateway) newDashboard(c gatewayconfig.Gateway, h *proxy.Handler) (*page, error) {
	o := dashboard.Options{
		Registry: g.registry,
		Events:   &g.events,
		Watchers: []*reload.Watcher{g.watcher},
		Stores:   g.stores.byName(),
		ShowKeys: c.Dashboard.ShowKeys,
		KeyHash:  g.keyHash,
		Check:    func(r *http.Request) ([]dashboard.CheckResult, error) { return check(h, r) },
		Logger:   g.logger,
	}
	if c.Dashboard.TokenFile != "" {
		if _, err := readToken(c.Dashboard.TokenFile); err != nil {
			return nil, fmt.Errorf("gateway.dashboard.token_file: %w", err)
		}
		o.Authorize = g.authorize
	}
	d, err := dashboard.New(o)
	return &page{d}, err
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

// errLogin asks the browser of a user for name and password.
var errLogin = errors.New("An action needs your name and the password of the gateway.") //nolint:revive,staticcheck // the user reads it as a sentence

// authorize decides about an action: the user's password must be that of the file, which is read each time, so that it can
// be changed, and there must not have been too many wrong ones. It runs within [page.ServeHTTP].
func (g *gateway) authorize(r *http.Request, _ dashboard.Action) (who string, err error) {
	token, err := readToken(g.inForce.Load().Dashboard.TokenFile)
	if err != nil {
		g.logger.Error("the password for actions cannot be read", "error", err)
		return "", errors.New("the gateway cannot read its password for actions")
	}
	l, _ := r.Context().Value(loginKey{}).(*login)
	who, password, _ := r.BasicAuth()
	if who == "" {
		l.needed = true
		return "", errLogin
	}
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(password))
	ok, wait := g.logins.try(r.Context(), g.clientOf(r), who, func() bool { return subtle.ConstantTimeCompare(want[:], got[:]) == 1 })
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

// clientOf returns the address that a request comes from, as the trusted proxies tell it.
func (g *gateway) clientOf(r *http.Request) string {
	o := g.inForce.Load().AddressOptions()
	address, err := weirhttp.ClientAddress(&o)
	if err != nil { // Parse refuses it
		return r.RemoteAddr
	}
	return address(r)
}

// roundUp rounds to whole seconds.
func roundUp(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// A login is whether the answer to a request must ask for name and password, or for patience.
type login struct {
	http.ResponseWriter
	needed bool
	wait   time.Duration
}

type loginKey struct{}

// ServeHTTP serves the dashboard. Where that refuses an action because there is no login, the answer asks for one. Where
// there were too many wrong passwords, it is 429.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := &login{ResponseWriter: w}
	p.Dashboard.ServeHTTP(l, r.WithContext(context.WithValue(r.Context(), loginKey{}, l)))
}

func (l *login) WriteHeader(status int) {
	switch {
	case status != http.StatusForbidden:
	case l.wait > 0:
		l.Header().Set("Retry-After", strconv.Itoa(int(roundUp(l.wait)/time.Second)))
		status = http.StatusTooManyRequests
	case l.needed:
		l.Header().Set("WWW-Authenticate", `Basic realm="weir gateway", charset="UTF-8"`)
		status = http.StatusUnauthorized
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (l *login) Unwrap() http.ResponseWriter { return l.ResponseWriter }
