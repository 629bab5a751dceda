package draw_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/internal/draw"
)

func deck(count int) draw.Deck {
	nodes := make([]*selector.Node, count)
	for i := range nodes {
		nodes[i] = selector.NewNode(&selector.Instance{Address: fmt.Sprint(i), Weight: 100}, 1)
		nodes[i].SetReady(true)
	}
	return draw.New(nodes)
}

func TestFindFindsTheLastOne(t *testing.T) {
	for count := range 60 {
		d := deck(count)
		if got := d.Find(&selector.Request{Filter: func(*selector.Node) bool { return false }}); got != -1 {
			t.Fatalf("%d nodes, none allowed: got %d, want -1", count, got)
		}
		for want, only := range d.Nodes() {
			r := &selector.Request{Filter: func(n *selector.Node) bool { return n == only }}
			if got := d.Find(r); got != want {
				t.Fatalf("%d nodes, only %d allowed: Find got %d", count, want, got)
			}
			if got := d.Draw(r, rand.Uint32()); got != want {
				t.Fatalf("%d nodes, only %d allowed: Draw got %d", count, want, got)
			}
		}
	}
}

func TestOtherIsAnother(t *testing.T) {
	if d := deck(1); d.Other(&selector.Request{}, 0, 1) != -1 {
		t.Error("one node has another")
	}
	d := deck(3)
	got := make(map[int]int)
	for range 3000 {
		got[d.Other(&selector.Request{}, 1, rand.Uint32())]++
	}
	if got[1] > 0 || got[0] < 1200 || got[2] < 1200 {
		t.Errorf("others of node 1: got %v, want 0 and 2 alike", got)
	}
	two := &selector.Request{Filter: func(n *selector.Node) bool { return n == d.Nodes()[1] || n == d.Nodes()[2] }}
	if i := d.Other(two, 1, 0); i != 2 {
		t.Errorf("only 2 is left beside 1: got %d", i)
	}
}
