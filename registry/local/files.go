package local

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	directoryMode = 0o700
	fileMode      = 0o600
	tempPrefix    = ".materpc-"
	tempSuffix    = ".tmp"
)

// Files is what the registry does to its directory; names are base names.
// It is a seam for tests.
type files interface {
	list() ([]string, error)
	read(name string) ([]byte, error)
	// replace writes a whole file atomically, over an older one, and creates
	// the directory again if it is gone.
	replace(name string, data []byte) error
	// patch overwrites a part of an existing file in place.
	patch(name string, data []byte, offset int64) error
	// remove takes a file away; an absent one is no error.
	remove(name string) error
	// bury removes a file that still holds exactly the given data.
	bury(name string, data []byte) error
	// create makes the directory if it is missing.
	create() error
}

// directory is files on disk.
type directory struct{ path string }

var _ files = directory{}

func (d directory) file(name string) string { return filepath.Join(d.path, name) }

func (d directory) create() error { return os.MkdirAll(d.path, directoryMode) }

func (d directory) list() ([]string, error) {
	found, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for _, f := range found {
		if f.Type().IsRegular() {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

func (d directory) read(name string) ([]byte, error) { return os.ReadFile(d.file(name)) }

func (d directory) replace(name string, data []byte) error {
	temp := d.temp()
	err := os.WriteFile(temp, data, fileMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.create(); err == nil {
			err = os.WriteFile(temp, data, fileMode)
		}
	}
	if err == nil {
		err = os.Rename(temp, d.file(name))
	}
	if err != nil {
		return errors.Join(err, ignoreAbsent(os.Remove(temp)))
	}
	return nil
}

func (d directory) patch(name string, data []byte, offset int64) error {
	f, err := os.OpenFile(d.file(name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, offset)
	return errors.Join(err, f.Close())
}

func (d directory) remove(name string) error { return ignoreAbsent(os.Remove(d.file(name))) }

// bury moves the file aside first and looks at it then: an owner that woke up
// in between has changed it, or made a new one, and loses nothing.
func (d directory) bury(name string, data []byte) error {
	grave := d.temp()
	if err := os.Rename(d.file(name), grave); err != nil {
		return ignoreAbsent(err)
	}
	found, err := os.ReadFile(grave)
	if err != nil || !bytes.Equal(found, data) {
		return errors.Join(err, d.exhume(grave, name))
	}
	return ignoreAbsent(os.Remove(grave))
}

// exhume gives a file that was moved aside its name back, unless there is a
// newer one by now.
func (d directory) exhume(grave, name string) error {
	// Link does not overwrite, so a file made meanwhile stays.
	err := os.Link(grave, d.file(name))
	if err == nil || errors.Is(err, fs.ErrExist) {
		return ignoreAbsent(os.Remove(grave))
	}
	// Not every file system has links. Should the owner write at this very
	// moment, its next heartbeat finds the older file and restores the newer.
	_, newer := os.Lstat(d.file(name))
	switch {
	case newer == nil:
		return ignoreAbsent(os.Remove(grave))
	case errors.Is(newer, fs.ErrNotExist):
		return ignoreAbsent(os.Rename(grave, d.file(name)))
	}
	return errors.Join(err, newer)
}

// temp is a new name for a file that is not a record.
func (d directory) temp() string { return d.file(tempPrefix + rand.Text() + tempSuffix) }

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// probe makes the directory and shows that records can be written to it.
func (d directory) probe() error {
	if err := d.create(); err != nil {
		return fmt.Errorf("directory %q cannot be made: %w; choose one that this user may write", d.path, err)
	}
	temp := d.temp()
	if err := os.WriteFile(temp, nil, fileMode); err != nil {
		return fmt.Errorf("directory %q cannot be written: %w; choose one that this user may write", d.path, err)
	}
	if err := os.Remove(temp); err != nil {
		return fmt.Errorf("directory %q does not let files be removed: %w; choose another", d.path, err)
	}
	return nil
}
