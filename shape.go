package materpc

// Shape is one of the four shapes of a gRPC method.
type Shape uint8

// The shapes.
const (
	Unary Shape = iota
	ClientStream
	ServerStream
	BidiStream
)

// ShapeOf returns the shape of a method whose sides stream or not.
func ShapeOf(clientStreams, serverStreams bool) Shape {
	switch {
	case clientStreams && serverStreams:
		return BidiStream
	case clientStreams:
		return ClientStream
	case serverStreams:
		return ServerStream
	}
	return Unary
}

// String returns the shape's name.
func (s Shape) String() string {
	return [...]string{"unary", "client stream", "server stream", "bidi stream"}[s&3]
}

// Side tells from which end a call is seen.
type Side uint8

// The sides.
const (
	ClientSide Side = iota
	ServerSide
)

// String returns "client" or "server".
func (s Side) String() string { return [...]string{"client", "server"}[s&1] }
