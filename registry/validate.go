package registry

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// MaxName is the longest service name or instance id, in bytes: with its
// escapes it still fits a file name.
const MaxName = 80

// Validate checks what a backend of ours is asked to register and reports all
// faults at once, each with field, value and remedy.
func Validate(in *kregistry.ServiceInstance) error {
	if in == nil {
		return errors.New("the instance is nil")
	}
	faults := []error{ValidateName("Name", in.Name), ValidateName("ID", in.ID)}
	if len(in.Endpoints) == 0 {
		faults = append(faults, errors.New("field Endpoints is empty; give at least one, such as grpc://10.0.0.1:9000"))
	}
	if _, err := Endpoints(in, ""); err != nil {
		faults = append(faults, fmt.Errorf("field Endpoints: %w", err))
	}
	return errors.Join(faults...)
}

// ValidateName checks a service name or an instance id; field says which, for
// the error. Separators are refused: a lookup is exact in every backend, also
// in those that look up by prefix.
func ValidateName(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("field %s is empty; it is part of the record's key", field)
	case len(name) > MaxName:
		return fmt.Errorf("field %s has %d bytes, at most %d are allowed, starting with %.20q", field, len(name), MaxName, name)
	case !utf8.ValidString(name):
		return fmt.Errorf("field %s is not valid UTF-8: %q", field, name)
	case strings.ContainsAny(name, `/\`):
		return fmt.Errorf("field %s must not contain a separator, slash or backslash: %q; use a dot or a hyphen", field, name)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return fmt.Errorf("field %s must not contain spaces or control characters: %q", field, name)
	}
	return nil
}

// ValidateKey checks the part of an instance that Deregister needs.
func ValidateKey(in *kregistry.ServiceInstance) error {
	if in == nil {
		return errors.New("the instance is nil")
	}
	return errors.Join(ValidateName("Name", in.Name), ValidateName("ID", in.ID))
}
