package registry

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
	return len(r.names.definitions)
}

// RemovedHandles is how many names without a definition the registry remembers.
func (r *Registry) RemovedHandles() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names.forgetDropped()
	return len(r.names.removed)
}
