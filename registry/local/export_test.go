package local

// Kill ends a registry as kill -9 ends its process: its heartbeats and looks
// stop, its files stay.
func Kill(r *Registry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, o := range r.owners {
		o.mu.Lock()
		o.stop()
		o.mu.Unlock()
		<-o.ended
		delete(r.owners, name)
	}
}

// Files is the seam for faults of the file system.
type Files = files

// OpenWith is New with a file system made by wrap.
func OpenWith(dir string, wrap func(Files) Files, opts ...Option) *Registry {
	return open(dir, wrap(directory{path: dir}), opts...)
}

// FileName is where a record lives.
func FileName(name, id string) string { return fileName(name, id) }
