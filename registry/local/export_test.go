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

// Bury removes a file that still holds data.
func Bury(f Files, name string, data []byte) error { return f.bury(name, data) }

// Hooked is a file system that asks before and after each call.
type Hooked struct {
	Files
	Before func(op, name string) error
	After  func(op, name string) error
	// Listed, if set, changes what a list says.
	Listed func(names []string) []string
}

func (h Hooked) do(op, name string, call func() error) error {
	if err := h.Before(op, name); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return h.After(op, name)
}

func (h Hooked) list() (names []string, err error) {
	err = h.do("list", "", func() error { names, err = h.Files.list(); return err })
	if err == nil && h.Listed != nil {
		names = h.Listed(names)
	}
	return names, err
}

func (h Hooked) read(name string) (raw []byte, err error) {
	err = h.do("read", name, func() error { raw, err = h.Files.read(name); return err })
	return raw, err
}

func (h Hooked) replace(name string, data []byte) error {
	return h.do("replace", name, func() error { return h.Files.replace(name, data) })
}

func (h Hooked) patch(name string, data []byte, offset int64) error {
	return h.do("patch", name, func() error { return h.Files.patch(name, data, offset) })
}

func (h Hooked) remove(name string) error {
	return h.do("remove", name, func() error { return h.Files.remove(name) })
}

// Owners counts the records that a registry keeps alive or has yet to remove.
func Owners(r *Registry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owners)
}
