package grpcshield

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// options are the call's options, apart from those that want something of its
// end: every attempt would write there, also one that is not selected.
type options struct {
	rest     []grpc.CallOption
	headers  []*metadata.MD
	trailers []*metadata.MD
	peers    []*peer.Peer
	finish   []func(error)
}

// sift takes options apart.
func sift(list []grpc.CallOption) options {
	o := options{rest: list}
	for i, option := range list {
		switch want := option.(type) {
		case grpc.HeaderCallOption:
			o.headers = append(o.headers, want.HeaderAddr)
		case grpc.TrailerCallOption:
			o.trailers = append(o.trailers, want.TrailerAddr)
		case grpc.PeerCallOption:
			o.peers = append(o.peers, want.PeerAddr)
		case grpc.OnFinishCallOption:
			o.finish = append(o.finish, want.OnFinish)
		default:
			if len(o.rest) < len(list) {
				o.rest = append(o.rest, option)
			}
			continue
		}
		if len(o.rest) == len(list) { // the first of these
			o.rest = append(make([]grpc.CallOption, 0, len(list)), list[:i]...)
		}
	}
	return o
}

// finishes reports whether an option wants to hear of the call's end.
func finishes(list []grpc.CallOption) bool {
	for _, option := range list {
		if _, ok := option.(grpc.OnFinishCallOption); ok {
			return true
		}
	}
	return false
}

// finished tells the options of the call's end.
func (o *options) finished(err error) {
	for _, fn := range o.finish {
		fn(err)
	}
}

// collected is what one attempt's options have got.
type collected struct {
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer
}

// of returns the options of an attempt that collects in c. The trailer is wanted
// in any case: pushback stands there.
func (o *options) of(c *collected) []grpc.CallOption {
	const most = 3
	list := make([]grpc.CallOption, len(o.rest), len(o.rest)+most)
	copy(list, o.rest)
	if len(o.headers) > 0 {
		list = append(list, grpc.Header(&c.header))
	}
	list = append(list, grpc.Trailer(&c.trailer))
	if len(o.peers) > 0 {
		list = append(list, grpc.Peer(&c.peer))
	}
	return list
}

// hand gives the caller what the selected attempt has collected.
func (o *options) hand(c *collected) {
	for i, target := range o.headers {
		*target = own(c.header, i)
	}
	for i, target := range o.trailers {
		*target = own(c.trailer, i)
	}
	for _, target := range o.peers {
		*target = c.peer
	}
}

// own lets no two targets share a map.
func own(md metadata.MD, i int) metadata.MD {
	if i == 0 {
		return md
	}
	return md.Copy()
}
