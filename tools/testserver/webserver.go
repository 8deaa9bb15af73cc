package testserver

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// address stands in a configuration for the host:port that the server is to listen on.
const address = "{{addr}}"

// listens reports whether something accepts connections. The log has said already that it is the server.
func listens(addr string) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// getOK returns nil if the URL answers 200.
func getOK(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_, err := get(ctx, url)
	return err
}

// plainHTTP keeps no connection open, so that no goroutine outlives a test.
var plainHTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Nginx starts an nginx, stopped at the test's end. config is what belongs inside http { }; each {{addr}} in it is replaced
// by the host:port of the server:
//
//	testserver.Nginx(t, `server { listen {{addr}}; location / { proxy_pass http://127.0.0.1:8080; } }`)
//
// Paths of files must be absolute. It runs as the user of the test, in one process.
func Nginx(t testing.TB, config string) *Server {
	t.Helper()
	nginx, err := program("WEIR_NGINX", "apt-get install nginx-light, brew install nginx", "nginx")
	return webserver(t, err, recipe{
		name: "nginx",
		says: `using the "`, // … event method, after it has opened its sockets
		// Without a master process: its workers would outlive it if it is killed.
		command: func(data string, port int) (*exec.Cmd, error) {
			file := filepath.Join(data, "nginx.conf")
			cmd := exec.Command(nginx, "-p", data, "-c", file, "-e", "stderr", "-g", "daemon off; master_process off;")
			return cmd, writeConfig(file, nginxConfig(config), port)
		},
	})
}

// nginxConfig keeps everything that nginx writes in its folder.
func nginxConfig(config string) string {
	return `error_log stderr notice;
pid nginx.pid;
events { }
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
` + config + "\n}\n"
}

// Caddy starts a Caddy, stopped at the test's end. config is a Caddyfile without global options; each {{addr}} in it is
// replaced by the host:port of the server:
//
//	testserver.Caddy(t, "http://{{addr}}\nreverse_proxy 127.0.0.1:8080")
//
// A site of https:// needs a certificate of the test (tls FILE FILE) or "tls internal", which is not installed anywhere.
func Caddy(t testing.TB, config string) *Server {
	t.Helper()
	caddy, err := program("WEIR_CADDY", "apt-get install caddy, brew install caddy", "caddy")
	return webserver(t, err, recipe{
		name: "caddy",
		says: "serving initial configuration",
		command: func(data string, port int) (*exec.Cmd, error) {
			file := filepath.Join(data, "Caddyfile")
			cmd := exec.Command(caddy, "run", "--config", file, "--adapter", "caddyfile")
			cmd.Env = []string{"HOME=" + data, "XDG_DATA_HOME=" + data, "XDG_CONFIG_HOME=" + data}
			return cmd, writeConfig(file, caddyOptions+config+"\n", port)
		},
	})
}

// caddyOptions: only the sites of the test listen, and only on this machine.
const caddyOptions = `{
	admin off
	auto_https disable_redirects
	default_bind 127.0.0.1
	skip_install_trust
}
`

// StartProgram starts a program of this repository that listens, stopped at the test's end. Each {{addr}} in args and says is
// replaced by the host:port that it is to listen on. It is ready when its output has the text says, in any case of letters, and it
// accepts connections.
func StartProgram(t testing.TB, says, program string, args ...string) *Server {
	t.Helper()
	r := recipe{name: strings.TrimSuffix(filepath.Base(program), ".exe")}
	r.command = func(_ string, port int) (*exec.Cmd, error) {
		with := make([]string, len(args))
		for i, arg := range args {
			with[i] = strings.ReplaceAll(arg, address, hostPort(port))
		}
		return exec.Command(program, with...), nil
	}
	r.says = says
	return webserver(t, nil, r)
}

func writeConfig(file, config string, port int) error {
	return os.WriteFile(file, []byte(strings.ReplaceAll(config, address, hostPort(port))), 0o600)
}

// webserver starts a program that function program looked for; missing is the error of the search.
func webserver(t testing.TB, missing error, r recipe) *Server {
	t.Helper()
	if missing != nil {
		return usable(t, nil, missing, required(""))
	}
	r.url = func(addr string) string { return "http://" + addr }
	if r.answers == nil {
		r.answers = listens
	}
	r.control = signals{end: syscall.SIGTERM}
	r.patience = 30 * time.Second
	s, err := launch(t.Context(), r)
	return ownedBy(t, usable(t, s, err, required("")))
}
