package health

import "strconv"

// Status is what is published for a name. The numbers are those of
// grpc.health.v1.HealthCheckResponse.ServingStatus.
type Status int

const (
	// Unknown is published only when the application set it.
	Unknown Status = 0
	// Serving means that calls are welcome.
	Serving Status = 1
	// NotServing means that calls should go elsewhere.
	NotServing Status = 2
	// ServiceUnknown is what a watcher of an unknown name is told.
	ServiceUnknown Status = 3
)

// String returns the name of the status in the gRPC health protocol.
func (s Status) String() string {
	switch s {
	case Unknown:
		return "UNKNOWN"
	case Serving:
		return "SERVING"
	case NotServing:
		return "NOT_SERVING"
	case ServiceUnknown:
		return "SERVICE_UNKNOWN"
	default:
		return "Status(" + strconv.Itoa(int(s)) + ")"
	}
}

// Phase is where the lifecycle of the process stands. Only [Ready] lets
// anything be SERVING. A life goes forward only:
//
//	Starting -> Ready -> Draining -> Stopped
//	    ^------------------------------|   SetPhase(Starting) begins a new life
type Phase int

const (
	// Starting is the zero phase: not ready yet.
	Starting Phase = iota
	// Ready means that the start is complete.
	Ready
	// Draining means that the stop has begun; calls are still served.
	Draining
	// Stopped means that nothing is served any more.
	Stopped
)

// String returns the phase in lower case.
func (p Phase) String() string {
	switch p {
	case Starting:
		return "starting"
	case Ready:
		return "ready"
	case Draining:
		return "draining"
	case Stopped:
		return "stopped"
	default:
		return "Phase(" + strconv.Itoa(int(p)) + ")"
	}
}
