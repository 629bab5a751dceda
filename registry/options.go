package registry

import kregistry "github.com/go-kratos/kratos/v2/registry"

// HubOption configures a Hub.
type HubOption interface{ applyHub(*Hub) }

// RegistrationOption configures a Registration.
type RegistrationOption interface{ applyRegistration(*Registration) }

// Option configures a Hub and a Registration alike.
type Option interface {
	HubOption
	RegistrationOption
}

// HoldEmpty says whether an empty list that follows a non-empty one is held
// back: the last good list stays in use, and one event tells. Default true. A
// list with nothing but unusable records is held in either case.
func HoldEmpty(hold bool) HubOption { return holdEmpty(hold) }

type holdEmpty bool

func (o holdEmpty) applyHub(h *Hub) { h.holdEmpty = bool(o) }

// OnEvent adds a receiver of events; several add up. It is called on a
// goroutine of its own, one event after another, and may be slow or panic
// without harm; when 1,024 events wait, further ones are dropped. The receivers
// of a Registration also hear what its backend tells of the record.
func OnEvent(fn func(Event)) Option { return onEvent(fn) }

type onEvent func(Event)

func (o onEvent) applyHub(h *Hub)                   { h.events.Receive(o) }
func (o onEvent) applyRegistration(r *Registration) { r.events.Receive(o) }

// ReadBack names the discovery that answers what became of a write without a
// clear answer. Default: the registrar itself, when it is one.
func ReadBack(d kregistry.Discovery) RegistrationOption { return readBack{d} }

type readBack struct{ discovery kregistry.Discovery }

func (o readBack) applyRegistration(r *Registration) { r.discovery = o.discovery }
