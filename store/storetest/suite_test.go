package storetest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// servers gives each case a Memory of its own, so that its clock can be set.
type servers struct {
	mu   sync.Mutex
	byID map[string]*Memory
}

func (s *servers) of(t testing.TB) *Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.byID[t.Name()]
	if m == nil {
		m = NewMemory()
		s.byID[t.Name()] = m
	}
	return m
}

func memories() Subject {
	all := &servers{byID: map[string]*Memory{}}
	return Subject{
		New:     func(t testing.TB) backend.Backend { return all.of(t) },
		SetTime: func(_ testing.TB, b backend.Backend, micros int64) { setTime(b.(*Memory), micros) },
		Keys:    func(_ testing.TB, b backend.Backend, name string) int { return keysOf(b.(*Memory), name) },
	}
}

func setTime(m *Memory, micros int64) {
	m.Step(time.Duration(micros-m.Now()) * time.Microsecond)
}

func keysOf(m *Memory, name string) (n int) {
	m.Keys()
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.states {
		if k.name == name {
			n++
		}
	}
	for k := range m.leases {
		if k.name == name {
			n++
		}
	}
	return n
}

func TestRun_Memory(t *testing.T) { Run(t, memories()) }

// On one server all cases are at once, and real time is all there is.
func TestRun_MemoryAsOneServer(t *testing.T) {
	m := NewMemory()
	Run(t, Subject{New: func(testing.TB) backend.Backend { return m }})
}

func TestRun_MemoryWithoutListen(t *testing.T) {
	m := NewMemory()
	m.NoListen(true)
	Run(t, Subject{New: func(testing.TB) backend.Backend { return m }, NoListen: true})
}

func TestCases_UniqueNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] {
			t.Errorf("two cases are called %q", c.name)
		}
		if seen[c.name] = true; !strings.Contains(c.name, " ") {
			t.Errorf("%q is no sentence", c.name)
		}
	}
}

func TestCases_UniqueOddKeys(t *testing.T) {
	for _, list := range [][]string{oddKeys(), oddNames()} {
		seen := map[string]bool{}
		for _, s := range list {
			if seen[s] {
				t.Errorf("%q is there twice", s)
			}
			seen[s] = true
		}
	}
}
