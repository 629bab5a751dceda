package local_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/registry/local"
)

func TestDeadFilesAreBuriedAndLiveOnesAreNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		owner, victim, reader := open(t, dir), open(t, dir), open(t, dir)
		must(t, owner.Register(t.Context(), user("1")))
		must(t, victim.Register(t.Context(), user("2")))
		write(t, filepath.Join(dir, ".materpc-KILLEDINBETWEEN.tmp"), []byte("half a rec"))
		watcher, err := reader.Watch(t.Context(), "user")
		must(t, err)
		defer func() { _ = watcher.Stop() }()
		local.Kill(victim)
		time.Sleep(30 * time.Second)
		if n := len(files(t, dir)); n != 3 {
			t.Errorf("after 30 s: %v", files(t, dir))
		}
		time.Sleep(60 * time.Second)
		if got := files(t, dir); len(got) != 1 || got[0] != local.FileName("user", "1") {
			t.Errorf("after 90 s: %v", got)
		}
		closeAll(t, owner, victim, reader)
	})
}

func TestOwnerThatWakesUpDuringTheBurialLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := local.FileName("user", "1")
	var disk local.Files
	local.OpenWith(dir, func(f local.Files) local.Files { disk = f; return f })
	write(t, filepath.Join(dir, name), []byte("alive again"))
	must(t, local.Bury(disk, name, []byte("stale")))
	if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != "alive again" {
		t.Errorf("the file holds %q, %v", raw, err)
	}
	must(t, local.Bury(disk, name, []byte("alive again")))
	must(t, local.Bury(disk, name, []byte("alive again")))
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestBurialPutsBackWhatItCannotJudge has a file that can be moved but neither
// be read nor linked: a directory is one for every user, root included.
func TestBurialPutsBackWhatItCannotJudge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := local.FileName("user", "1")
	var disk local.Files
	local.OpenWith(dir, func(f local.Files) local.Files { disk = f; return f })
	must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	if err := local.Bury(disk, name, []byte("stale")); err == nil {
		t.Error("what cannot be read was buried")
	}
	if left := files(t, dir); len(left) != 1 || left[0] != name {
		t.Errorf("left: %v, want %s", left, name)
	}
}
