package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/local"
)

func user(id string) *kregistry.ServiceInstance {
	return &kregistry.ServiceInstance{
		ID: id, Name: "user", Version: "v1",
		Metadata:  map[string]string{"weight": "1"},
		Endpoints: []string{"grpc://127.0.0.1:9000?a=1&b=<2>"},
	}
}

// eventLog collects events.
type eventLog struct {
	mu  sync.Mutex
	all []registry.Event
}

func (l *eventLog) add(e registry.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *eventLog) of(kind registry.EventKind) []registry.Event {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.all), func(e registry.Event) bool { return e.Kind != kind })
}

func closeAll(t *testing.T, handles ...*local.Registry) {
	t.Helper()
	for _, r := range handles {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func list(t *testing.T, r *local.Registry, name string) string {
	t.Helper()
	found, err := r.GetService(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, in := range found {
		ids = append(ids, in.ID)
	}
	return strings.Join(ids, " ")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, f := range found {
		names = append(names, f.Name())
	}
	return names
}

func TestNewMakesAPrivateDirectory(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	r, err := local.New("")
	must(t, err)
	defer closeAll(t, r)
	info, err := os.Stat(r.Dir())
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode is %o", info.Mode().Perm())
	}
	if !strings.HasPrefix(r.Dir(), cache) || !strings.HasSuffix(r.Dir(), filepath.Join("materpc", "registry")) {
		t.Errorf("directory is %s", r.Dir())
	}
	if left := files(t, r.Dir()); len(left) != 0 {
		t.Errorf("New left %v", left)
	}
}

func TestNewTellsAnUnusableDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), nil)
	must(t, os.Mkdir(filepath.Join(dir, "closed"), 0o500))
	cases := []string{filepath.Join(dir, "file"), filepath.Join(dir, "file", "below")}
	if os.Geteuid() != 0 { // root may write anywhere
		cases = append(cases, filepath.Join(dir, "closed"), filepath.Join(dir, "closed", "below"))
	}
	for _, path := range cases {
		r, err := local.New(path)
		if err == nil || r != nil {
			t.Errorf("New(%s) = %v, %v", path, r, err)
			continue
		}
		if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "choose one") {
			t.Errorf("the error names neither directory nor remedy: %v", err)
		}
	}
}

func TestOpener(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"local://" + filepath.ToSlash(dir), dir} {
		opened, err := registry.Open(name, local.Opener())
		must(t, err)
		r, ok := opened.(*local.Registry)
		if !ok || r.Dir() != dir {
			t.Errorf("Open(%q) = %T", name, opened)
		}
		closeAll(t, r)
	}
	for _, name := range []string{"local://host/dir", "local:dir", "local:///dir?x=1"} {
		if opened, err := registry.Open(name, local.Opener()); err == nil || opened != nil {
			t.Errorf("Open(%q) = %v, %v", name, opened, err)
		}
	}
}

func TestRecordHoldsTheEndpointVerbatimUntilDeregister(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(t, dir)
	defer closeAll(t, r)
	in := user("1")
	must(t, r.Register(t.Context(), in))
	raw, err := os.ReadFile(filepath.Join(dir, local.FileName("user", "1")))
	must(t, err)
	if !bytes.Contains(raw, []byte(in.Endpoints[0])) {
		t.Errorf("the file does not hold %q: %s", in.Endpoints[0], raw)
	}
	must(t, r.Deregister(t.Context(), in))
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("Deregister left %v", left)
	}
}

func TestCloseWithdrawsWhatIsRegistered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, dir)
		must(t, r.Register(t.Context(), user("1")))
		watcher, err := r.Watch(t.Context(), "user")
		must(t, err)
		closeAll(t, r, r)
		if left := files(t, dir); len(left) != 0 {
			t.Errorf("Close left %v", left)
		}
		if _, err := watcher.Next(); err == nil {
			t.Error("a watcher outlives its registry")
		}
		if r.Register(t.Context(), user("1")) == nil {
			t.Error("a closed registry registers")
		}
		if _, err := r.GetService(t.Context(), "user"); err == nil {
			t.Error("a closed registry lists")
		}
		if _, err := r.Watch(t.Context(), "user"); err == nil {
			t.Error("a closed registry watches")
		}
	})
}

func TestCaseB39NamesAreExactAlsoInFileNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, key := range [][2]string{
		{"user", "1"},
		{"User", "1"},
		{"user-admin", "1"},
		{"user@1", "x"},
		{"user", "1@x"},
		{"user.", "1"},
		{".user", "1"},
		{"us%65r", "1"},
		{"käse", "1"},
		{strings.Repeat("Ü", 40), "1"},
		{strings.Repeat("Ü", 40), "2"},
	} {
		name := local.FileName(key[0], key[1])
		if other, taken := seen[strings.ToLower(name)]; taken {
			t.Errorf("%v and %s share the file %s", key, other, name)
		}
		seen[strings.ToLower(name)] = fmt.Sprint(key)
		if len(name) > 255 || strings.ContainsAny(name, `/\:`) || strings.HasPrefix(name, ".") {
			t.Errorf("%v has the file name %q", key, name)
		}
	}
}

func TestCaseB45NewestRecordBackAfterWipe(t *testing.T) {
	t.Parallel()
	for name, wipe := range map[string]func(string) error{
		"directory": os.RemoveAll,
		"files": func(dir string) error {
			found, err := filepath.Glob(filepath.Join(dir, "*"))
			for _, f := range found {
				err = errors.Join(err, os.Remove(f))
			}
			return err
		},
		"garbage": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, local.FileName("user", "1")), []byte("garbage"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				events := &eventLog{}
				owner, reader := open(t, dir, local.OnEvent(events.add)), open(t, dir)
				defer closeAll(t, owner, reader)
				must(t, owner.Register(t.Context(), user("1")))
				newest := user("1")
				newest.Metadata = map[string]string{"weight": "0", "v": "2"}
				must(t, owner.Register(t.Context(), newest))
				must(t, wipe(dir))
				time.Sleep(2 * time.Second) // two heartbeats
				found, err := reader.GetService(t.Context(), "user")
				must(t, err)
				if len(found) != 1 || !registry.Equal(found[0], newest) {
					t.Errorf("after the wipe: %v", found)
				}
				if n := len(events.of(registry.RecordRestored)); n != 1 {
					t.Errorf("%d events, want 1: %v", n, events.all)
				}
			})
		})
	}
}

func TestWipedDirectoryWithdrawsNobodyWhoBeats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		owner, victim, reader := open(t, dir), open(t, dir), open(t, dir)
		defer closeAll(t, owner, reader)
		must(t, owner.Register(t.Context(), user("1")))
		must(t, victim.Register(t.Context(), user("2")))
		watcher, err := reader.Watch(t.Context(), "user")
		must(t, err)
		defer func() { _ = watcher.Stop() }()
		first, err := watcher.Next()
		must(t, err)
		local.Kill(victim)
		must(t, os.Rename(dir, dir+".wiped")) // at once: a look in the middle would take missing files for withdrawals
		began := time.Now()
		second, err := watcher.Next()
		must(t, err)
		if len(first) != 2 || len(second) != 1 || second[0].ID != "1" {
			t.Errorf("lists are %v, then %v", first, second)
		}
		if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("the dead one expired after %s", took)
		}
		closeAll(t, victim)
	})
}

// TestClockStepsDoNotMatter has every file time lie by an hour while readers
// look; in the bubble the wall clock is off by decades besides.
func TestInvariant09ClockStepsExpireNobody(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				owner, victim, reader := open(t, dir), open(t, dir), open(t, dir)
				defer closeAll(t, owner, reader)
				must(t, owner.Register(t.Context(), user("1")))
				must(t, victim.Register(t.Context(), user("2")))
				lie := func() {
					for _, name := range files(t, dir) {
						at := time.Now().Add(step)
						if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil && !errors.Is(err, os.ErrNotExist) {
							t.Error(err)
						}
					}
				}
				for range 100 { // 10 s
					lie()
					if got := list(t, reader, "user"); got != "1 2" {
						t.Fatalf("list is %q", got)
					}
					time.Sleep(100 * time.Millisecond)
				}
				local.Kill(victim)
				for range 18 { // a file time that moves is no sign of life, one that stands no sign of death
					lie()
					if got := list(t, reader, "user"); got != "1 2" {
						t.Fatalf("before its expiry: list is %q", got)
					}
					time.Sleep(100 * time.Millisecond)
				}
				for range 20 {
					lie()
					list(t, reader, "user")
					time.Sleep(100 * time.Millisecond)
				}
				if got := list(t, reader, "user"); got != "1" {
					t.Errorf("after its expiry: list is %q", got)
				}
				closeAll(t, victim)
			})
		})
	}
}

func TestReaderThatSleptExpiresNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		slept := &faultyFiles{}
		owner := open(t, dir)
		reader := local.OpenWith(dir, slept.wrap)
		defer closeAll(t, owner, reader)
		must(t, owner.Register(t.Context(), user("1")))
		watcher, err := reader.Watch(t.Context(), "user")
		must(t, err)
		defer func() { _ = watcher.Stop() }()
		if _, err := watcher.Next(); err != nil {
			t.Fatal(err)
		}
		// Owner and reader stand still together, as on a suspended machine whose
		// clock went on.
		local.Kill(owner)
		slept.set(&slept.before, "list", func() error { time.Sleep(time.Hour); slept.set(&slept.before, "list", nil); return nil })
		time.Sleep(time.Hour)
		if got := list(t, reader, "user"); got != "1" {
			t.Errorf("just after waking up the list is %q", got)
		}
	})
}

func TestNewerAndBrokenRecordsAreSkippedWithOneEvent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		events := &eventLog{}
		owner, reader := open(t, dir), open(t, dir, local.OnEvent(events.add))
		defer closeAll(t, owner, reader)
		must(t, owner.Register(t.Context(), user("1")))
		write(t, filepath.Join(dir, local.FileName("user", "2")), []byte(`{"format":2,"shape":["new"]}`))
		write(t, filepath.Join(dir, local.FileName("user", "3")), []byte(`{"format":1,"beat":"1","instance":{"id":"3","name":"user","endpoints":["grpc://:9000"]}}`))
		write(t, filepath.Join(dir, local.FileName("user", "4")), []byte(`nonsense`))
		write(t, filepath.Join(dir, "README"), []byte(`not a record`))
		for beat := range 20 {
			write(t, filepath.Join(dir, local.FileName("user", "2")), fmt.Appendf(nil, `{"format":2,"pulse":%d}`, beat))
			if got := list(t, reader, "user"); got != "1" {
				t.Fatalf("list is %q", got)
			}
			time.Sleep(500 * time.Millisecond)
		}
		skipped := events.of(registry.RecordSkipped)
		if len(skipped) != 3 {
			t.Errorf("events are %v", skipped)
		}
		if !slices.ContainsFunc(skipped, func(e registry.Event) bool {
			return strings.Contains(e.Err.Error(), "newer version") && strings.Contains(e.Err.Error(), "update this program")
		}) {
			t.Errorf("no event speaks of a newer version: %v", skipped)
		}
		write(t, filepath.Join(dir, local.FileName("user", "4")), []byte(`other nonsense`))
		list(t, reader, "user")
		time.Sleep(time.Minute + 2*time.Second)
		list(t, reader, "user")
		if left := len(files(t, dir)); left != 5 {
			t.Errorf("files that are not ours were removed: %v", files(t, dir))
		}
	})
}

func TestGarbageIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		victim, reader := open(t, dir), open(t, dir)
		must(t, victim.Register(t.Context(), user("1")))
		if got := list(t, reader, "user"); got != "1" {
			t.Fatalf("list is %q", got)
		}
		local.Kill(victim)
		seen := 0
		for i := range 60 { // 6 s of a file that changes and says nothing
			write(t, filepath.Join(dir, local.FileName("user", "1")), fmt.Appendf(nil, "garbage %d", i))
			if list(t, reader, "user") == "1" {
				seen++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if seen < 25 || seen > 31 {
			t.Errorf("the last good record was listed for %d of 60 looks, want about 30", seen)
		}
		closeAll(t, victim, reader)
	})
}

func TestHeartbeatWritesInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		counted := &faultyFiles{}
		owner := local.OpenWith(dir, counted.wrap)
		must(t, owner.Register(t.Context(), user("1")))
		path := filepath.Join(dir, local.FileName("user", "1"))
		before, err := os.Stat(path)
		must(t, err)
		time.Sleep(60*time.Second + time.Millisecond)
		after, err := os.Stat(path)
		must(t, err)
		if !os.SameFile(before, after) || counted.count("replace") != 1 || counted.count("patch") != 60 {
			t.Errorf("in 60 s: %v", counted.calls)
		}
		closeAll(t, owner)
	})
}

func TestNewerOwnerOfTheSameKeyIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		events := &eventLog{}
		older, newer, reader := open(t, dir, local.OnEvent(events.add)), open(t, dir), open(t, dir)
		must(t, older.Register(t.Context(), user("1")))
		newest := user("1")
		newest.Version = "v2"
		must(t, newer.Register(t.Context(), newest))
		version := func() string {
			found, err := reader.GetService(t.Context(), "user")
			must(t, err)
			if len(found) != 1 {
				return fmt.Sprint(found)
			}
			return found[0].Version
		}
		time.Sleep(10 * time.Second)
		if got := version(); got != "v2" {
			t.Errorf("the older owner took the record back: %s", got)
		}
		if n := len(events.of(registry.RecordContested)); n != 1 {
			t.Errorf("%d events", n)
		}
		local.Kill(newer)
		time.Sleep(6 * time.Second)
		if got := version(); got != "v1" {
			t.Errorf("the record of a dead owner was not taken back: %s", got)
		}
		must(t, newer.Register(t.Context(), newest))
		must(t, older.Deregister(t.Context(), user("1")))
		if got := version(); got != "v2" {
			t.Errorf("the older owner took the newer one's record away: %s", got)
		}
		closeAll(t, older, newer, reader)
	})
}

func TestCaseB50RecordsAreReadInIsolation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(t, dir)
	defer closeAll(t, r)
	in := user("1")
	in.Metadata = nil
	in.Endpoints = []string{"grpc://10.0.0.1:9000", "http://10.0.0.1:8000"}
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if err := r.Register(t.Context(), in); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for range 2 {
		found, err := r.GetService(t.Context(), "user")
		must(t, err)
		if len(found) != 1 || !registry.Equal(found[0], in) {
			t.Fatalf("found %v", found)
		}
		found[0].Endpoints[1] = "changed"
		found[0].Metadata = map[string]string{"kind": "http"}
	}
	if in.Metadata != nil {
		t.Errorf("the caller's metadata was changed: %v", in.Metadata)
	}
}

func TestGetServiceAloneExpiresTheDead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		owner, victim, reader := open(t, dir), open(t, dir), open(t, dir)
		must(t, owner.Register(t.Context(), user("1")))
		must(t, victim.Register(t.Context(), user("2")))
		local.Kill(victim)
		if got := list(t, reader, "user"); got != "1 2" {
			t.Errorf("at first sight: %q", got)
		}
		time.Sleep(5 * time.Second)
		if got := list(t, reader, "user"); got != "1" {
			t.Errorf("after 5 s: %q", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := reader.GetService(ctx, "user"); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended ctx: %v", err)
		}
		time.Sleep(30 * time.Second) // the reader has stopped looking by now
		synctest.Wait()
		closeAll(t, owner, victim, reader)
	})
}
