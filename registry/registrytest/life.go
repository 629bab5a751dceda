package registrytest

import (
	"context"
	"slices"
	"time"
)

func lifeChecks() []check {
	return []check{
		{name: "heartbeat-outlives-register-ctx", run: outlivesCtx},
		{name: "failed-replacement-changes-nothing", run: failedReplacement},
		{name: "deregister-is-final", run: deregisterIsFinal},
		{name: "deregister-races-register", run: deregisterRaces},
		{name: "newest-data-stays", run: newestDataStays},
	}
}

// threeExpiries is long enough for a record without heartbeat to go.
func (b *bench) threeExpiries() time.Duration { return max(3*b.backend.Expiry, b.backend.Within) }

func outlivesCtx(b *bench) {
	owner, reader := b.open(), b.open()
	ctx, cancel := short(b.Context(), time.Second)
	b.must(owner.Register(ctx, user("1")))
	cancel()
	f := b.follow(b.Context(), reader)
	b.follows(f, "1")
	before := f.count()
	b.never(b.threeExpiries(), "the list changed", func() bool { return f.count() != before })
	b.sees(reader, "user", "1")
}

func failedReplacement(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.sees(reader, "user", "1")
	bad := user("1")
	bad.Endpoints = nil
	ended, cancel := context.WithCancel(b.Context())
	cancel()
	if owner.Register(b.Context(), bad) == nil || owner.Register(ended, changed(user("1"), "weight", "9")) == nil {
		b.Fatal("a bad replacement was accepted")
	}
	f := b.follow(b.Context(), reader)
	b.follows(f, "1")
	b.never(b.threeExpiries(), "the record changed or went", func() bool {
		newest := f.newest()
		return len(newest) != 1 || newest[0].Metadata["weight"] != ""
	})
}

// deregisterIsFinal is case B46.
func deregisterIsFinal(b *bench) {
	owner, reader := b.open(), b.open()
	f := b.follow(b.Context(), reader)
	b.must(owner.Register(b.Context(), user("1")))
	b.follows(f, "1")
	b.must(owner.Deregister(b.Context(), user("1")))
	b.follows(f)
	b.never(b.threeExpiries(), "the record came back", func() bool { return len(f.newest()) != 0 })
}

func deregisterRaces(b *bench) {
	owner, reader := b.open(), b.open()
	for range 20 {
		registered := make(chan error, 1)
		go func() { registered <- owner.Register(b.Context(), user("1")) }()
		b.must(owner.Deregister(b.Context(), user("1")))
		b.must(<-registered)
		b.must(owner.Deregister(b.Context(), user("1")))
	}
	b.sees(reader, "user")
	b.pass(max(b.backend.Expiry, b.backend.Within))
	b.sees(reader, "user")
}

func newestDataStays(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.must(owner.Register(b.Context(), changed(user("1"), "weight", "0")))
	f := b.follow(b.Context(), reader)
	b.follows(f, "1")
	b.until("the newest data", func() bool { return f.newest()[0].Metadata["weight"] == "0" })
	b.never(b.threeExpiries(), "older data came back", func() bool {
		return !slices.Equal(ids(f.newest()), []string{"1"}) || f.newest()[0].Metadata["weight"] != "0"
	})
}
