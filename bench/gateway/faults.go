package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/tools/testserver"
)

// patience is the timeout of the route /slow, whose server does not answer.
const patience = 50 * time.Millisecond

// A fault is a server that fails, and what clients send.
type fault struct {
	name string
	idle time.Duration // after which the server closes a connection; 0: never
	// run sends requests by ask, which reports whether a proxy has answered with 200, and returns what clients without a fault got.
	run func(s *faulty, ask func(method, path string) bool) (answered, of int)
}

// faults are what the proxies are compared by.
var faults = []fault{
	{"connections closed after 10 ms without a request; 2 clients send 80 POSTs each, 10 ms apart", 10 * time.Millisecond, func(_ *faulty, ask func(method, path string) bool) (answered, of int) {
		var mu sync.Mutex
		var clients sync.WaitGroup
		for range 2 {
			clients.Go(func() {
				for range 80 {
					ok := ask(http.MethodPost, "/")
					mu.Lock()
					of++
					if ok {
						answered++
					}
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		clients.Wait()
		return answered, of
	}},
	{"8 requests of a client whose handler panics; then 20 of others", 0, func(_ *faulty, ask func(method, path string) bool) (int, int) {
		for range 8 {
			ask(http.MethodGet, "/panic")
		}
		return several(20, ask)
	}},
	{"8 requests to a slow route with a timeout; then 20 to another one", 0, func(_ *faulty, ask func(method, path string) bool) (int, int) {
		for range 8 {
			ask(http.MethodGet, "/slow")
		}
		return several(20, ask)
	}},
	{"the server is away for 8 requests; then 20 when it is back", 0, func(s *faulty, ask func(method, path string) bool) (int, int) {
		several(8, ask)
		s.stop()
		several(8, ask)
		s.start()
		return several(20, ask)
	}},
}

func several(n int, ask func(method, path string) bool) (answered, of int) {
	for i := range n {
		if ask([]string{http.MethodGet, http.MethodPost}[i%2], "/") {
			answered++
		}
	}
	return answered, n
}

// compareFaults prints the table.
func (o *options) compareFaults() error {
	dir, weir, self, err := programs()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	proxies := []struct {
		name    string
		program string
		command func(dir, listen, server string) ([]string, string) // the arguments and the file called config
	}{
		{"httputil.ReverseProxy", self, func(_, listen, server string) ([]string, string) {
			return []string{"-role", "plain", "-listen", listen, "-to", "http://" + server}, ""
		}},
		{"weir gateway", weir, func(dir, listen, server string) ([]string, string) {
			return []string{"gateway", "-config", dir + "/config", "-listen", listen, "-admin", "off"}, fmt.Sprintf(`
gateway:
  access_log: {off: true}
  upstreams: {server: {addresses: ["http://%s"]}}
  routes: [{match: /, upstream: server}, {match: /slow, upstream: server, pipeline: impatient}]
pipelines: {impatient: {strategies: [timeout: {timeout: %v}]}}
`, server, patience)
		}},
		{"nginx, keepalive 64", "nginx", func(dir, listen, server string) ([]string, string) {
			return []string{"-p", dir, "-c", dir + "/config", "-e", "stderr", "-g", "daemon off; master_process off;"}, fmt.Sprintf(`
pid nginx.pid;
events { }
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	upstream server { server %s; keepalive 64; }
	server {
		listen %s;
		proxy_http_version 1.1;
		proxy_set_header Connection "";
		location / { proxy_pass http://server; }
		location /slow { proxy_pass http://server; proxy_read_timeout %dms; }
	}
}
`, server, listen, patience.Milliseconds())
		}},
		{"caddy", "caddy", func(dir, listen, server string) ([]string, string) {
			return []string{"run", "--config", dir + "/config", "--adapter", "caddyfile"}, fmt.Sprintf(`{
	admin off
}
http://%s {
	handle /slow {
		reverse_proxy %s {
			transport http {
				response_header_timeout %v
			}
		}
	}
	handle {
		reverse_proxy %[2]s
	}
}
`, listen, server, patience)
		}},
	}
	fmt.Print("|")
	for _, p := range proxies {
		fmt.Printf(" | %s", p.name)
	}
	fmt.Println(" |\n|---" + strings.Repeat("|--:", len(proxies)) + "|")
	for i, f := range faults {
		answered, of := make([]int, len(proxies)), make([]int, len(proxies))
		for round := range o.rounds { // in turn, so that other work of the machine is there for all alike
			for j, p := range proxies {
				if _, err := exec.LookPath(p.program); err != nil {
					continue
				}
				s := newFaulty(f.idle)
				proxy, err := startProxy(filepath.Join(dir, fmt.Sprint(i, j, round)), p.program, s.address, p.command)
				if err != nil {
					s.stop()
					return err
				}
				a, n := f.run(s, asker("http://"+proxy.Addr()))
				answered[j] += a
				of[j] += n
				proxy.Stop()
				s.stop()
			}
		}
		fmt.Printf("| %s", f.name)
		for j := range proxies {
			fmt.Printf(" | %d of %d", answered[j], of[j])
		}
		fmt.Println(" |")
	}
	return nil
}

// startProxy starts a proxy with a folder of its own.
func startProxy(dir, program, server string, command func(dir, listen, server string) ([]string, string)) (*testserver.Server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return testserver.Start(context.Background(), func(listen string) (*exec.Cmd, error) {
		args, config := command(dir, listen, server)
		cmd := exec.Command(program, args...)
		cmd.Env = []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}
		return cmd, os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600)
	})
}

// asker returns a function that sends a request on a connection of its own.
func asker(to string) func(method, path string) bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	return func(method, path string) bool {
		var body io.Reader
		if method == http.MethodPost {
			body = bytes.NewReader([]byte("body"))
		}
		r, err := http.NewRequestWithContext(context.Background(), method, to+path, body)
		if err != nil {
			return false
		}
		resp, err := client.Do(r)
		if err != nil {
			return false
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return err == nil && resp.StatusCode == http.StatusOK
	}
}

// A faulty is a server that fails, on one address.
type faulty struct {
	address string
	idle    time.Duration
	server  *http.Server // of the last start
}

func newFaulty(idle time.Duration) *faulty {
	s := &faulty{address: "127.0.0.1:0", idle: idle}
	s.start()
	return s
}

// start serves, on the address that it had before.
func (s *faulty) start() {
	var l net.Listener
	err := errors.New("not yet")
	for range 100 {
		if l, err = net.Listen("tcp", s.address); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		panic(err)
	}
	s.address = l.Addr().String()
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, IdleTimeout: s.idle, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			switch r.URL.Path {
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/slow":
				<-r.Context().Done()
			}
		}),
	}
	s.server = server
	go func() { _ = server.Serve(l) }()
}

func (s *faulty) stop() { _ = s.server.Close() }
