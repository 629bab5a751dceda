package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

// The file of a record is one line of JSON whose beat stands at a fixed place,
// so that a heartbeat writes 20 bytes in place and no new file:
//
//	{"format":1,"beat":"00000000000000000042","owner":"6f1c...","pid":4711,"instance":{...}}
const (
	format     = 1
	beatPrefix = `{"format":1,"beat":"`
	beatWidth  = 20
	extension  = ".json"
	// maxFileName leaves room for the 255 bytes of common file systems.
	maxFileName = 200
)

// record is what a file says.
type record struct {
	Format   int                        `json:"format"`
	Beat     string                     `json:"beat"`
	Owner    string                     `json:"owner"`
	PID      int                        `json:"pid"`
	Instance *kregistry.ServiceInstance `json:"instance"`
}

// encode returns the file of a record.
func encode(in *kregistry.ServiceInstance, owner string, pid int, beat uint64) ([]byte, error) {
	var instance bytes.Buffer
	encoder := json.NewEncoder(&instance)
	encoder.SetEscapeHTML(false) // endpoints are found by grep
	if err := encoder.Encode(in); err != nil {
		return nil, err
	}
	body := bytes.TrimSpace(instance.Bytes())
	return fmt.Appendf(nil, "%s%0*d\",\"owner\":%q,\"pid\":%d,\"instance\":%s}\n", beatPrefix, beatWidth, beat, owner, pid, body), nil
}

// beatText is the part of a file that changes with each heartbeat.
func beatText(beat uint64) []byte { return fmt.Appendf(nil, "%0*d", beatWidth, beat) }

// sameButBeat says whether two files differ in nothing but their beat.
func sameButBeat(a, b []byte) bool {
	const from, to = len(beatPrefix), len(beatPrefix) + beatWidth
	return len(a) == len(b) && len(a) > to && bytes.Equal(a[:from], b[:from]) && bytes.Equal(a[to:], b[to:])
}

var errNewerFormat = errors.New("the record was written by a newer version")

// decode reads a file and checks that it is what its name says: a copy under
// another name is not a second record.
func decode(name string, raw []byte) (*record, error) {
	var r record
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("file %s is not a record: %w", name, err)
	}
	if head.Format > format {
		return nil, fmt.Errorf("file %s: %w: format %d, this one reads up to %d; update this program", name, errNewerFormat, head.Format, format)
	}
	if head.Format < 1 {
		return nil, fmt.Errorf("file %s is not a record: it has no format", name)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("file %s is not a record: %w", name, err)
	}
	if err := registry.Validate(r.Instance); err != nil {
		return nil, fmt.Errorf("file %s: %w", name, err)
	}
	if want := fileName(r.Instance.Name, r.Instance.ID); want != name {
		return nil, fmt.Errorf("file %s holds the record of file %s; it is ignored as a copy", name, want)
	}
	return &r, nil
}

// fileName is where the record of a name and id lives. Different keys have
// different files also where file names ignore case.
func fileName(name, id string) string {
	file := escape(name) + "@" + escape(id)
	if len(file) > maxFileName {
		sum := sha256.Sum256([]byte(name + "\x00" + id))
		file = file[:maxFileName-65] + "~" + hex.EncodeToString(sum[:])
	}
	return file + extension
}

// escape keeps lower-case letters, digits and "-_." and writes any other byte
// as %XX.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
