package grpcshield

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// another returns an empty message of the same type.
func another(message any) (any, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "grpcshield: under a Hedge each attempt needs a reply of its own, and %T is no proto.Message: call this method under a shield without Hedge", message)
	}
	return m.ProtoReflect().New().Interface(), nil
}

// transfer makes to what from is.
func transfer(to, from any) error {
	target, ok := to.(proto.Message)
	source, same := from.(proto.Message)
	if !ok || !same || target.ProtoReflect().Descriptor().FullName() != source.ProtoReflect().Descriptor().FullName() {
		return status.Errorf(codes.Internal, "grpcshield: the shield's reply is a %T, the caller wants a %T", from, to)
	}
	proto.Reset(target)
	proto.Merge(target, source)
	return nil
}

// forget drops what an attempt has written into a reply, if it can.
func forget(message any) {
	if m, ok := message.(proto.Message); ok {
		proto.Reset(m)
	}
}
