package grpc

import "context"

// The two chains. Each is one ordered list, outermost first, built once at
// construction; a call brings its state along, so a layer allocates nothing
// per call. Example_chains prints them. The server's list is serverLayers.

// clientHandler is the rest of the client chain below a layer. ctx derives
// from the call's record; req is nil for streams.
type clientHandler func(ctx context.Context, call *clientCall, req any) error

type clientLayer struct {
	name string
	wrap func(next clientHandler) clientHandler
}

// clientLayers is the chain of a client. The first three run once a logical
// call, the rest once a try.
func (c *client) clientLayers() []clientLayer {
	return []clientLayer{
		{"call", c.callLayer},         // RPCInfo, start and finish exactly once
		{"timeout", c.timeoutLayer},   // the client's own, told from the caller's by its cause
		{"user", c.userLayer},         // middlewares and call interceptors, in the order given
		{"attempts", c.attemptsLayer}, // moves within an attempt; the tried set
		{"metadata", c.metadataLayer}, // our header, and what middlewares wrote
	}
}

// clientLayerNames lists the chain for people, with what grpc-go does below it.
func clientLayerNames() []string {
	var names []string
	for _, layer := range (&client{}).clientLayers() {
		names = append(names, layer.name)
	}
	return append(names, "attempt interceptors", "pick", "grpc-go")
}

// compile builds the chain.
func (c *client) compile() {
	c.chain = send
	layers := c.clientLayers()
	for i := len(layers) - 1; i >= 0; i-- {
		c.chain = layers[i].wrap(c.chain)
	}
}

// send hands the try to grpc-go, whose balancer picks.
func send(ctx context.Context, call *clientCall, req any) error {
	if call.stream != nil {
		return call.stream.try(ctx)
	}
	return call.invoker(ctx, call.method, req, call.reply, call.cc, call.opts...)
}
