package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// lookupSRV finds the targets of a name and the addresses of those with the
// best priority that have any (RFC 2782).
func (d *Discovery) lookupSRV(ctx context.Context, name string) ([]*kregistry.ServiceInstance, error) {
	service, proto := "grpc", "tcp"
	if strings.HasPrefix(name, "_") {
		service, proto = "", "" // the whole name is given
	}
	_, records, err := d.resolver.LookupSRV(ctx, service, proto, name)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, group := range byPriority(records) {
		list, err := d.lookupGroup(ctx, name, group)
		if len(list) > 0 {
			return list, nil
		}
		faults = append(faults, err)
	}
	return nil, errors.Join(append(faults, errors.New("the name has no target with an address"))...)
}

// byPriority groups records, the best (lowest) priority first.
func byPriority(records []*net.SRV) [][]*net.SRV {
	sorted := slices.DeleteFunc(slices.Clone(records), func(r *net.SRV) bool {
		return r == nil || r.Target == "" || r.Target == "." // "." says: not offered here
	})
	slices.SortStableFunc(sorted, func(a, b *net.SRV) int { return int(a.Priority) - int(b.Priority) })
	var groups [][]*net.SRV
	for i, r := range sorted {
		if i == 0 || r.Priority != sorted[i-1].Priority {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], r)
	}
	return groups
}

// target is an SRV record with its addresses.
type target struct {
	record    *net.SRV
	addresses []string
}

func (d *Discovery) lookupGroup(ctx context.Context, name string, group []*net.SRV) ([]*kregistry.ServiceInstance, error) {
	var (
		targets []target
		faults  []error
	)
	for _, r := range group {
		addresses, err := d.resolver.LookupHost(ctx, strings.TrimSuffix(r.Target, "."))
		if err != nil || len(addresses) == 0 {
			faults = append(faults, fmt.Errorf("target %q: no address: %w", r.Target, err))
			continue
		}
		targets = append(targets, target{record: r, addresses: addresses})
	}
	var list []*kregistry.ServiceInstance
	for i, weight := range weights(targets) {
		found, err := d.instances(name, targets[i].addresses, int(targets[i].record.Port), weight)
		if err != nil {
			faults = append(faults, fmt.Errorf("target %q: %w", targets[i].record.Target, err))
			continue
		}
		list = append(list, found...)
	}
	return list, errors.Join(faults...)
}

// shareScale keeps the weight of a target whole when several addresses share
// it.
const shareScale = 100

// weights returns the metadata of each target's addresses. A weight of 0
// among others means "hardly ever" in SRV, but drains an instance here, so the
// least is 1; when all are 0 nobody has a weight.
func weights(targets []target) []map[string]string {
	scale, weighted := 1, false
	for _, t := range targets {
		if len(t.addresses) > 1 {
			scale = shareScale
		}
		weighted = weighted || t.record.Weight > 0
	}
	out := make([]map[string]string, len(targets))
	if !weighted {
		return out
	}
	for i, t := range targets {
		share := max(1, int(t.record.Weight)*scale/len(t.addresses))
		out[i] = map[string]string{"weight": strconv.Itoa(share)}
	}
	return out
}
