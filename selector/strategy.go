package selector

// Strategy is a way to choose. It is a stateless description; what it
// remembers lives in its pickers and in the nodes.
type Strategy interface {
	// Name is the name under which Kratos and policy documents know it.
	Name() string
	// Build makes a picker over nodes; it keeps the slice, which must not
	// change any more. Build is called when the set of nodes or a weight
	// changed, not when a node became ready. previous is the picker that is
	// replaced, or nil: rotation and positions continue from it; a picker of
	// another strategy is ignored. Calls that still use previous are not
	// disturbed.
	Build(nodes []*Node, previous Picker) Picker
}

// Picker chooses a node for each call.
type Picker interface {
	// Pick returns a node that the request allows, nil when there is none. It
	// never blocks, never allocates, keeps nothing of r, reads no clock, and is
	// safe for concurrent use. It counts nothing: the caller calls Begin.
	Pick(r *Request) *Node
}

// Preferrer is a Picker for which a request has one home among all nodes,
// ready or not (chash). A balancer may wait for it a while before it picks
// another.
type Preferrer interface {
	Picker
	// Preferred returns the first choice for r, whether it is ready or not: of
	// weight above 0, untried, passing the filter; nil when there is no such
	// node or the request has no key.
	Preferred(r *Request) *Node
}

// Request is one pick. The zero value picks among all ready nodes. A Request
// escapes to the heap when it is passed to a Picker, so keep it in the record of
// the call.
type Request struct {
	Now     int64  // monotonic nanoseconds, same clock as Begin; 0 switches off what depends on time
	Hash    uint64 // key of the call for chash, see HashKey; used only with HasHash
	HasHash bool
	Tried   *Tried           // nodes not to pick, may be nil
	Filter  func(*Node) bool // further condition, may be nil; must be fast and safe for concurrent use
}

// Allows reports whether n may be picked: ready, weight above 0, untried,
// passing the filter.
func (r *Request) Allows(n *Node) bool { return n.ready.Load() && r.Admits(n) }

// Admits is Allows for a node that need not be ready.
func (r *Request) Admits(n *Node) bool {
	return n.weight.Load() > 0 && (r.Tried == nil || !r.Tried.Has(n)) && (r.Filter == nil || r.Filter(n))
}
