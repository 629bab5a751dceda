package grpc

import (
	"context"
	"sync"

	kselector "github.com/go-kratos/kratos/v2/selector"
	ktransport "github.com/go-kratos/kratos/v2/transport"
	"google.golang.org/grpc/metadata"
)

var _ ktransport.Transporter = (*Transport)(nil)

// Transport is the Kratos view of a call: kratos transport.FromServerContext
// and FromClientContext return one. It lives inside the call's record.
type Transport struct {
	endpoint    string
	operation   string
	request     carrier
	reply       carrier
	nodeFilters []kselector.NodeFilter
}

// Kind returns transport.KindGRPC.
func (*Transport) Kind() ktransport.Kind { return ktransport.KindGRPC }

// Endpoint returns the server's own endpoint, or the client's target.
func (t *Transport) Endpoint() string { return t.endpoint }

// Operation returns "/package.Service/Method".
func (t *Transport) Operation() string { return t.operation }

// RequestHeader returns the request metadata. On a client it is sent with
// every attempt; what is set after the first attempt has begun is not. Writing
// belongs to the goroutine of the call.
func (t *Transport) RequestHeader() ktransport.Header { return &t.request }

// ReplyHeader returns the reply metadata. On a server it travels in the header
// of a success and in the trailer of a failure; on a client it is the caller's
// own scratch: what the peer sent is read with grpc.Header and grpc.Trailer.
func (t *Transport) ReplyHeader() ktransport.Header { return &t.reply }

// NodeFilters returns the filters of the client that made the call.
func (t *Transport) NodeFilters() []kselector.NodeFilter { return t.nodeFilters }

// carrier is metadata behind Kratos's Header. Reading the incoming metadata
// copies it, so that happens on first use.
type carrier struct {
	once     sync.Once
	incoming context.Context // where to read from on first use; nil: start empty
	md       metadata.MD
}

func (c *carrier) load() metadata.MD {
	c.once.Do(func() {
		if c.incoming != nil {
			c.md, _ = metadata.FromIncomingContext(c.incoming)
		}
		if c.md == nil {
			c.md = metadata.MD{}
		}
	})
	return c.md
}

// touched reports whether anything was read or written, without loading.
func (c *carrier) touched() bool { return c.md != nil }

// pairs returns what is there as the arguments of AppendToOutgoingContext.
func (c *carrier) pairs() []string {
	if !c.touched() {
		return nil
	}
	pairs := make([]string, 0, 2*len(c.md))
	for key, values := range c.md {
		for _, value := range values {
			pairs = append(pairs, key, value)
		}
	}
	return pairs
}

// Get returns the first value of key, or "".
func (c *carrier) Get(key string) string {
	if values := c.load().Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set replaces the values of key.
func (c *carrier) Set(key, value string) { c.load().Set(key, value) }

// Add appends a value.
func (c *carrier) Add(key, value string) { c.load().Append(key, value) }

// Keys lists the keys.
func (c *carrier) Keys() []string {
	md := c.load()
	keys := make([]string, 0, len(md))
	for k := range md {
		keys = append(keys, k)
	}
	return keys
}

// Values returns all values of key.
func (c *carrier) Values(key string) []string { return c.load().Get(key) }

// Trailer is a grpc trailer as Kratos's selectors read it.
type Trailer metadata.MD

// Get returns the first value of k, or "".
func (t Trailer) Get(k string) string {
	if values := metadata.MD(t).Get(k); len(values) > 0 {
		return values[0]
	}
	return ""
}
