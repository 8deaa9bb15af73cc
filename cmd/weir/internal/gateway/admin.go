package gateway

import (
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// listenAdmin opens the admin listener. Both results are nil if the file switches it off.
func (g *gateway) listenAdmin(c gatewayconfig.Gateway, dashboard http.Handler) (*http.Server, net.Listener, error) {
	address := cmp.Or(g.options.Admin, c.Admin)
	if address == gatewayconfig.Off {
		return nil, nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, addressError("admin", g.options.Admin, err)
	}
	return &http.Server{
		Handler:           g.adminHandler(c, dashboard),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          g.serverLog(),
	}, l, nil
}

// adminHandler returns what the admin listener serves.
func (g *gateway) adminHandler(c gatewayconfig.Gateway, dashboard http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /ready", g.ready)
	mux.Handle("GET /metrics", g.metrics.handler())
	mux.Handle("/", dashboard)
	mux.Handle("/debug/", http.NotFoundHandler()) // the dashboard serves its pages under any prefix
	if c.Pprof {
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
	Ready       bool                   `json:"ready"`
	Reason      string                 `json:"reason,omitempty"` // why not
	Config      configStatus           `json:"config"`
	Stores      map[string]storeStatus `json:"stores,omitempty"`
	Certificate *certificateStatus     `json:"certificate,omitempty"`
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

// ready says whether the gateway can take requests. A file or a certificate that is wrong, or a store that is away, is
// told and fails nothing: the gateway goes on with what it has, and taking all instances out at once would help no one.
func (g *gateway) ready(w http.ResponseWriter, _ *http.Request) {
	status := g.watcher.Status()
	r := readiness{Ready: true, Config: configStatus{File: status.Path, Loaded: status.LastLoad, Error: errorText(status.Err)}}
	var available bool
	r.Stores, available = g.stores.status()
	if g.pair != nil {
		s := g.pair.Status()
		r.Certificate = &certificateStatus{Loaded: s.Loaded, Expires: s.Expires, Error: errorText(s.Err)}
	}
	switch {
	case g.draining.Load():
		r.Ready, r.Reason = false, "the gateway stops"
	case !available && g.inForce.Load().Ready.RequireStores:
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
