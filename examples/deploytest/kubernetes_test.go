package deploytest

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

type labels map[string]string

type port struct {
	Name          string
	ContainerPort int    `yaml:"containerPort"`
	TargetPort    string `yaml:"targetPort"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

type selector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

// A manifest is what the tests look at in the objects of Kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas       int
		Selector       map[string]any
		Ports          []port
		MaxUnavailable int      `yaml:"maxUnavailable"`
		PodSelector    selector `yaml:"podSelector"`
		Template       struct {
			Metadata struct{ Labels, Annotations labels }
			Spec     struct {
				Grace           int             `yaml:"terminationGracePeriodSeconds"`
				SecurityContext map[string]any  `yaml:"securityContext"`
				Containers      []containerSpec `yaml:"containers"`
				Volumes         []struct {
					Name      string
					ConfigMap struct{ Name string } `yaml:"configMap"`
				}
			}
		}
	}
}

type containerSpec struct {
	Args           []string
	Ports          []port
	StartupProbe   probe `yaml:"startupProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	Lifecycle      struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	SecurityContext map[string]any `yaml:"securityContext"`
	VolumeMounts    []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
	} `yaml:"volumeMounts"`
}

// A server is a file of deploy/kubernetes, with what differs between the files.
type server struct {
	file   string
	port   string // the name of the port of its clients
	number int
	listen string
}

var servers = []server{
	{"gateway.yaml", "http", 8080, ":8080"},
	{"rls.yaml", "grpc-rls", 8081, "0.0.0.0:8081"},
}

// forEachServer runs f for each file of deploy/kubernetes.
func forEachServer(t *testing.T, f func(t *testing.T, s server, all map[string]manifest)) {
	for _, s := range servers {
		t.Run(s.file, func(t *testing.T) { f(t, s, readManifests(t, s.file)) })
	}
}

func readManifests(t *testing.T, file string) map[string]manifest {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(read(t, deploy+"/kubernetes/"+file)))
	byKind := map[string]manifest{}
	for {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return byKind
		}
		require.NoError(t, err)
		require.NotContains(t, byKind, m.Kind)
		byKind[m.Kind] = m
	}
}

func TestKubernetes_ObjectsFitTogether(t *testing.T) { forEachServer(t, objectsFitTogether) }

func objectsFitTogether(t *testing.T, s server, all map[string]manifest) {
	deployment := all["Deployment"]
	pod := deployment.Spec.Template
	require.Len(t, pod.Spec.Containers, 1)
	container := pod.Spec.Containers[0]
	selected := map[string]any{}
	for k, v := range pod.Metadata.Labels {
		selected[k] = v
	}
	assert.Equal(t, selected, all["Service"].Spec.Selector)
	assert.Equal(t, map[string]any{"matchLabels": selected}, deployment.Spec.Selector)
	assert.Equal(t, map[string]any{"matchLabels": selected}, all["PodDisruptionBudget"].Spec.Selector)
	assert.Equal(t, pod.Metadata.Labels, all["NetworkPolicy"].Spec.PodSelector.MatchLabels)
	assert.Greater(t, deployment.Spec.Replicas, all["PodDisruptionBudget"].Spec.MaxUnavailable, "one pod always serves")

	ports := map[string]int{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	assert.Equal(t, map[string]int{s.port: s.number, "admin": 9900}, ports)
	assert.Subset(t, container.Args, []string{"-listen", s.listen, "-admin", "0.0.0.0:9900"})
	assert.Equal(t, "9900", pod.Metadata.Annotations["prometheus.io/port"])
	require.Len(t, all["Service"].Spec.Ports, 1, "clients do not see the admin port")
	assert.Equal(t, s.port, all["Service"].Spec.Ports[0].Name)
	assert.Equal(t, s.port, all["Service"].Spec.Ports[0].TargetPort)
	for path, p := range map[string]probe{"/ready": container.ReadinessProbe, "/live": container.LivenessProbe} {
		assert.Equal(t, path, p.HTTPGet.Path)
		assert.Equal(t, "admin", p.HTTPGet.Port)
	}
	assert.Equal(t, container.ReadinessProbe.HTTPGet, container.StartupProbe.HTTPGet)
}

func TestKubernetes_TheFileIsTheConfigMaps(t *testing.T) {
	forEachServer(t, func(t *testing.T, _ server, all map[string]manifest) {
		pod := all["Deployment"].Spec.Template.Spec
		mount := pod.Containers[0].VolumeMounts[0]
		assert.Equal(t, pod.Volumes[0].Name, mount.Name)
		assert.Equal(t, all["ConfigMap"].Metadata.Name, pod.Volumes[0].ConfigMap.Name)
		assert.Empty(t, mount.SubPath, "a file that is mounted by subPath is never updated")
		for name := range all["ConfigMap"].Data {
			assert.Subset(t, pod.Containers[0].Args, []string{"-config", mount.MountPath + "/" + name})
		}
	})
}

// weir accepts its files on Kubernetes and, as TestQueries does not, also as they stand in deploy/gateway.
func TestGateway_AcceptsItsFiles(t *testing.T) {
	weir := program(t, "weir")
	for name, text := range map[string][]byte{
		"deploy/gateway/gateway.yaml":    read(t, deploy+"/gateway/gateway.yaml"),
		"deploy/kubernetes/gateway.yaml": []byte(readManifests(t, "gateway.yaml")["ConfigMap"].Data["gateway.yaml"]),
		"deploy/kubernetes/rls.yaml":     []byte(readManifests(t, "rls.yaml")["ConfigMap"].Data["weir.yaml"]),
	} {
		cmd := exec.CommandContext(t.Context(), weir, "check", "-strict", "-")
		cmd.Stdin = bytes.NewReader(text)
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: %s", name, out)
		assert.NotContains(t, string(out), "warning", name)
	}
}

// A pod that is told to end serves until it is out of the Service, and then has the time that the server takes at most.
func TestKubernetes_GraceIsLongEnough(t *testing.T) {
	forEachServer(t, func(t *testing.T, _ server, all map[string]manifest) {
		pod := all["Deployment"].Spec.Template.Spec
		for _, file := range all["ConfigMap"].Data {
			found := regexp.MustCompile(`shutdown_timeout: (\S+)`).FindStringSubmatch(file)
			require.NotNil(t, found)
			shutdown, err := time.ParseDuration(found[1])
			require.NoError(t, err)
			wait := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
			assert.Positive(t, wait)
			assert.Greater(t, time.Duration(pod.Grace)*time.Second, wait+shutdown)
		}
	})
}

func TestKubernetes_RunsWithoutRights(t *testing.T) {
	user := regexp.MustCompile(`(?m)^USER (\d+):\d+$`).FindStringSubmatch(string(read(t, deploy+"/Dockerfile")))
	require.NotNil(t, user)
	assert.Equal(t, "65532", user[1])
	forEachServer(t, func(t *testing.T, _ server, all map[string]manifest) {
		pod := all["Deployment"].Spec.Template.Spec
		assert.Equal(t, true, pod.SecurityContext["runAsNonRoot"])
		assert.Equal(t, map[string]any{"type": "RuntimeDefault"}, pod.SecurityContext["seccompProfile"])
		assert.Equal(t, map[string]any{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}},
		}, pod.Containers[0].SecurityContext)
		assert.EqualValues(t, 65532, pod.SecurityContext["runAsUser"])
	})
}
