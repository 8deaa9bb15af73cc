package registry

import "github.com/weir-go/weir/pipeline"

// OwnedLimiters is how many limiters the registry has, those of versions that are
// staged or draining included.
func (r *Registry) OwnedLimiters() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.resources.all)
}

// Definitions is how many names the registry remembers.
func (r *Registry) Definitions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pipelines.definitions)
}

// RemovedHandles is how many names without a definition the registry remembers.
func (r *Registry) RemovedHandles() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pipelines.forgetDropped()
	return len(r.pipelines.remembered)
}

// GetDuring is Get, which does f after it has found the pipeline.
func (r *Registry) GetDuring(name string, f func()) (*pipeline.Pipeline, error) {
	i, err := r.builtInstance(id{name: name})
	f()
	r.mu.Lock()
	handedOut := err == nil && i.handOut()
	r.mu.Unlock()
	if handedOut {
		return i.handle.Pipeline(), nil
	}
	return r.Get(name)
}

// IsLocked reports whether the mutex of the registry is held.
func (r *Registry) IsLocked() bool {
	if r.mu.TryLock() {
		r.mu.Unlock()
		return false
	}
	return true
}
