package registrytest

import (
	"context"
	"errors"
	"strings"
	"sync"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/registry"
)

func basicChecks() []check {
	return []check{
		{name: "registered-is-listed", run: registeredIsListed},
		{name: "deregistered-is-gone", run: deregisteredIsGone},
		{name: "deregister-of-absent-is-nil", run: deregisterOfAbsent},
		{name: "newer-data-replaces", run: newerDataReplaces},
		{name: "unknown-name-is-empty", run: unknownName},
		{name: "name-is-exact", run: nameIsExact},
		{name: "separator-is-refused", run: separatorIsRefused},
		{name: "bad-input-tells-all-faults", run: badInput},
		{name: "copies-are-private", run: copiesArePrivate},
		{name: "ipv6-round-trip", run: ipv6RoundTrip},
		{name: "ended-ctx-writes-nothing", run: endedCtx},
		{name: "register-concurrently", run: registerConcurrently},
	}
}

func registeredIsListed(b *bench) {
	owner, reader := b.open(), b.open()
	in := user("1")
	b.must(owner.Register(b.Context(), in))
	for _, handle := range []registry.Registry{owner, reader} {
		b.sees(handle, "user", "1")
		if diff := cmp.Diff(in, b.list(handle, "user")[0]); diff != "" {
			b.Errorf("record (-want +got):\n%s", diff)
		}
	}
}

func deregisteredIsGone(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.must(owner.Register(b.Context(), user("2")))
	b.sees(reader, "user", "1", "2")
	b.must(owner.Deregister(b.Context(), user("1"))) // an equal copy will do
	b.sees(reader, "user", "2")
	b.must(owner.Register(b.Context(), user("1"))) // and the key can be used again
	b.sees(reader, "user", "1", "2")
}

func deregisterOfAbsent(b *bench) {
	owner := b.open()
	b.must(owner.Deregister(b.Context(), user("1")))
	b.must(owner.Register(b.Context(), user("1")))
	b.must(owner.Deregister(b.Context(), user("1")))
	b.must(owner.Deregister(b.Context(), user("1")))
	b.sees(owner, "user")
}

func newerDataReplaces(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.sees(reader, "user", "1")
	b.must(owner.Register(b.Context(), changed(user("1"), "weight", "0")))
	b.until("the new weight is seen", func() bool {
		list := b.list(reader, "user")
		return len(list) == 1 && list[0].Metadata["weight"] == "0" && list[0].Metadata["zone"] == "a"
	})
}

func unknownName(b *bench) {
	list, err := b.open().GetService(b.Context(), "nobody")
	b.must(err)
	if len(list) != 0 {
		b.Errorf("got %v", list)
	}
}

// nameIsExact is case B39.
func nameIsExact(b *bench) {
	owner, reader := b.open(), b.open()
	for _, name := range []string{"user", "user-admin", "User", "user.x", "use"} {
		b.must(owner.Register(b.Context(), instance(name, "of-"+name)))
	}
	b.sees(reader, "user", "of-user")
	b.sees(reader, "User", "of-User")
	b.sees(reader, "use", "of-use")
}

func separatorIsRefused(b *bench) {
	owner := b.open()
	for _, name := range []string{"user/x", `user\x`, "user x", "user\n"} {
		if err := owner.Register(b.Context(), instance(name, "1")); err == nil {
			b.Errorf("name %q was accepted", name)
		}
		if err := owner.Register(b.Context(), user(name)); err == nil {
			b.Errorf("id %q was accepted", name)
		}
	}
	err := owner.Register(b.Context(), instance("user/x", "1"))
	if err == nil || !strings.Contains(err.Error(), "separator") || !strings.Contains(err.Error(), "user/x") {
		b.Errorf("the error names neither fault nor value: %v", err)
	}
	b.sees(owner, "user")
}

func badInput(b *bench) {
	owner := b.open()
	b.must(owner.Register(b.Context(), user("1")))
	bad := &kregistry.ServiceInstance{Name: "user", Endpoints: []string{"grpc://:9000", "grpc://h:99999", "grpc://ok:1"}}
	err := owner.Register(b.Context(), bad)
	if err == nil {
		b.Fatal("accepted")
	}
	for _, want := range []string{"ID", "grpc://:9000", "grpc://h:99999"} {
		if !strings.Contains(err.Error(), want) {
			b.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if owner.Register(b.Context(), nil) == nil || owner.Deregister(b.Context(), nil) == nil {
		b.Error("a nil instance was accepted")
	}
	b.sees(owner, "user", "1")
}

// copiesArePrivate is case B50.
func copiesArePrivate(b *bench) {
	owner := b.open()
	for _, metadata := range []map[string]string{nil, {"a": "1"}} {
		in := user("1")
		in.Metadata = metadata
		before := registry.Clone(in)
		b.must(owner.Register(b.Context(), in))
		if diff := cmp.Diff(before, in); diff != "" {
			b.Errorf("the caller's instance was changed (-before +after):\n%s", diff)
		}
		in.Endpoints[0] = "grpc://changed:1"
		b.until("the record is seen", func() bool {
			list := b.list(owner, "user")
			return len(list) == 1 && registry.Equal(list[0], before)
		})
		list := b.list(owner, "user")
		list[0].Endpoints[0], list[0].Metadata = "grpc://changed:1", map[string]string{"b": "2"}
		if again := b.list(owner, "user"); !registry.Equal(again[0], before) {
			b.Errorf("a second reader sees the first one's change: %v", again[0])
		}
	}
}

// ipv6RoundTrip is the codec part of case B49.
func ipv6RoundTrip(b *bench) {
	owner := b.open()
	want := map[string]string{}
	for id, host := range map[string]string{"a": "2001:db8::1", "b": "[2001:db8::1]", "c": "::1", "d": "fe80::1%eth0", "e": "10.0.0.1", "f": "svc.local"} {
		e, err := registry.NewEndpoint("grpc", host, 9000)
		b.must(err)
		in := user(id)
		in.Endpoints = []string{e.String()}
		b.must(owner.Register(b.Context(), in))
		want[id] = e.Address()
	}
	b.sees(owner, "user", "a", "b", "c", "d", "e", "f")
	got := map[string]string{}
	for _, in := range b.list(owner, "user") {
		list, err := registry.Endpoints(in, "grpc")
		b.must(err)
		got[in.ID] = list[0].Address()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func endedCtx(b *bench) {
	owner := b.open()
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	if err := owner.Register(ctx, user("1")); !errors.Is(err, context.Canceled) {
		b.Errorf("Register: %v", err)
	}
	if _, err := owner.GetService(ctx, "user"); !errors.Is(err, context.Canceled) {
		b.Errorf("GetService: %v", err)
	}
	if _, err := owner.Watch(ctx, "user"); !errors.Is(err, context.Canceled) {
		b.Errorf("Watch: %v", err)
	}
	b.sees(owner, "user")
}

func registerConcurrently(b *bench) {
	owner, in := b.open(), user("shared")
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			if err := owner.Register(b.Context(), in); err != nil {
				b.Errorf("register: %v", err)
			}
			own := user(string(rune('a' + i)))
			if err := owner.Register(b.Context(), own); err != nil {
				b.Errorf("register: %v", err)
			}
			if err := owner.Deregister(b.Context(), own); err != nil {
				b.Errorf("deregister: %v", err)
			}
		})
	}
	group.Wait()
	b.sees(owner, "user", "shared")
}
