package chash_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	kselector "github.com/go-kratos/kratos/v2/selector"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/chash"
)

func node(address string, weight int64) *selector.Node {
	n := selector.NewNode(&selector.Instance{Address: address, Weight: weight}, 1)
	n.SetReady(true)
	return n
}

func nodes(count int) []*selector.Node {
	out := make([]*selector.Node, count)
	for i := range out {
		out[i] = node(fmt.Sprintf("10.0.0.%d:9000", i), 100)
	}
	return out
}

func keyed(key string) *selector.Request {
	return &selector.Request{Hash: selector.HashKey(key), HasHash: true}
}

// home maps each of count keys to an address.
func home(t *testing.T, p selector.Picker, count int) []string {
	t.Helper()
	out := make([]string, count)
	for i := range out {
		n := p.Pick(keyed(fmt.Sprint("user-", i)))
		if n == nil {
			t.Fatalf("key %d: no node", i)
		}
		out[i] = n.Instance().Address
	}
	return out
}

// The table (computed by an independent program) is the contract with clients in other processes: a change of it
// moves every cache in a fleet.
func TestKeysAreTheSameEverywhere(t *testing.T) {
	p := chash.Strategy().Build(nodes(5), nil)
	want := map[string]string{"": "10.0.0.3:9000", "a": "10.0.0.4:9000", "user-1": "10.0.0.3:9000", "user-2": "10.0.0.0:9000", "一": "10.0.0.4:9000"}
	for key, address := range want {
		if got := p.Pick(keyed(key)).Instance().Address; got != address {
			t.Errorf("key %q: got %s, want %s", key, got, address)
		}
	}
}

func TestOrderOfNodesDoesNotMatter(t *testing.T) {
	list := nodes(20)
	want := home(t, chash.Strategy().Build(list, nil), 500)
	back := make([]*selector.Node, len(list))
	for i, n := range list {
		back[len(list)-1-i] = n
	}
	got := home(t, chash.Strategy().Build(back, nil), 500)
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("key %d: got %s after the list was reversed, want %s", i, got[i], want[i])
		}
	}
}

func TestChangesMoveTheLeast(t *testing.T) {
	const keys = 5000
	list := nodes(11)
	all := chash.Strategy().Build(list, nil)
	before := home(t, all, keys)
	gone := list[10].Instance().Address

	without := chash.Strategy().Build(list[:10], all)
	for i, address := range home(t, without, keys) {
		if before[i] != gone && address != before[i] {
			t.Fatalf("key %d moved from %s, which stayed, to %s", i, before[i], address)
		}
	}
	again := chash.Strategy().Build(append([]*selector.Node{node(gone, 100)}, list[:10]...), without)
	for i, address := range home(t, again, keys) {
		if address != before[i] {
			t.Fatalf("key %d is on %s after the node returned, want %s as before", i, address, before[i])
		}
	}
	list[0].Update(&selector.Instance{Address: list[0].Instance().Address, Weight: 200})
	replaced := append(slices.Clone(list[:10]), node("10.0.0.99:9000", 100))
	fromNothing := home(t, chash.Strategy().Build(replaced, nil), keys)
	for i, address := range home(t, chash.Strategy().Build(replaced, all), keys) {
		if address != fromNothing[i] {
			t.Fatalf("key %d is on %s after a node was replaced, want %s as in a new client", i, address, fromNothing[i])
		}
	}
	heavier := chash.Strategy().Build(list, all)
	for i, address := range home(t, heavier, keys) {
		if address != before[i] && address != list[0].Instance().Address {
			t.Fatalf("key %d moved from %s to %s when another node became heavier", i, before[i], address)
		}
	}
}

// A node that is not ready, or tried, hands its keys on without a new ring.
func TestKeysWalkOnAndComeBack(t *testing.T) {
	list := nodes(5)
	p := chash.Strategy().Build(list, nil)
	r := keyed("k")
	first := p.Pick(r)
	first.SetReady(false)
	second := p.Pick(r)
	if second == first || second == nil {
		t.Fatalf("the first node is not ready, got %v", second)
	}
	preferrer, ok := p.(selector.Preferrer)
	if !ok {
		t.Fatal("the picker is no Preferrer")
	}
	if got := preferrer.Preferred(r); got != first {
		t.Errorf("Preferred while the first is not ready: got %v, want the first", got)
	}
	if got := preferrer.Preferred(&selector.Request{}); got != nil {
		t.Errorf("Preferred without a key: got %v, want none", got)
	}
	first.SetReady(true)
	if got := p.Pick(r); got != first {
		t.Errorf("the first node is back, got %v", got)
	}
	r.Tried = &selector.Tried{}
	r.Tried.Add(first)
	if got := p.Pick(r); got != second {
		t.Errorf("the first is tried: got %v, want the second of before", got)
	}
}

func TestKeysSpreadByWeight(t *testing.T) {
	list := nodes(10)
	list[3].Update(&selector.Instance{Address: list[3].Instance().Address, Weight: 300})
	p := chash.Strategy(chash.VirtualNodes(400)).Build(list, nil)
	got := make(map[string]int)
	const keys = 24000
	for _, address := range home(t, p, keys) {
		got[address]++
	}
	for i, n := range list {
		want := keys / 12 * float64(n.Weight()) / 100
		if off := math.Abs(float64(got[n.Instance().Address])/want - 1); off > 0.2 {
			t.Errorf("node %d of weight %d: got %d of %d keys, want %.0f +/- 20 %%", i, n.Weight(), got[n.Instance().Address], keys, want)
		}
	}
}

// Small numbers are fair hashes too.
func TestPlainNumbersAsHashes(t *testing.T) {
	list := nodes(4)
	p := chash.Strategy().Build(list, nil)
	got := make(map[*selector.Node]int)
	for i := range uint64(4000) {
		got[p.Pick(&selector.Request{Hash: i, HasHash: true})]++
	}
	for i, n := range list {
		if got[n] < 600 || got[n] > 1400 {
			t.Errorf("node %d: got %d of 4000 numbers, want about 1000", i, got[n])
		}
	}
}

func TestReplicasShareAKey(t *testing.T) {
	list := nodes(10)
	one := chash.Strategy().Build(list, nil)
	p := chash.Strategy(chash.Replicas(3)).Build(list, nil)
	got := make(map[*selector.Node]int)
	for range 3000 {
		n := p.Pick(keyed("hot"))
		n.Begin(1, selector.Unary) // never ends: the least loaded takes the next
		got[n]++
	}
	if len(got) != 3 || got[one.Pick(keyed("hot"))] != 1000 {
		t.Errorf("got %d nodes, %d calls on the first; want 3 nodes with 1000 calls each", len(got), got[one.Pick(keyed("hot"))])
	}
}

func TestWithoutKeyByWeight(t *testing.T) {
	list := []*selector.Node{node("a", 100), node("b", 300)}
	p := chash.Strategy().Build(list, nil)
	got := make(map[*selector.Node]int)
	for range 4000 {
		got[p.Pick(&selector.Request{})]++
	}
	if got[list[1]] < 2800 || got[list[1]] > 3200 {
		t.Errorf("node of weight 300: got %d of 4000 calls, want about 3000", got[list[1]])
	}
}

func TestHugeWeightsFitTheRing(t *testing.T) {
	list := []*selector.Node{node("a", math.MaxInt64), node("b", math.MaxInt64), node("c", 1)}
	p := chash.Strategy().Build(list, nil)
	got := make(map[string]int)
	for _, address := range home(t, p, 2000) {
		got[address]++
	}
	if got["a"] < 800 || got["b"] < 800 {
		t.Errorf("two huge weights: got %v, want about 1000 each", got)
	}
}

type tenantKey struct{}

func TestKeyFromContext(t *testing.T) {
	s := chash.New(chash.Key(func(ctx context.Context) string {
		tenant, _ := ctx.Value(tenantKey{}).(string)
		if tenant == "bad" {
			panic("key function fails")
		}
		return tenant
	}))
	list := nodes(5)
	var applied []kselector.Node
	for _, n := range list {
		applied = append(applied, kselector.NewNode("grpc", n.Instance().Address, &kregistry.ServiceInstance{Name: "svc"}))
	}
	s.Apply(applied)
	direct := chash.Strategy().Build(list, nil)
	for i := range 50 {
		key := fmt.Sprint("tenant-", i)
		n, done, err := s.Select(context.WithValue(t.Context(), tenantKey{}, key))
		if err != nil {
			t.Fatal(err)
		}
		done(t.Context(), kselector.DoneInfo{})
		if want := direct.Pick(keyed(key)).Instance().Address; n.Address() != want {
			t.Errorf("%s: got %s, want %s as in a balancer", key, n.Address(), want)
		}
	}
	if _, _, err := s.Select(context.WithValue(t.Context(), tenantKey{}, "bad")); err != nil {
		t.Errorf("a key function that panics: got %v, want a call without a key", err)
	}
}

func TestOptionsAreClamped(t *testing.T) {
	list := nodes(3)
	p := chash.Strategy(chash.VirtualNodes(-1), chash.Replicas(1000)).Build(list, nil)
	if n := p.Pick(keyed("k")); n == nil {
		t.Error("got no node")
	}
}
