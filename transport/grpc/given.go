package grpc

import "reflect"

// given returns what is there of an option's arguments; each nil is a fault.
func given[T any](fault func(format string, args ...any), option string, list []T) []T {
	kept := make([]T, 0, len(list))
	for i, argument := range list {
		if absent(argument) {
			fault("%s: argument %d is nil; leave it out", option, i+1)
			continue
		}
		kept = append(kept, argument)
	}
	return kept
}

// absent reports whether an argument is nil, or a nil pointer or function.
func absent(argument any) bool {
	v := reflect.ValueOf(argument)
	return !v.IsValid() || (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil()
}
