package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

var browsers = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chromium-headless-shell"}

// StartChromium starts a Chromium without a window, stopped at the test's end. The URL of the server is that of DevTools:
// GET URL/json/version returns its WebSocket, and PUT URL/json/new?address opens a page. flags follow those of
// Chromium.
func StartChromium(t testing.TB, flags ...string) *Server {
	t.Helper()
	program := needed(t, "WEIR_CHROMIUM", "apt-get install chromium, brew install chromium", browsers...)
	return webserver(t, recipe{
		name:    "chromium",
		says:    "devtools listening on",
		answers: func(addr string) error { return getOK("http://" + addr + "/json/version") },
		command: func(data string, port int) (*exec.Cmd, error) {
			ours := append(chromiumFlags(filepath.Join(data, "profile")), "--remote-debugging-port="+strconv.Itoa(port), "--remote-allow-origins=*")
			return exec.Command(program, append(ours, flags...)...), nil
		},
	})
}

func chromiumFlags(profile string) []string {
	flags := []string{
		"--headless=new",
		"--user-data-dir=" + profile,
		"--no-first-run",
		"--disable-background-networking",
		"--disable-component-update",
		"--disable-default-apps",
		"--disable-dev-shm-usage", // a container's /dev/shm has 64 MB
		"--disable-extensions",
		"--disable-gpu",
		"--disable-sync",
		"--hide-scrollbars",
		"--metrics-recording-only",
		"--mute-audio",
		"--password-store=basic",
	}
	if os.Geteuid() == 0 {
		flags = append(flags, "--no-sandbox") // Chromium does not start as root with it
	}
	return flags
}
