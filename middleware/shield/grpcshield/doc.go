// Package grpcshield puts shields (see package shield) around the calls of a
// plain gRPC client.
//
//	options, err := grpcshield.Dial(grpcshield.Client{Unary: orders, Stream: operations})
//	cc, err := grpc.NewClient(target, append(options, more...)...)
//
// What one pass through a shield is depends on the shape of the call:
//
//	unary            the whole call. May be repeated.
//	server stream    its opening, up to the first message or header: under Open.
//	                 May be repeated. The RPC begins with the first read. Each
//	                 later read: under Stream.
//	client stream,   its opening, at once, under Open, or Stream if Open may
//	bidirectional    repeat. Each write, CloseSend and bidirectional read: under
//	                 Stream. Waiting for the response of a client stream, or for
//	                 headers, is under none.
//
// Open is Unary unless it is given, Stream is none. Nothing that the caller has
// seen is repeated and nothing is kept to be sent again, but for the one request
// of a server stream until it is open.
//
// The caller gets reply, header, trailer, peer and error of the attempt that the
// shield has selected, the error as it is. A refusal of a layer is a status of its
// own (Unavailable from breakers and throttles, ResourceExhausted from limits)
// in which errors.As finds the *shield.Rejected; the end of a Timeout is
// DeadlineExceeded, and errors.As finds the *shield.TimedOut, which the end of the
// caller's own deadline is not. In the end by the caller's cancel errors.Is finds
// context.Canceled and the cause. What transports make of an end at the deadline
// (Canceled, Unknown, Unavailable) is DeadlineExceeded.
//
// A server's trailer grpc-retry-pushback-ms decides about further attempts
// unless a layer ignores it. Attempts of a Hedge have a reply of their own, which
// must be a proto.Message. A call returns when all its attempts have: they are
// cancelled, and interceptors further in must obey their ctx.
//
// There is no default shield, and no call is repeated unless a shield says so.
// This is no channel retry: see [Client.AllowChannelRetry]. An operation of a
// stream that is refused or fails ends the call; a Timeout of operations bounds
// each of them and is no idle timer. A Fallback has a reply for unary calls only.
package grpcshield
