// Package hellov1 is the generated code of hello.v1.Greeter, the service that
// examples and tests call: one method of each shape. "make gen" writes it anew
// from greeter.proto.
package hellov1
