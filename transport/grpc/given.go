package grpc

import "reflect"

// given returns what is there of an option's arguments; each nil is a fault.
func given[T any](fault func(format string, args ...any), option string, list []T) []T {
	kept := make([]T, 0, len(list))
	for i, argument := range list {
		v := reflect.ValueOf(argument)
		if !v.IsValid() || (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil() {
			fault("%s: argument %d is nil; leave it out", option, i+1)
			continue
		}
		kept = append(kept, argument)
	}
	return kept
}
