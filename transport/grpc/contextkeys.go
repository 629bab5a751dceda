package grpc

import (
	"context"

	kselector "github.com/go-kratos/kratos/v2/selector"
	ktransport "github.com/go-kratos/kratos/v2/transport"
	"google.golang.org/grpc/metadata"
)

// A call's record answers ctx.Value for keys that other packages keep private,
// so that one allocation serves as RPCInfo, as Kratos's Transporter and as the
// carrier of our request header. The keys are learned
// through those packages' public readers; TestContextKeys is the contract.
var (
	serverTransportKey = keyOf(func(ctx context.Context) { ktransport.FromServerContext(ctx) })
	clientTransportKey = keyOf(func(ctx context.Context) { ktransport.FromClientContext(ctx) })
	selectorPeerKey    = keyOf(func(ctx context.Context) { kselector.FromPeerContext(ctx) })
	outgoingKey        = keyOf(func(ctx context.Context) { metadata.FromOutgoingContext(ctx) })
)

// keyProbe is a ctx that remembers the key it is asked for.
type keyProbe struct {
	context.Context
	key any
}

func (p *keyProbe) Value(key any) any {
	p.key = key
	return nil
}

func keyOf(read func(context.Context)) any {
	probe := &keyProbe{Context: context.Background()}
	read(probe)
	return probe.key
}

// outgoingValue returns what the ctx of an outbound call must answer for
// outgoingKey so that grpc-go sends md.
func outgoingValue(md metadata.MD) any {
	return metadata.NewOutgoingContext(context.Background(), md).Value(outgoingKey)
}
