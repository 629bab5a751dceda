package kratos_test

import (
	"os"
	"testing"

	"github.com/go-kratos/kratos/v2/selector"

	"github.com/materpc/materpc/selector/p2c"
)

// TestMain makes our selector the one of all Kratos clients here.
func TestMain(m *testing.M) {
	selector.SetGlobalSelector(p2c.NewBuilder())
	os.Exit(m.Run())
}
