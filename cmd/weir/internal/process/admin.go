package process

import (
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/reload"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/stores"
)

// An admin serves the admin pages.
type admin struct {
	server    *http.Server
	listener  net.Listener // nil: the pages are off
	dashboard *dashboard.Dashboard
}

// listenAdmin opens the admin listener. Without a file with a password the dashboard only shows, also on the loopback interface: what
// can connect there is not only the operator, but every program and every user of the machine.
func (p *Process) listenAdmin(inForce *atomic.Pointer[fileconfig.Common]) (*admin, error) {
	c := inForce.Load()
	o := dashboard.Options{
		Registry: p.Registry,
		Events:   &p.Events,
		Watchers: []*reload.Watcher{p.watcher},
		Stores:   p.Stores.ByName(),
		ShowKeys: c.Dashboard.ShowKeys,
		KeyHash:  p.KeyHash,
		Check:    p.Check,
		Logger:   p.Logger,
	}
	var l *login
	var err error
	if c.Dashboard.TokenFile != "" {
		if l, err = newLogin(p, c.Dashboard.TokenFile); err != nil {
			return nil, err
		}
		o.Authorize = authorize
	}
	a := &admin{}
	if a.dashboard, err = dashboard.New(o); err != nil {
		return nil, err
	}
	if cmp.Or(p.Admin, c.Admin) == fileconfig.Off {
		return a, nil
	}
	if a.listener, err = p.Listen("admin", fileconfig.Loopback(p.Admin), c.Admin); err != nil {
		a.close()
		return nil, err
	}
	var pages http.Handler = a.dashboard
	if l != nil {
		pages = l.before(pages)
	}
	a.server = adminServer(p.adminHandler(inForce, pages))
	a.server.ErrorLog = p.ServerLog()
	return a, nil
}

// adminServer returns the server of the admin pages. It has no WriteTimeout, which would cut the stream of the dashboard.
func adminServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
}

// url returns where the admin pages are; "" if they are off.
func (a *admin) url() string {
	if a.listener == nil {
		return ""
	}
	return "http://" + a.listener.Addr().String()
}

// serve serves until close. It returns at once if the admin pages are off.
func (a *admin) serve() error {
	if a.server == nil {
		return nil
	}
	return a.server.Serve(a.listener)
}

func (a *admin) close() {
	if a.server != nil {
		_ = a.server.Close()
		_ = a.listener.Close() // serve may not have been called
	}
	_ = a.dashboard.Close()
}

// adminHandler returns what the admin listener serves.
func (p *Process) adminHandler(inForce *atomic.Pointer[fileconfig.Common], dashboard http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) { p.ready(w, inForce.Load().Ready.RequireStores) })
	mux.Handle("GET /metrics", p.metrics.handler())
	mux.Handle("/", dashboard)
	mux.Handle("/debug/", http.NotFoundHandler()) // the dashboard serves its pages under any prefix
	if inForce.Load().Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return ownHost(mux)
}

// ownHost refuses requests on the loopback interface whose host is a name of another machine. They come from a page of
// another site, open in a browser on this machine, whose name was made to lead to 127.0.0.1: to the browser, what is
// served here would be part of that site, which could read it.
func ownHost(h http.Handler) http.Handler {
	machine, _ := os.Hostname()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if local != nil && local.IP.IsLoopback() && !isOwnHost(r.Host, machine) {
			http.Error(w, "On the loopback interface, the admin listener answers to localhost, to addresses such as 127.0.0.1, and to the name of\n"+
				"the machine. A proxy before it must send one of these as Host.", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether the host of a request cannot be the name of another site.
func isOwnHost(host, machine string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || host == strings.ToLower(machine)
}

// A readiness is the body of /ready.
type readiness struct {
	Ready       bool                     `json:"ready"`
	Reason      string                   `json:"reason,omitempty"` // why not
	Config      configStatus             `json:"config"`
	Stores      map[string]stores.Status `json:"stores,omitempty"`
	Certificate *certificateStatus       `json:"certificate,omitempty"`
}

type configStatus struct {
	File   string    `json:"file"`
	Loaded time.Time `json:"loaded"`
	Error  string    `json:"error,omitempty"` // why the file, as it is now, is not in force
}

type certificateStatus struct {
	Loaded  time.Time `json:"loaded"`
	Expires time.Time `json:"expires"`
	Error   string    `json:"error,omitempty"` // why the files, as they are now, are not in force
}

// ready says whether the server can take requests. A file or a certificate that is wrong, or a store that is away, is
// told and fails nothing: the server goes on with what it has, and taking all instances out at once would help no one.
func (p *Process) ready(w http.ResponseWriter, requireStores bool) {
	status := p.watcher.Status()
	r := readiness{Ready: true, Config: configStatus{File: status.Path, Loaded: status.LastLoad, Error: errorText(status.Err)}}
	var available bool
	r.Stores, available = p.Stores.Status()
	if p.pair != nil {
		s := p.pair.Status()
		r.Certificate = &certificateStatus{Loaded: s.Loaded, Expires: p.pair.Get().Leaf.NotAfter, Error: errorText(s.Err)}
	}
	switch {
	case p.draining.Load():
		r.Ready, r.Reason = false, "the "+p.Name+" stops"
	case !available && requireStores:
		r.Ready, r.Reason = false, "a store is unavailable"
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if !r.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(r) // the client has gone
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
