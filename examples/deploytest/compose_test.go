package deploytest

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A composeFile is what the tests look at in a compose file.
type composeFile struct {
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Image          string
	Build          struct{ Context, Dockerfile, Target string }
	Ports, Volumes []string
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	return decodeYAML[composeFile](t, deploy+"/compose.yaml")
}

// Docker checks the file itself where its plugin is there. It takes no engine.
func TestCompose_IsValid(t *testing.T) {
	if exec.CommandContext(t.Context(), "docker", "compose", "version").Run() != nil {
		t.Skip("no docker compose: install the plugin of Docker")
	}
	cmd := exec.CommandContext(t.Context(), "docker", "compose", "--profile", "*", "--file", deploy+"/compose.yaml", "config", "--quiet")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out), "warnings")
}

func TestCompose_FitsTogether(t *testing.T) {
	file := readCompose(t)
	for _, name := range []string{
		"partner-1", "partner-2", "load", "gateway-1", "gateway-2", "postgres", "prometheus", "grafana", "loki", "tempo", "alloy",
	} {
		assert.Contains(t, file.Services, name)
	}
	stages := regexp.MustCompile(`(?m)^FROM \S+ AS (\w+)$`).FindAllStringSubmatch(string(read(t, deploy+"/Dockerfile")), -1)
	for name, s := range file.Services {
		t.Run(name, func(t *testing.T) {
			if s.Build.Context == "" {
				// Docker Hub's names, so that no host is before the first slash, and a version.
				assert.Regexp(t, `^[a-z-]+(/[a-z-]+)?:v?\d+\.\d+(\.\d+)?$`, s.Image)
			} else {
				assert.FileExists(t, filepath.Join(deploy, s.Build.Context, s.Build.Dockerfile))
				var targets []string
				for _, stage := range stages {
					targets = append(targets, stage[1])
				}
				assert.Contains(t, targets, s.Build.Target)
			}
			for _, port := range s.Ports {
				assert.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s is published to the network", port)
			}
			for _, volume := range s.Volumes {
				source, _, _ := strings.Cut(volume, ":")
				switch {
				case strings.HasPrefix(source, "./"):
					assert.DirExists(t, filepath.Join(deploy, source))
					assert.True(t, strings.HasSuffix(volume, ":ro"), volume)
				case !strings.HasPrefix(source, "/"):
					assert.Contains(t, file.Volumes, source)
				}
			}
		})
	}
}

// What one service is told of another is the name of a service.
func TestCompose_NamesServices(t *testing.T) {
	services := readCompose(t).Services
	known := func(where, address string) {
		host, _, err := net.SplitHostPort(address)
		require.NoError(t, err, where)
		assert.Contains(t, services, host, where)
	}
	prometheus := decodeYAML[struct {
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}](t, deploy+"/prometheus/prometheus.yml")
	for _, s := range prometheus.ScrapeConfigs {
		for _, target := range s.StaticConfigs[0].Targets {
			known("prometheus.yml", target)
		}
	}
	for _, file := range []string{
		"compose.yaml", "alloy/config.alloy", "gateway/gateway.yaml", "grafana/provisioning/datasources/datasources.yaml",
	} {
		for _, found := range regexp.MustCompile(`(http|postgres)://[^\s",\]]+`).FindAllString(string(read(t, filepath.Join(deploy, file))), -1) {
			u, err := url.Parse(found)
			require.NoError(t, err, file)
			if u.Hostname() == "127.0.0.1" {
				continue // what the comment tells a reader to open
			}
			known(file, u.Host)
		}
	}
}

// Each dashboard that is in the folder is provisioned, and the first page is one of them.
func TestCompose_ProvisionsDashboards(t *testing.T) {
	compose := string(read(t, deploy+"/compose.yaml"))
	home := regexp.MustCompile(`GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH: (\S+)`).FindStringSubmatch(compose)
	require.NotNil(t, home)
	folder := filepath.Dir(home[1])
	assert.Contains(t, compose, "./grafana/dashboards:"+folder+":ro")
	assert.Contains(t, string(read(t, deploy+"/grafana/provisioning/dashboards/dashboards.yaml")), "path: "+folder+"\n")
	_, err := os.Stat(filepath.Join(deploy, "grafana/dashboards", filepath.Base(home[1])))
	assert.NoError(t, err)
}
