package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// A container is how a server runs in Docker, where no program of it is installed. What signals do elsewhere, Docker does here.
type container struct {
	image   string
	port    int // that it listens on inside
	command []string
	env     []string
	keeps   string // the folder that outlives a Kill; "": none

	name string // of the container and of the volume for what it keeps
}

// dockerWorks asks once: the answer may take a second.
var dockerWorks = sync.OnceValue(func() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "info").Run() == nil
})

var containers atomic.Int64

// inDocker makes r run in Docker.
func inDocker(r *recipe, c container) {
	c.name = fmt.Sprintf("weir-%s-%d-%d", r.name, os.Getpid(), containers.Add(1))
	r.patience = 3 * time.Minute // the first time, Docker fetches the image
	r.container = &c
	r.command = func(_ string, port int) (*exec.Cmd, error) {
		cmd := exec.Command("docker", c.arguments(port)...)
		_, err := cmd.StdinPipe() // nothing is written: it is what ends when we do
		return cmd, err
	}
	if c.keeps != "" {
		r.clear = func(string) { _ = docker("volume", "rm", "--force", c.name) }
	}
}

// untilStdinEnds runs a command as the container's first process, and ends it when standard input does: a
// container is Docker's child and not ours, so nothing else would end it with a test that was killed.
// PostgreSQL would wait for its clients at the first of the signals, Redis does not know the second.
const untilStdinEnds = `exec 3<&0; (cat <&3 >/dev/null; kill -TERM 1; kill -QUIT 1) & exec "$@" 3<&-`

func (c *container) arguments(port int) []string {
	args := []string{
		"run", "--rm", "--interactive", "--name", c.name,
		"--publish", fmt.Sprintf("127.0.0.1:%d:%d", port, c.port),
	}
	for _, env := range c.env {
		args = append(args, "--env", env)
	}
	if c.keeps != "" {
		args = append(args, "--volume", c.name+":"+c.keeps)
	}
	args = append(args, "--entrypoint", "sh", c.image, "-c", untilStdinEnds, "sh", "docker-entrypoint.sh")
	return append(args, c.command...)
}

func (c *container) kill(p *os.Process) {
	c.resume() // Docker kills nothing that is paused
	if docker("kill", c.name) != nil {
		_ = p.Kill() // there is no container, or not yet: what is left is the program that was to start it
	}
}

func (c *container) pause()  { _ = docker("pause", c.name) }
func (c *container) resume() { _ = docker("unpause", c.name) }
func (c *container) quit()   { _ = docker("stop", "--time", "4", c.name) }

func docker(args ...string) error { return exec.Command("docker", args...).Run() }
