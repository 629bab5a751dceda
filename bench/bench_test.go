package main

import "testing"

// BenchmarkCall is one caller after another, the place to look for a change
// before a whole run: go test -bench Call/unary/materpc -benchmem.
func BenchmarkCall(b *testing.B) {
	peers, err := startPeers(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := closePeers(peers); err != nil {
			b.Error(err)
		}
	})
	for _, load := range []workload{unary(), unaryDeadline(), pingPong(), download()} {
		b.Run(load.name, func(b *testing.B) {
			for _, p := range peers {
				b.Run(p.name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if err := load.run(b.Context(), p.client); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}
