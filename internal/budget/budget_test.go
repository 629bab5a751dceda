package budget_test

import (
	"testing"

	"github.com/materpc/materpc/internal/budget"
)

func TestBudgetBoundsExtraAttempts(t *testing.T) {
	t.Parallel()
	var b budget.Budget
	for i := range 100 {
		if !b.Spend() {
			t.Fatalf("token %d refused, want 100", i+1)
		}
	}
	if b.Spend() {
		t.Error("a 101st token was given")
	}
	for range 9 {
		b.Earn()
	}
	if b.Spend() {
		t.Error("nine successes earned a whole token")
	}
	b.Earn()
	if !b.Spend() {
		t.Error("ten successes earned no token")
	}
}

func TestBudgetNeverHoldsMoreThanItsCapacity(t *testing.T) {
	t.Parallel()
	var b budget.Budget
	for range 1000 {
		b.Earn()
	}
	if got := b.Tokens(); got != 100 {
		t.Errorf("%d tokens, want 100", got)
	}
}
