package main

import (
	"context"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// compile parses and links the named files of one import root. The result holds
// them and all they import, dependencies first, as plugins expect it.
func compile(ctx context.Context, root string, names []string) ([]*descriptorpb.FileDescriptorProto, error) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			ImportPaths: []string{root},
		}),
		// Comments of the .proto file become comments of the Go code.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	linked, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	var ordered []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	for _, file := range linked {
		ordered = appendFile(ordered, seen, file)
	}
	return ordered, nil
}

// appendFile adds a file after everything it imports, each file once.
func appendFile(ordered []*descriptorpb.FileDescriptorProto, seen map[string]bool, file protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return ordered
	}
	seen[file.Path()] = true
	imports := file.Imports()
	for i := range imports.Len() {
		ordered = appendFile(ordered, seen, imports.Get(i).FileDescriptor)
	}
	return append(ordered, protoutil.ProtoFromFileDescriptor(file))
}
