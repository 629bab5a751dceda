package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// runPlugin speaks the plugin protocol of protoc with one pinned tool and
// returns its files by name.
func runPlugin(ctx context.Context, plugin string, names []string, files []*descriptorpb.FileDescriptorProto) (map[string]string, error) {
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      files,
	})
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "go", "tool", plugin)
	command.Stdin = bytes.NewReader(request)
	command.Stderr = os.Stderr
	answer, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", plugin, err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &response); err != nil {
		return nil, fmt.Errorf("%s: unreadable answer: %w", plugin, err)
	}
	if response.Error != nil {
		return nil, fmt.Errorf("%s: %w", plugin, errors.New(response.GetError()))
	}
	outputs := make(map[string]string, len(response.GetFile()))
	for _, file := range response.GetFile() {
		outputs[file.GetName()] = file.GetContent()
	}
	return outputs, nil
}
